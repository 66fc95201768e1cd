//! What the server accepts and advises against.

mod pods;

use crate::catalogue::{Origin, Resource};
use serde_json::Value;
use stead_machinery::names;

/// What a client hears about an object that it creates or changes.
pub fn warnings(resource: &Resource, object: &Value, old: Option<&Value>) -> Vec<String> {
    let mut found = Vec::new();
    if !matches!(resource.origin, Origin::BuiltIn) {
        finalizers(object, old, &mut found);
        return found;
    }
    let created = old.is_none();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => {
            if created {
                hostname(name, "the Pod's hostname", &mut found);
            }
            pods::check(object, "", &mut found);
        }
        ("", "replicationcontrollers") | ("apps", "replicasets" | "deployments") | ("batch", "jobs" | "cronjobs") => {
            if created {
                hostname(name, "Pod names and hostnames", &mut found);
            }
            template(resource, object, old, &mut found);
        }
        ("apps", "statefulsets") => {
            if object["spec"]["revisionHistoryLimit"]
                .as_i64()
                .is_some_and(|limit| limit < 0)
            {
                found.push(
                    "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                        .to_string(),
                );
            }
            template(resource, object, old, &mut found);
        }
        ("apps", "daemonsets") | ("", "podtemplates") => template(resource, object, old, &mut found),
        (crate::custom::GROUP, crate::custom::PLURAL) => {
            for format in crate::custom::unknown_formats(object) {
                found.push(format!("unrecognized format {format:?}"));
            }
        }
        ("", "persistentvolumes") if object["spec"]["persistentVolumeReclaimPolicy"] == "Recycle" => {
            found.push(
                "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
                    .to_string(),
            );
        }
        ("discovery.k8s.io", "endpointslices") if created && object["addressType"] == "FQDN" => {
            found.push("spec.addressType: FQDN endpoints are deprecated".to_string());
        }
        ("", "services") => service(object, &mut found),
        _ => {}
    }
    found
}

/// Kinds that every use of is warned of.
pub fn deprecation(resource: &Resource) -> Option<&'static str> {
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "endpoints") => Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
        ("", "componentstatuses") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        _ => None,
    }
}

/// Finalizers of custom kinds may have any name, and one without a domain may be somebody else's too.
fn finalizers(object: &Value, old: Option<&Value>, found: &mut Vec<String>) {
    let of = |object: &Value| crate::verbs::object::finalizers(object);
    let before = old.map(of).unwrap_or_default();
    for finalizer in of(object) {
        if !finalizer.contains('/') && !before.contains(&finalizer) {
            found.push(format!(
                "metadata.finalizers: {finalizer:?}: prefer a domain-qualified finalizer name to avoid accidental conflicts with other finalizer writers"
            ));
        }
    }
}

fn hostname(name: &str, what: &str, found: &mut Vec<String>) {
    let mut complaints = names::dns1123_label(name);
    if name.contains('.') && names::dns1123_subdomain(name).is_empty() {
        // The rest of the complaint would only repeat what the dot already breaks.
        complaints = vec!["must not contain dots".to_string()];
    }
    if !complaints.is_empty() {
        found.push(format!(
            "metadata.name: this is used in {what}, which can result in surprising behavior; a DNS label is recommended: [{}]",
            complaints.join(" ")
        ));
    }
}

fn template(resource: &Resource, object: &Value, old: Option<&Value>, found: &mut Vec<String>) {
    let (pointer, at) = match resource.plural.as_str() {
        "cronjobs" => ("/spec/jobTemplate/spec/template", "spec.jobTemplate.spec.template."),
        "podtemplates" => ("/template", "template."),
        _ => ("/spec/template", "spec.template."),
    };
    let Some(template) = object.pointer(pointer) else {
        return;
    };
    if old.is_some_and(|old| old["metadata"]["generation"] == object["metadata"]["generation"]) {
        return;
    }
    pods::check(template, at, found);
}

fn service(service: &Value, found: &mut Vec<String>) {
    let spec = &service["spec"];
    let external = spec["externalIPs"].as_array().is_some_and(|ips| !ips.is_empty());
    let (headless, by_name) = (spec["clusterIP"] == "None", spec["type"] == "ExternalName");
    if headless && external {
        found.push("spec.externalIPs is ignored for headless services".to_string());
    }
    if headless && spec["sessionAffinity"] != "None" {
        found.push("spec.SessionAffinity is ignored for headless services".to_string());
    }
    if external && !headless && !by_name {
        found.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_string());
    }
    if external && by_name {
        found.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_string());
    }
    if spec["type"] != "ExternalName" && spec["externalName"].as_str().is_some_and(|name| !name.is_empty()) {
        found.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_string());
    }
    if spec["trafficDistribution"] == "PreferClose" {
        found.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_string());
    }
}
