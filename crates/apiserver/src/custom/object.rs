//! What is done with each custom object: pruned, filled in, checked.

use super::{CustomKind, embedded};
use crate::catalogue::{Origin, Resource, built_in};
use crate::error::ApiError;
use crate::store::Record;
use crate::verbs::{Call, metadata, object};
use serde_json::Value;
use std::sync::Arc;
use stead_machinery::field::{FieldError, FieldErrorKind};
use stead_machinery::patch::go_text;
use stead_machinery::validate::{unique_items, validate};
use stead_machinery::{schema::SchemaRef, walk};

/// Drops the fields that the schema does not know, and tells what they were in the words of strict decoding.
pub fn prune(resource: &Resource, object: &mut Value) -> Vec<String> {
    if resource.origin_is_built_in() {
        return Vec::new();
    }
    if let (Some(metadata), Some(schema)) = (object.get_mut("metadata"), resource.schema().field("metadata")) {
        walk::tidy(metadata, schema);
    }
    let mut dropped = walk::prune(object, resource.schema());
    dropped.sort();
    dropped
        .into_iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect()
}

/// Brings the metadata of embedded resources into form, and tells what it dropped in the words of strict decoding; an
/// error is a value of the wrong type.
pub fn coerce_embedded(resource: &Resource, object: &mut Value) -> Result<Vec<String>, String> {
    if resource.origin_is_built_in() {
        return Ok(Vec::new());
    }
    let dropped = embedded::coerce(object, resource.schema(), "").map_err(|error| error.to_string())?;
    let words = dropped.into_iter().map(|path| format!("unknown field {path:?}"));
    Ok(words.collect())
}

/// A value of the wrong type in the metadata, which is the same for every kind and read before the rest.
pub fn mistyped_metadata(resource: &Resource, object: &Value) -> Option<String> {
    if resource.origin_is_built_in() {
        return None;
    }
    let schema = built_in::schemas().named("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")?;
    embedded::mistyped(object.get("metadata")?, schema)
}

/// A patch must leave an object what it is.
pub fn check_type(resource: &Resource, object: &Value) -> Result<(), ApiError> {
    let text = |field: &str| object[field].as_str().unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if kind.is_empty() {
        let why = format!("Object 'Kind' is missing in '{object}'");
        let error = FieldError::invalid("patch", object.to_string(), why);
        return Err(ApiError::invalid("", "", "", &[error]));
    }
    if version.is_empty() {
        let why = "Object 'apiVersion' is missing in 'object has no apiVersion field'";
        let causes = serde_json::json!({"causes": [{"message": why}]});
        let message = format!("Internal error occurred: {why}");
        return Err(ApiError::new(500, "InternalError", message).with_details(causes));
    }
    let mut errors = Vec::new();
    if kind != resource.kind {
        errors.push(FieldError::invalid("kind", kind, format!("must be {}", resource.kind)));
    }
    let wanted = resource.api_version();
    if version != wanted {
        errors.push(FieldError::invalid("apiVersion", version, format!("must be {wanted}")));
    }
    let group = version.split_once('/').map_or("", |(group, _)| group);
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(group, kind, object::name(object), &errors)),
    }
}

/// Whether stored bytes are what a reader of their version gets: nothing would be dropped or filled in, for they were
/// fitted to its schema when they were written, and that has not changed since.
pub fn is_current(resource: &Resource, record: &Record) -> bool {
    match &resource.origin {
        Origin::BuiltIn => true,
        Origin::Custom(kind) => record.revision > kind.since,
    }
}

/// Fits a stored object to the schema of its own version, which may have had other fields and defaults when the object
/// was stored.
pub fn fit_stored(call: &Call, object: &mut Value) {
    if call.resource.origin_is_built_in() || !object.is_object() {
        return;
    }
    let stored = object["apiVersion"].as_str().unwrap_or_default();
    if let Some(resource) = version(call, stored.rsplit('/').next().unwrap_or_default()) {
        default(resource, object);
    }
}

/// Fits what was written through another version to the schema of the one that is stored, so that its readers get the
/// stored bytes.
pub fn fit_storage(call: &Call, object: &mut Value) {
    let Origin::Custom(kind) = &call.resource.origin else {
        return;
    };
    if call.resource.version != kind.storage_version
        && let Some(stored) = version(call, &kind.storage_version)
    {
        default(stored, object);
    }
}

/// The request's kind in another of its versions, which need not be served.
fn version<'a>(call: &'a Call, version: &str) -> Option<&'a Arc<Resource>> {
    let own = &call.resource;
    let Origin::Custom(kind) = &own.origin else { return None };
    if own.version == version {
        return Some(own);
    }
    let served = call.catalogue.get(&own.group, version, &own.plural);
    served.or_else(|| kind.unserved.iter().find(|resource| resource.version == version))
}

/// Fills in the defaults of the schema.
pub fn default(resource: &Resource, object: &mut Value) {
    prune(resource, object);
    walk::default(object, resource.schema());
}

/// What is wrong with a new object.
pub fn create_errors(call: &Call, object: &Value) -> Vec<FieldError> {
    errors(call, object, None)
}

/// What is wrong with a changed object; what did not change is let be.
pub fn update_errors(call: &Call, new: &Value, old: &Value) -> Vec<FieldError> {
    errors(call, new, Some(old))
}

fn errors(call: &Call, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let Origin::Custom(kind) = &call.resource.origin else {
        return Vec::new();
    };
    let schema = call.resource.schema();
    let mut errors = match call.path.subresource.as_str() {
        "status" => status_errors(new, old, schema),
        _ => validate(new, old, schema),
    };
    errors.extend(scale_errors(call, kind, new));
    errors.extend(embedded::errors(new, schema, ""));
    errors.extend(repeated(new, old, schema));
    let Some(rules) = &kind.rules else {
        return errors;
    };
    let nameless = old.is_none()
        && metadata::errors(&call.resource, new)
            .iter()
            .any(|error| blocks_rules(error.kind));
    if nameless || errors.iter().any(|error| blocks_rules(error.kind)) {
        let detail = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";
        errors.push(FieldError::invalid("<nil>", Value::Null, detail));
        return errors;
    }
    let verdict = rules.validate(new, old);
    verdict.warnings.into_iter().for_each(|warning| call.warn(warning));
    errors.extend(verdict.errors);
    errors
}

/// What is wrong with a status that is written by itself: it is judged as a value of its own.
fn status_errors(new: &Value, old: Option<&Value>, schema: SchemaRef<'_>) -> Vec<FieldError> {
    let (Some(status), Some(schema)) = (new.get("status"), schema.field("status")) else {
        return Vec::new();
    };
    let mut errors = validate(status, old.and_then(|old| old.get("status")), schema);
    for error in &mut errors {
        error.field = match error.field.as_str() {
            "" | "<nil>" => "status".to_string(),
            below => format!("status.{below}"),
        };
    }
    errors
}

/// What is wrong with the numbers that `scale` shows.
fn scale_errors(call: &Call, kind: &CustomKind, object: &Value) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let mut paths = vec![&kind.scale.status_replicas];
    if call.path.subresource != "status" {
        paths.insert(0, &kind.scale.spec_replicas);
    }
    for path in paths.into_iter().filter(|path| !path.is_empty()) {
        match whole_number(object, path) {
            Err(why) => errors.push(FieldError::invalid(path, 0, why)),
            Ok(count) if count < 0 => {
                errors.push(FieldError::invalid(path, count, "should be a non-negative integer"));
            }
            Ok(count) if count > i64::from(i32::MAX) => {
                let why = format!("should be less than or equal to {}", i32::MAX);
                errors.push(FieldError::invalid(path, count, why));
            }
            Ok(_) => {}
        }
    }
    let path = &kind.scale.selector;
    if !path.is_empty()
        && let Err(why) = selector(object, path)
    {
        errors.push(FieldError::invalid(path, "", why));
    }
    errors
}

/// The number at a path of names, zero where there is none; what stands in its way is told in Go's words.
fn whole_number(object: &Value, path: &str) -> Result<i64, String> {
    match reached(object, path)? {
        None => Ok(0),
        Some(found) => found.as_i64().ok_or_else(|| wrong_type(path, found, "int64")),
    }
}

fn selector<'a>(object: &'a Value, path: &str) -> Result<&'a str, String> {
    match reached(object, path)? {
        None => Ok(""),
        Some(found) => found.as_str().ok_or_else(|| wrong_type(path, found, "string")),
    }
}

/// What there is at a path of names.
fn reached<'a>(object: &'a Value, path: &str) -> Result<Option<&'a Value>, String> {
    let mut found = object;
    for name in path.trim_start_matches('.').split('.') {
        if found.is_null() {
            return Ok(None);
        }
        let Value::Object(fields) = found else {
            return Err(wrong_type(path, found, "map[string]interface{}"));
        };
        found = match fields.get(name) {
            None => return Ok(None),
            Some(below) => below,
        };
    }
    Ok(Some(found))
}

fn wrong_type(path: &str, value: &Value, wanted: &str) -> String {
    let kind = match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    };
    let shown = go_text(value);
    format!("{path} accessor error: {shown} is of the type {kind}, expected {wanted}")
}

/// Errors after which rules would only fail in other words, or cost without bound.
fn blocks_rules(kind: FieldErrorKind) -> bool {
    match kind {
        FieldErrorKind::NotSupported
        | FieldErrorKind::Required
        | FieldErrorKind::TooLong
        | FieldErrorKind::TooMany
        | FieldErrorKind::TypeInvalid => true,
        FieldErrorKind::NotFound
        | FieldErrorKind::Duplicate
        | FieldErrorKind::DuplicateUnshown
        | FieldErrorKind::InvalidUnshown
        | FieldErrorKind::Invalid
        | FieldErrorKind::Forbidden
        | FieldErrorKind::Internal => false,
    }
}

/// Lists that were ambiguous before may stay so.
fn repeated(new: &Value, old: Option<&Value>, schema: SchemaRef<'_>) -> Vec<FieldError> {
    // The metadata is not the definition's to judge.
    let repeated = |object: &Value| {
        let mut errors = unique_items(object, schema);
        errors.retain(|error| !error.field.starts_with("metadata."));
        errors
    };
    match old {
        Some(old) if !repeated(old).is_empty() => Vec::new(),
        _ => repeated(new),
    }
}
