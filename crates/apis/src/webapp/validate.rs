//! What is wrong with a WebApp beyond its schema, and what is doubtful.
//!
//! The webhook answers with it, and the operator checks again before it acts: a cluster may have no webhook.

use super::WebAppSpec;
use crate::image::ImageReference;
use std::collections::{BTreeMap, BTreeSet};
use stead_machinery::field::FieldError;
use stead_machinery::names;

/// Names that the operator gives to volumes of its own.
pub const FILES_VOLUME: &str = "stead-files";

/// Every mistake in the spec.
pub fn errors(spec: &WebAppSpec) -> Vec<FieldError> {
    let mut found = Vec::new();
    if let Err(error) = spec.image.parse::<ImageReference>() {
        found.push(FieldError::invalid(
            "spec.image",
            spec.image.as_str(),
            error.to_string(),
        ));
    }
    if !(0..=super::MOST_REPLICAS).contains(&spec.replicas) {
        let detail = format!("must be between 0 and {}", super::MOST_REPLICAS);
        found.push(FieldError::invalid("spec.replicas", spec.replicas, detail));
    }
    found.extend(repeated(
        "spec.ports",
        "name",
        spec.ports.iter().map(|port| port.name.as_str()),
    ));
    found.extend(repeated(
        "spec.files",
        "path",
        spec.files.iter().map(|file| file.path.as_str()),
    ));
    found.extend(repeated(
        "spec.env",
        "name",
        spec.env.iter().map(|variable| variable.name.as_str()),
    ));
    let containers = spec.init_containers.iter().map(|c| c.name.as_str());
    found.extend(repeated("spec.initContainers", "name", containers));
    for (index, container) in spec.sidecars.iter().enumerate() {
        if container.name == "app" {
            let field = format!("spec.sidecars[{index}].name");
            found.push(FieldError::invalid(
                field,
                "app",
                "this name is the application's own container; use another",
            ));
        }
    }
    for (index, volume) in spec.volumes.iter().enumerate() {
        if volume.name == FILES_VOLUME {
            let field = format!("spec.volumes[{index}].name");
            found.push(FieldError::invalid(
                field,
                FILES_VOLUME,
                "this name holds spec.files; use another",
            ));
        }
    }
    found.extend(labels("spec.podLabels", &spec.pod_labels));
    found.extend(labels("spec.nodeSelector", &spec.node_selector));
    for name in spec.pod_annotations.keys() {
        let problems = names::qualified_name(&name.to_lowercase());
        found.extend(
            problems
                .iter()
                .map(|why| FieldError::invalid("spec.podAnnotations", name.as_str(), why.as_str())),
        );
    }
    if spec.ingress.is_some() && spec.route.is_some() {
        found.push(FieldError::forbidden(
            "spec.route",
            "ingress and route are two ways to the same end: keep one of them",
        ));
    }
    if let Some(scaling) = spec
        .autoscaling
        .as_ref()
        .filter(|scaling| scaling.min_replicas > scaling.max_replicas)
    {
        let detail = "must not be greater than maxReplicas";
        found.push(FieldError::invalid(
            "spec.autoscaling.minReplicas",
            scaling.min_replicas,
            detail,
        ));
    }
    found
}

/// What is allowed and likely to be regretted.
pub fn warnings(spec: &WebAppSpec) -> Vec<String> {
    let mut found = Vec::new();
    if spec
        .image
        .parse::<ImageReference>()
        .is_ok_and(|image| image.is_moving())
    {
        let image = &spec.image;
        found.push(format!(
            "spec.image: {image} may be another program tomorrow; name a version or a digest"
        ));
    }
    if spec.replicas == 1 && spec.disruption.is_some() {
        found.push("spec.disruption: with one replica it blocks every drain of its node".to_string());
    }
    found
}

/// Labels that Kubernetes would refuse on the pods, told where they are written.
fn labels(field: &str, labels: &BTreeMap<String, String>) -> Vec<FieldError> {
    let invalid = |value: &str, why: &String| FieldError::invalid(field, value, why.as_str());
    let mut found = Vec::new();
    for (name, value) in labels {
        found.extend(names::qualified_name(name).iter().map(|why| invalid(name, why)));
        found.extend(names::label_value(value).iter().map(|why| invalid(value, why)));
    }
    found
}

fn repeated<'a>(field: &str, key: &str, names: impl Iterator<Item = &'a str>) -> Vec<FieldError> {
    let mut seen = BTreeSet::new();
    names
        .enumerate()
        .filter(|(_, name)| !seen.insert(*name))
        .map(|(index, name)| FieldError::duplicate(format!("{field}[{index}].{key}"), name))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn mistakes(extra: serde_json::Value) -> Vec<String> {
        let mut spec = json!({"image": "nginx:1.25"});
        for (name, value) in extra.as_object().expect("an object") {
            spec[name] = value.clone();
        }
        let spec = serde_json::from_value(spec).expect("a spec");
        errors(&spec).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unicode_labels_are_refused_with_what_to_change() {
        let found = mistakes(json!({"podLabels": {"team": "größe"}}));
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0].contains("spec.podLabels") && found[0].contains("größe"),
            "{found:?}"
        );
        assert!(found[0].contains("alphanumeric"), "{found:?}");
        assert!(mistakes(json!({"podLabels": {"team": "blue"}, "podAnnotations": {"Note/x": "größe"}})).is_empty());
    }
}
