//! Whether the defaults of a schema are values that the schema itself allows.

use serde_json::Value;
use stead_cel::rules;
use stead_machinery::field::{FieldError, FieldErrorKind};
use stead_machinery::schema::{SchemaRef, Schemas};
use stead_machinery::validate::{unique_items, validate};
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

fn value(schema: &Value, default: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let mut schemas = Schemas::default();
    let root = schemas.read(schema);
    let schema = schemas.at(root);
    let mut pruned = default.clone();
    walk::prune(&mut pruned, schema);
    if pruned != *default {
        errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
    }
    let mut found = validate(default, None, schema);
    found.extend(unique_items(default, schema));
    if found.is_empty() {
        found = judged(schema, default);
    }
    for mut error in found {
        error.field = match error.field.as_str() {
            "" => at.to_string(),
            below if below.starts_with('[') => format!("{at}{below}"),
            below => format!("{at}.{below}"),
        };
        errors.push(error);
    }
}

/// What the rules of the schema say of the value, as a value that stays and as one that is new.
fn judged(schema: SchemaRef<'_>, default: &Value) -> Vec<FieldError> {
    let (rules, broken) = rules::compile_part(schema);
    let mut errors = rules.validate(default, Some(default)).errors;
    errors.extend(broken.into_iter().filter_map(|error| uncompiled(error, default)));
    match errors.is_empty() {
        true => rules.validate(default, None).errors,
        false => errors,
    }
}

/// A rule that does not compile is told where the value is that it would judge.
fn uncompiled(error: FieldError, default: &Value) -> Option<FieldError> {
    let (place, _) = error.field.rsplit_once(".x-kubernetes-validations[")?;
    let detail = error
        .detail
        .split_once("}: ")
        .map_or(error.detail.as_str(), |(_, why)| why);
    let mut value = default;
    let mut path = String::new();
    for step in place.split(".properties[").skip(1) {
        let name = step.strip_suffix(']')?;
        value = value.get(name)?;
        if !path.is_empty() {
            path.push('.');
        }
        path.push_str(name);
    }
    let kind = match value {
        Value::Null => return None,
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    let detail = format!("rule compile error: {detail}");
    Some(FieldError::new(path, FieldErrorKind::Invalid, kind.into(), detail))
}
