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

fn value(raw: &Value, default: &Value, at: &str, errors: &mut Vec<FieldError>) {
    let mut schemas = Schemas::default();
    let root = schemas.read(raw);
    let schema = schemas.at(root);
    let mut pruned = default.clone();
    walk::prune(&mut pruned, schema);
    if pruned != *default {
        errors.push(FieldError::invalid(at, default.clone(), "must not have unknown fields"));
    }
    let mut found = validate(default, None, schema);
    found.extend(unique_items(default, schema));
    let is_map = raw["additionalProperties"].is_object();
    for error in &mut found {
        let below = std::mem::take(&mut error.field);
        // Kubernetes puts a dot before the key of a map that is the whole value.
        if is_map && !below.is_empty() && error.detail.starts_with(below.as_str()) {
            error.detail.insert(0, '.');
        }
        error.field = match below.as_str() {
            "" | "<nil>" => at.to_string(),
            below => format!("{at}.{below}"),
        };
    }
    if found.is_empty() {
        found = judged(schema, default);
        for error in &mut found {
            let dot = if error.field.is_empty() || error.field.starts_with('[') {
                ""
            } else {
                "."
            };
            error.field = format!("{at}{dot}{}", error.field);
        }
    }
    errors.extend(found);
}

/// What the rules of the schema say of the value, as a value that stays and as one that is new.
fn judged(schema: SchemaRef<'_>, default: &Value) -> Vec<FieldError> {
    let (rules, broken) = rules::compile_part(schema);
    let mut errors = rules.validate(default, None).errors;
    for error in rules.validate(default, Some(default)).errors {
        if !errors.contains(&error) {
            errors.push(error);
        }
    }
    errors.extend(broken.iter().flat_map(|error| uncompiled(error, default)));
    errors
}

/// A rule that does not compile is told wherever there is a value that it would judge.
fn uncompiled(error: &FieldError, default: &Value) -> Vec<FieldError> {
    let Some((place, _)) = error.field.rsplit_once(".x-kubernetes-validations[") else {
        return Vec::new();
    };
    let why = error
        .detail
        .split_once("}: ")
        .map_or(error.detail.as_str(), |(_, why)| why);
    let mut found = vec![(String::new(), default)];
    let mut rest = place;
    while !rest.is_empty() {
        let below: Vec<(String, &Value)>;
        if let Some(after) = rest.strip_prefix(".properties[") {
            let Some((name, after)) = after.split_once(']') else {
                return Vec::new();
            };
            below = found
                .iter()
                .filter_map(|(path, value)| {
                    let dot = if path.is_empty() { "" } else { "." };
                    Some((format!("{path}{dot}{name}"), value.get(name)?))
                })
                .collect();
            rest = after;
        } else if let Some(after) = rest.strip_prefix(".items") {
            let items = found.iter().flat_map(|(path, value)| {
                let items = value.as_array().into_iter().flatten().enumerate();
                items.map(move |(index, item)| (format!("{path}[{index}]"), item))
            });
            below = items.collect();
            rest = after;
        } else if let Some(after) = rest.strip_prefix(".additionalProperties") {
            let entries = found.iter().flat_map(|(path, value)| {
                let entries = value.as_object().into_iter().flatten();
                entries.map(move |(key, entry)| (format!("{path}[{key}]"), entry))
            });
            below = entries.collect();
            rest = after;
        } else {
            return Vec::new();
        }
        found = below;
    }
    let errors = found.into_iter().filter_map(|(path, value)| {
        let kind = json_kind(value)?;
        let detail = format!("rule compile error: {why}");
        Some(FieldError::new(path, FieldErrorKind::Invalid, kind.into(), detail))
    });
    errors.collect()
}

/// The type of a value as schemas name it; nothing for null, which no rule judges.
fn json_kind(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    })
}
