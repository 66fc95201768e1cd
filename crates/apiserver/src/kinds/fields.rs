//! The fields that field selectors may name, kind by kind.

use crate::catalogue::{Origin, Resource};
use crate::error::{ApiError, Result};
use crate::verbs::object::at;
use serde_json::Value;

const EVENT: &[&str] = &[
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
];

/// The same in the words of the other group.
const NEW_EVENT: &[&str] = &[
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
];

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
        ("", "events") => EVENT,
        ("events.k8s.io", "events") => NEW_EVENT,
        ("", "namespaces") => &["status.phase"],
        ("", "nodes") => &["spec.unschedulable"],
        ("", "secrets") => &["type"],
        ("", "services") => &["spec.clusterIP", "spec.type"],
        ("", "replicationcontrollers") => &["status.replicas"],
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
    let known = names(resource);
    // Kinds that name their fields name this one only where they have it.
    if field == "metadata.namespace" && resource.origin_is_built_in() && known.is_empty() {
        return Ok(());
    }
    if known.contains(&field) || selectable(resource).iter().any(|known| known == field) {
        return Ok(());
    }
    Err(ApiError::bad_request(match (known.is_empty(), &resource.origin) {
        (true, Origin::BuiltIn) => {
            format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
        }
        _ if super::id(resource) == ("batch", "jobs") => format!("field label {field:?} not supported for Job"),
        _ => format!("field label not supported: {field}"),
    }))
}

/// The fields of a custom resource that its definition opens for selectors.
fn selectable(resource: &Resource) -> Vec<String> {
    match &resource.origin {
        Origin::BuiltIn => Vec::new(),
        Origin::Custom(custom) => {
            let fields = custom.selectable_fields.iter();
            fields.map(|path| path.trim_start_matches('.').to_string()).collect()
        }
    }
}

/// The values of all fields of a stored object that selectors may name. It depends on the object alone, because
/// whoever asks first fills it in for all: events give the names of both groups.
pub fn extract(resource: &Resource, object: &Value) -> Vec<(String, String)> {
    let built_in = names(resource).iter();
    let twin: &[&str] = match super::id(resource) {
        ("", "events") => NEW_EVENT,
        ("events.k8s.io", "events") => EVENT,
        _ => &[],
    };
    let built_in = built_in
        .chain(twin)
        .map(|name| (name.to_string(), value(resource, object, name)));
    let custom = selectable(resource).into_iter().map(|name| {
        let value = shown(at(object, &name));
        (name, value)
    });
    built_in.chain(custom).collect()
}

fn value(resource: &Resource, object: &Value, field: &str) -> String {
    if resource.plural == "events" && resource.origin_is_built_in() {
        return event_value(object, field);
    }
    match (super::id(resource), field) {
        (("batch", "jobs"), "status.successful") => shown_or(&object["status"]["succeeded"], "0"),
        (("", "nodes"), "spec.unschedulable") | (("", "pods"), "spec.hostNetwork") => {
            shown_or(at(object, field), "false")
        }
        (_, "status.replicas") => shown_or(&object["status"]["replicas"], "0"),
        _ => shown(at(object, field)),
    }
}

/// Events are stored in the form of the core group, whichever group asks.
fn event_value(object: &Value, field: &str) -> String {
    let reporting = || shown(&object["reportingComponent"]);
    match field {
        "source" => match object["source"]["component"].as_str() {
            Some(component) if !component.is_empty() => component.to_string(),
            _ => reporting(),
        },
        "reportingComponent" | "reportingController" => reporting(),
        field => match field.strip_prefix("regarding.") {
            Some(rest) => shown(at(&object["involvedObject"], rest)),
            None => shown(at(object, field)),
        },
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
