//! The admission webhooks: labels on the way in, and the mistakes that a schema cannot see.
//!
//! The operator is safe without them (the schema, its rules and the plan refuse the same); with them the user
//! learns of a mistake at once, and of what is doubtful by a warning.

use crate::names;
use stead::webhook::{Asked, Denial, Webhooks};
use stead_apis::WebApp;
use stead_apis::webapp::validate;

/// Where the API server asks for changes.
pub const MUTATE: &str = "/mutate-stead-dev-v1-webapp";
/// Where the API server asks for a verdict.
pub const VALIDATE: &str = "/validate-stead-dev-v1-webapp";

/// The webhooks of WebApps.
pub fn all() -> Webhooks {
    Webhooks::new()
        .mutate(MUTATE, |app: &mut WebApp, _: &Asked<WebApp>| {
            label(app);
            Ok(())
        })
        .validate(VALIDATE, |asked: &Asked<WebApp>| {
            asked.object.as_ref().map_or(Ok(Vec::new()), verdict)
        })
}

/// Adds the labels by which people and tools find an application; what the user set stays.
fn label(app: &mut WebApp) {
    let wanted = names::selector(app);
    let labels = app.metadata.labels.get_or_insert_default();
    for (name, value) in wanted {
        labels.entry(name).or_insert(value);
    }
}

/// Warnings, or all mistakes at once.
fn verdict(app: &WebApp) -> Result<Vec<String>, Denial> {
    // What is going away must not be kept by a mistake in it: its finalizers could never be removed.
    if app.metadata.deletion_timestamp.is_some() {
        return Ok(Vec::new());
    }
    let mistakes: Vec<String> = validate::errors(&app.spec).iter().map(ToString::to_string).collect();
    match mistakes.is_empty() {
        true => Ok(validate::warnings(&app.spec)),
        false => Err(Denial::new(mistakes.join("; "))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn app(image: &str) -> WebApp {
        let value = serde_json::json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": "shop", "labels": {"app.kubernetes.io/name": "mine"}}, "spec": {"image": image}});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn labels_are_added_and_the_users_own_are_kept() {
        let mut app = app("nginx:1.25");
        label(&mut app);
        let labels = app.metadata.labels.unwrap();
        assert_eq!(labels["app.kubernetes.io/name"], "mine");
        assert_eq!(labels["app.kubernetes.io/instance"], "shop");
    }

    #[test]
    fn a_moving_image_warns_and_a_wrong_one_is_denied() {
        assert!(verdict(&app("nginx:1.25")).unwrap().is_empty());
        assert!(verdict(&app("nginx:latest")).unwrap()[0].contains("another program tomorrow"));
        assert!(
            verdict(&app("not an image"))
                .unwrap_err()
                .message
                .starts_with("spec.image")
        );
    }
}
