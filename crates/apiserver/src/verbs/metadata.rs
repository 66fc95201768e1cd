//! The rules of `metadata`, which hold for every kind.

use super::object::{self, meta};
use crate::catalogue::Resource;
use crate::kinds::names;
use serde_json::Value;
use std::collections::BTreeSet;
use stead_machinery::field::{FieldError, FieldErrorKind};
use stead_machinery::names::{label_value, path_segment, qualified_name};

/// Bytes that all annotations of an object have together.
const ANNOTATION_BYTES: usize = 256 * 1024;
/// Finalizers that belong to the API itself and need no domain.
const STANDARD_FINALIZERS: [&str; 3] = ["kubernetes", "orphan", "foregroundDeletion"];

/// What is wrong with the metadata of an object.
pub fn errors(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let generate_name = meta(object, "generateName");
    if !generate_name.is_empty() {
        for complaint in names::prefix_complaints(resource, generate_name) {
            errors.push(FieldError::invalid("metadata.generateName", generate_name, complaint));
        }
    }
    match object::name(object) {
        "" => errors.push(FieldError::required(
            "metadata.name",
            "name or generateName is required",
        )),
        name => {
            let segment = path_segment(name);
            for complaint in names::complaints(resource, name) {
                errors.push(FieldError::invalid("metadata.name", name, complaint));
            }
            if errors.is_empty() {
                errors.extend(
                    segment
                        .into_iter()
                        .map(|c| FieldError::invalid("metadata.name", name, c)),
                );
            }
        }
    }
    let namespace = object::namespace(object);
    if resource.namespaced {
        if namespace.is_empty() {
            errors.push(FieldError::required("metadata.namespace", ""));
        } else {
            for complaint in stead_machinery::names::dns1123_label(namespace) {
                errors.push(FieldError::invalid("metadata.namespace", namespace, complaint));
            }
        }
    } else if !namespace.is_empty() {
        errors.push(FieldError::forbidden("metadata.namespace", "not allowed on this type"));
    }
    shared(object, &mut errors);
    // Most built-in kinds know only standard names; others may name their finalizers as they like.
    let lenient = matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("coordination.k8s.io" | "policy" | "node.k8s.io", _) | ("", "events")
    );
    if resource.origin_is_built_in() && !lenient {
        standard_finalizers(object, &mut errors);
    }
    errors
}

/// Why names with the prefix of an object could not stand in a path, whatever its kind.
pub fn prefix_errors(object: &Value) -> Vec<FieldError> {
    let prefix = meta(object, "generateName");
    let invalid = |complaint| FieldError::invalid("metadata.generateName", prefix, complaint);
    match prefix {
        // A prefix may be what a whole name may not.
        "" | "." | ".." => Vec::new(),
        _ => path_segment(prefix).into_iter().map(invalid).collect(),
    }
}

/// What is wrong with the metadata of a resource inside another one, of whose kind nothing is known.
pub fn nested_errors(object: &Value) -> Vec<FieldError> {
    let mut errors = prefix_errors(object);
    let (name, namespace) = (object::name(object), object::namespace(object));
    for complaint in path_segment(name).into_iter().filter(|_| !name.is_empty()) {
        errors.push(FieldError::invalid("metadata.name", name, complaint));
    }
    if !namespace.is_empty() {
        for complaint in stead_machinery::names::dns1123_label(namespace) {
            errors.push(FieldError::invalid("metadata.namespace", namespace, complaint));
        }
    }
    shared(object, &mut errors);
    errors
}

/// The rules that do not depend on the kind.
fn shared(object: &Value, errors: &mut Vec<FieldError>) {
    labels(&object["metadata"]["labels"], "metadata.labels", errors);
    annotations(&object["metadata"]["annotations"], "metadata.annotations", errors);
    owners(&object["metadata"]["ownerReferences"], errors);
    finalizers(object, errors);
}

/// What is wrong with labels at some path.
pub fn labels(labels: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for (name, value) in labels.as_object().into_iter().flatten() {
        for complaint in qualified_name(name) {
            errors.push(FieldError::invalid(path, name.as_str(), complaint));
        }
        let value = value.as_str().unwrap_or_default();
        for complaint in label_value(value) {
            errors.push(FieldError::invalid(path, value, complaint));
        }
    }
}

/// What is wrong with annotations at some path.
pub fn annotations(annotations: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let mut bytes = 0;
    for (name, value) in annotations.as_object().into_iter().flatten() {
        // The rule is case-insensitive for annotations, unlike for labels.
        for complaint in qualified_name(&name.to_ascii_lowercase()) {
            errors.push(FieldError::invalid(path, name.as_str(), complaint));
        }
        bytes += name.len() + value.as_str().map_or(0, str::len);
    }
    if bytes > ANNOTATION_BYTES {
        errors.push(FieldError::new(
            path,
            FieldErrorKind::TooLong,
            "".into(),
            format!("may not be more than {ANNOTATION_BYTES} bytes"),
        ));
    }
}

fn owners(owners: &Value, errors: &mut Vec<FieldError>) {
    let mut controllers: Vec<String> = Vec::new();
    for owner in owners.as_array().map(Vec::as_slice).unwrap_or_default() {
        let path = "metadata.ownerReferences";
        let text = |field: &str| owner[field].as_str().unwrap_or_default();
        if text("apiVersion").rsplit('/').next().unwrap_or_default().is_empty() {
            errors.push(FieldError::invalid(
                format!("{path}.apiVersion"),
                text("apiVersion"),
                "version must not be empty",
            ));
        }
        for field in ["kind", "name", "uid"] {
            if text(field).is_empty() {
                errors.push(FieldError::invalid(format!("{path}.{field}"), "", "must not be empty"));
            }
        }
        if text("kind") == "Event" && matches!(text("apiVersion"), "v1" | "events.k8s.io/v1") {
            errors.push(FieldError::invalid(
                path,
                owner.clone(),
                format!("{}, Kind=Event is disallowed from being an owner", text("apiVersion")),
            ));
        }
        if owner["controller"] == true {
            controllers.push(format!("{}/{}", text("kind"), text("name")));
        }
    }
    if controllers.len() > 1 {
        errors.push(FieldError::invalid(
            "metadata.ownerReferences",
            owners.clone(),
            format!(
                "Only one reference can have Controller set to true. Found \"true\" in references for {} and {}",
                controllers[0], controllers[1]
            ),
        ));
    }
}

fn finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    let finalizers = object::finalizers(object);
    for finalizer in &finalizers {
        for complaint in qualified_name(finalizer) {
            errors.push(FieldError::invalid(
                "metadata.finalizers",
                finalizer.as_str(),
                complaint,
            ));
        }
    }
    let has = |name: &str| finalizers.iter().any(|finalizer| finalizer == name);
    if has("orphan") && has("foregroundDeletion") {
        errors.push(FieldError::invalid(
            "metadata.finalizers",
            serde_json::json!(finalizers),
            "finalizer orphan and foregroundDeletion cannot be both set",
        ));
    }
}

fn standard_finalizers(object: &Value, errors: &mut Vec<FieldError>) {
    for (index, finalizer) in object::finalizers(object).iter().enumerate() {
        let known = finalizer.contains('/') || STANDARD_FINALIZERS.contains(&finalizer.as_str());
        if !known && qualified_name(finalizer).is_empty() {
            errors.push(FieldError::invalid(
                format!("metadata.finalizers[{index}]"),
                finalizer.as_str(),
                "name is neither a standard finalizer name nor is it fully qualified",
            ));
        }
    }
}

/// What an update may not do to the metadata.
pub fn update_errors(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    if object::is_deleting(old) {
        let before = object::finalizers(old);
        let added: BTreeSet<String> = object::finalizers(new)
            .into_iter()
            .filter(|f| !before.contains(f))
            .collect();
        if !added.is_empty() {
            errors.push(FieldError::forbidden(
                "metadata.finalizers",
                format!(
                    "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                    added.iter().map(|f| format!("{f:?}")).collect::<Vec<_>>().join(", ")
                ),
            ));
        }
    }
    for field in [
        "name",
        "namespace",
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        if new["metadata"].get(field) != old["metadata"].get(field) {
            let value = new["metadata"][field].clone();
            errors.push(FieldError::invalid(
                format!("metadata.{field}"),
                value,
                "field is immutable",
            ));
        }
    }
    errors
}
