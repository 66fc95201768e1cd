//! What is done with each custom object: pruned, filled in, checked.

use super::embedded;
use crate::catalogue::{Origin, Resource, built_in};
use crate::store::Record;
use crate::verbs::{Call, metadata};
use serde_json::Value;
use stead_machinery::field::{FieldError, FieldErrorKind};
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

/// Whether stored bytes are what a reader gets: nothing would be filled in or converted.
pub fn is_current(resource: &Resource, record: &Record) -> bool {
    match &resource.origin {
        Origin::BuiltIn => true,
        Origin::Custom(kind) if kind.several_versions => !kind.has_defaults,
        Origin::Custom(kind) => !kind.has_defaults || record.revision > kind.since,
    }
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
    let mut errors = validate(new, old, schema);
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
