//! The fields that field selectors may name, kind by kind.

use crate::catalogue::{Origin, Resource};
use crate::error::{ApiError, Result};
use crate::verbs::object::at;
use serde_json::Value;

/// Fields besides name and namespace.
fn names(resource: &Resource) -> &'static [&'static str] {
    match super::id(resource) {
        ("", "pods") => &[
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ],
        ("", "events") => &[
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        ("events.k8s.io", "events") => &[
            "regarding.kind",
            "regarding.namespace",
            "regarding.name",
            "regarding.uid",
            "regarding.apiVersion",
            "regarding.resourceVersion",
            "regarding.fieldPath",
            "reason",
            "reportingController",
            "type",
        ],
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") | ("apps", "replicasets") => &["status.replicas"],
        ("batch", "jobs") => &["status.successful"],
        ("certificates.k8s.io", "certificatesigningrequests") => &["spec.signerName"],
        ("networking.k8s.io", "ipaddresses") => &["spec.parentRef.resource"],
        ("resource.k8s.io", "resourceslices") => &["spec.nodeName", "spec.driver"],
        _ => &[],
    }
}

/// Refuses a selector on a field that the kind does not have for it.
pub fn check(resource: &Resource, field: &str) -> Result<()> {
    if field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) {
        return Ok(());
    }
    if field == "metadata.namespace" && resource.origin_is_built_in() {
        return Ok(());
    }
    let known = names(resource);
    if known.contains(&field) || selectable(resource).iter().any(|known| known == field) {
        return Ok(());
    }
    Err(ApiError::bad_request(match (known.is_empty(), &resource.origin) {
        (true, Origin::BuiltIn) => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ => format!("field label not supported: {field}"),
    }))
}

/// The fields of a custom resource that its definition opens for selectors.
fn selectable(resource: &Resource) -> Vec<String> {
    match &resource.origin {
        Origin::Custom(kind) => {
            let paths = kind.selectable_fields.iter();
            paths.map(|path| path.trim_start_matches('.').to_string()).collect()
        }
        Origin::BuiltIn => Vec::new(),
    }
}

/// The values of all fields of an object that selectors may name.
pub fn extract(resource: &Resource, object: &Value) -> Vec<(String, String)> {
    let built_in = names(resource)
        .iter()
        .map(|name| (name.to_string(), value(resource, object, name)));
    let custom = selectable(resource).into_iter().map(|name| {
        let value = shown(at(object, &name));
        (name, value)
    });
    built_in.chain(custom).collect()
}

fn value(resource: &Resource, object: &Value, field: &str) -> String {
    match (super::id(resource), field) {
        (("", "events"), "source") => match object["source"]["component"].as_str() {
            Some(component) if !component.is_empty() => component.to_string(),
            _ => shown(&object["reportingComponent"]),
        },
        (("", "events"), "reportingComponent") | (("events.k8s.io", "events"), "reportingController") => {
            let new = shown(&object["reportingComponent"]);
            if new.is_empty() {
                shown(&object["reportingController"])
            } else {
                new
            }
        }
        // Events are stored as core events, whichever group asks.
        (("events.k8s.io", "events"), field) => match field.strip_prefix("regarding.") {
            Some(rest) => {
                let stored = shown(at(&object["involvedObject"], rest));
                if stored.is_empty() {
                    shown(at(&object["regarding"], rest))
                } else {
                    stored
                }
            }
            None => shown(at(object, field)),
        },
        (("batch", "jobs"), "status.successful") => shown_or(&object["status"]["succeeded"], "0"),
        (("", "nodes"), "spec.unschedulable") | (("", "pods"), "spec.hostNetwork") => {
            shown_or(at(object, field), "false")
        }
        (_, "status.replicas") => shown_or(&object["status"]["replicas"], "0"),
        _ => shown(at(object, field)),
    }
}

fn shown_or(value: &Value, absent: &str) -> String {
    match value {
        Value::Null => absent.to_string(),
        value => shown(value),
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
