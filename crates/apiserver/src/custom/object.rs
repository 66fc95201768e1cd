//! What is done with each custom object: pruned, filled in, checked.

use crate::catalogue::{Origin, Resource};
use crate::store::Record;
use crate::verbs::Call;
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
    errors.extend(repeated(new, old, schema));
    // A value of the wrong type would only make the rules fail in other words.
    if let (Some(rules), true) = (&kind.rules, errors.is_empty()) {
        let verdict = rules.validate(new, old);
        verdict.warnings.into_iter().for_each(|warning| call.warn(warning));
        errors.extend(verdict.errors);
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
