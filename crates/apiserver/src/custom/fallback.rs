//! Whether the defaults of a schema are values that the schema itself allows.

use super::embedded;
use serde_json::Value;
use stead_cel::rules;
use stead_machinery::field::FieldError;
use stead_machinery::schema::{SchemaRef, Schemas};
use stead_machinery::validate::validate_default;
use stead_machinery::walk;

/// Every default that the schema would refuse. Those below `additionalProperties` are not looked at: what they
/// are defaults of is only known with an object.
pub fn errors(schema: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    node(schema, at, &mut errors);
    errors
}

fn node(schema: &Value, at: &str, errors: &mut Vec<FieldError>) {
    if let Some(default) = schema.get("default").filter(|default| !default.is_null()) {
        value(schema, default, &format!("{at}.default"), errors);
    }
    if schema["items"].is_object() {
        node(&schema["items"], &format!("{at}.items"), errors);
    }
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        node(property, &format!("{at}.properties[{name}]"), errors);
    }
}

fn value(raw: &Value, default: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let mut schemas = Schemas::default();
    let root = schemas.read(raw);
    let schema = schemas.at(root);
    let mut default = default.clone();
    let mut pruned = default.clone();
    walk::prune(&mut pruned, schema);
    if pruned != default {
        errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
    }
    if let Err(error) = embedded::coerce(&mut default, schema, at) {
        errors.push(*error);
        return;
    }
    let wrong = embedded::errors(&default, schema, at);
    if !wrong.is_empty() {
        errors.extend(wrong);
        return;
    }
    let mut found = validate_default(&default, schema);
    let is_map = raw["additionalProperties"].is_object();
    for error in &mut found {
        let below = std::mem::take(&mut error.field);
        // Kubernetes puts a dot before the key of a map that is the whole value.
        if is_map && !below.is_empty() && error.detail.starts_with(below.as_str()) {
            error.detail.insert(0, '.');
        }
        if is_map
            && below == "<nil>"
            && let Some(place) = error.detail.rfind(" in ")
        {
            error.detail.insert(place + " in ".len(), '.');
        }
        error.field = match below.as_str() {
            "" | "<nil>" => at.to_string(),
            below => format!("{at}.{below}"),
        };
    }
    if found.is_empty() {
        found = judged(schema, &default, at);
    }
    errors.extend(found);
}

/// What the rules of the schema say of the value: as one that stays, and if that is well, as one that is new.
fn judged(schema: SchemaRef<'_>, default: &Value, at: &str) -> Vec<FieldError> {
    let rules = rules::compile_part(schema);
    let errors = rules.validate_at(at, default, Some(default)).errors;
    match errors.is_empty() {
        true => rules.validate_at(at, default, None).errors,
        false => errors,
    }
}
