//! What is done with each custom object: pruned, filled in, checked.

use super::{CustomKind, rules};
use crate::catalogue::{Origin, Resource};
use crate::store::Record;
use serde_json::Value;
use stead_machinery::field::FieldError;
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
    let dropped = walk::prune(object, resource.schema());
    dropped
        .into_iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect()
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
pub fn create_errors(resource: &Resource, object: &Value) -> Vec<FieldError> {
    errors(resource, object, None)
}

/// What is wrong with a changed object; what did not change is let be.
pub fn update_errors(resource: &Resource, new: &Value, old: &Value) -> Vec<FieldError> {
    errors(resource, new, Some(old))
}

fn errors(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let Origin::Custom(kind) = &resource.origin else {
        return Vec::new();
    };
    let schema = resource.schema();
    let mut errors = validate(new, old, schema);
    errors.extend(repeated(new, old, schema));
    if errors.is_empty() {
        errors.extend(rule_errors(kind, resource, new, old));
    }
    errors
}

/// Lists that were ambiguous before may stay so.
fn repeated(new: &Value, old: Option<&Value>, schema: SchemaRef<'_>) -> Vec<FieldError> {
    match old {
        Some(old) if !unique_items(old, schema).is_empty() => Vec::new(),
        _ => unique_items(new, schema),
    }
}

fn rule_errors(kind: &CustomKind, resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    match kind.has_rules {
        true => rules::errors(resource, new, old),
        false => Vec::new(),
    }
}
