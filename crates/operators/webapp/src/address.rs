//! Where an application is reached.

use crate::{names, resources};
use stead_apis::WebApp;
use stead_apis::webapp::Route;

/// From outside where the spec makes a way, else the address inside the cluster.
pub fn url(app: &WebApp) -> String {
    if let Some(ingress) = app.spec.ingress.as_ref().filter(|ingress| is_one(&ingress.host)) {
        let scheme = if ingress.tls_secret_name.is_some() {
            "https"
        } else {
            "http"
        };
        return format!("{scheme}://{}{}", ingress.host, ingress.path);
    }
    if let Some(route) = &app.spec.route
        && let Some(host) = route.hostnames.iter().find(|host| is_one(host))
    {
        return format!("{}://{host}{}", scheme(route), route.path);
    }
    let port = resources::ports(app).first().map_or(80, |port| port.offered_as(0));
    let namespace = app.metadata.namespace.as_deref().unwrap_or("default");
    let host = format!("{}.{namespace}.svc", names::child(app));
    if port == 80 {
        format!("http://{host}")
    } else {
        format!("http://{host}:{port}")
    }
}

/// What an Ingress controller tells applications apart by. Two with the same are one to it, and which of them answers is
/// chance.
pub fn place(app: &WebApp) -> Option<String> {
    let ingress = app.spec.ingress.as_ref()?;
    let class = ingress.class_name.as_deref().unwrap_or_default();
    Some(format!("{class} {}{}", ingress.host, ingress.path))
}

/// The oldest of the applications at one place, as `namespace/name`, unless it is this one. One that goes away makes room.
pub fn taken_by<'a>(app: &WebApp, at_its_place: impl Iterator<Item = &'a WebApp>) -> Option<String> {
    let age = |app: &WebApp| {
        let meta = &app.metadata;
        let created = meta.creation_timestamp.as_ref().map(|time| time.0);
        // Those of one second have an order too, or each would say that the other was first.
        (created, meta.namespace.clone(), meta.name.clone())
    };
    let staying = at_its_place.filter(|other| other.metadata.deletion_timestamp.is_none());
    let (_, namespace, name) = staying.map(age).min().filter(|first| *first < age(app))?;
    Some(format!(
        "{}/{}",
        namespace.unwrap_or_default(),
        name.unwrap_or_default()
    ))
}

/// Whether this is the name of one host: nobody can go to `*.example.com`.
fn is_one(host: &str) -> bool {
    !host.starts_with('*')
}

/// What a listener speaks is the Gateway's affair, which the operator has no right to read. By custom those that end TLS
/// have `https` in their name.
fn scheme(route: &Route) -> &'static str {
    let listener = route.gateway.section_name.as_deref().unwrap_or_default();
    match listener.split(['-', '.']).any(|part| part == "https") {
        true => "https",
        false => "http",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[track_caller]
    fn check(way_in: Value, expected: &str) {
        let mut app = json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": "shop", "namespace": "a"}, "spec": {"image": "nginx:1.25"}});
        for (name, value) in way_in.as_object().expect("an object") {
            app["spec"][name] = value.clone();
        }
        assert_eq!(url(&serde_json::from_value(app).expect("a WebApp")), expected);
    }

    #[test]
    fn the_younger_of_two_at_one_place_hears_of_the_older() {
        let app = |name: &str, created: &str, ingress: Value| -> WebApp {
            serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
                "metadata": {"name": name, "namespace": "a", "creationTimestamp": created},
                "spec": {"image": "nginx:1.25", "ingress": ingress}}))
            .expect("a WebApp")
        };
        let host = json!({"host": "x.example.com"});
        let old = app("old", "2026-01-01T00:00:00Z", host.clone());
        let young = app("young", "2026-01-01T00:00:01Z", host.clone());
        let twin = app("twin", "2026-01-01T00:00:01Z", host);
        assert_eq!(place(&old), place(&young));
        let all = || [&young, &old, &twin].into_iter();
        assert_eq!(taken_by(&old, all()), None);
        assert_eq!(taken_by(&young, all()).as_deref(), Some("a/old"));
        assert_eq!(taken_by(&young, [&twin, &young].into_iter()).as_deref(), Some("a/twin"));
        assert_eq!(taken_by(&twin, [&twin, &young].into_iter()), None);
        let mut leaving = old.clone();
        leaving.metadata.deletion_timestamp = leaving.metadata.creation_timestamp.clone();
        assert_eq!(taken_by(&young, [&leaving, &young].into_iter()), None);
        for elsewhere in [
            json!({"host": "x.example.com", "path": "/a"}),
            json!({"host": "x.example.com", "className": "b"}),
        ] {
            assert_ne!(place(&app("other", "2026-01-01T00:00:00Z", elsewhere)), place(&old));
        }
    }

    #[test]
    fn an_application_is_reached_by_a_name_that_somebody_can_go_to() {
        let route = |hostnames: &[&str], listener: Option<&str>| json!({"route": {"gateway": {"name": "door", "sectionName": listener}, "hostnames": hostnames}});
        check(json!({}), "http://shop.a.svc");
        check(
            json!({"ports": [{"name": "x", "containerPort": 80, "servicePort": 8080}]}),
            "http://shop.a.svc:8080",
        );
        check(
            json!({"ingress": {"host": "x.example.com", "path": "/shop"}}),
            "http://x.example.com/shop",
        );
        check(
            json!({"ingress": {"host": "x.example.com", "tlsSecretName": "t"}}),
            "https://x.example.com/",
        );
        check(json!({"ingress": {"host": "*.example.com"}}), "http://shop.a.svc");
        check(
            route(&["*.example.com", "x.example.com"], None),
            "http://x.example.com/",
        );
        check(route(&["x.example.com"], Some("https")), "https://x.example.com/");
        check(
            route(&["x.example.com"], Some("https-public")),
            "https://x.example.com/",
        );
        check(route(&["x.example.com"], Some("http")), "http://x.example.com/");
        check(route(&["*.example.com"], None), "http://shop.a.svc");
    }
}
