//! Walks of an object along its schema that change it or say what does not fit.
//!
//! Built-in and custom kinds take the same walks: pruning drops what the schema does not name and says
//! what it was (a client may want that to be an error), defaulting fills in what a custom schema says,
//! tidying brings a built-in object into the form in which Kubernetes' own types would write it.

use crate::quantity::Quantity;
use crate::schema::{Object, SchemaRef, Shape};
use serde_json::{Map, Value};

mod mistyped;

pub(crate) use mistyped::kind_of;
pub use mistyped::{Mistyped, mistyped, published_name};

/// How deep values are walked. JSON text nests no deeper than the parser allows (128), so nothing that
/// came over the wire is cut off.
const DEEPEST: usize = 256;

/// The fields that every embedded resource has, whatever its schema says.
const OF_EVERY_RESOURCE: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops the fields that the schema does not name and gives their paths: `spec.containers[0].foo`.
pub fn prune(value: &mut Value, schema: SchemaRef<'_>) -> Vec<String> {
    let mut dropped = Vec::new();
    prune_level(value, schema, &mut String::new(), &mut dropped, DEEPEST);
    dropped
}

fn prune_level(value: &mut Value, schema: SchemaRef<'_>, path: &mut String, dropped: &mut Vec<String>, depth: usize) {
    if depth == 0 {
        return;
    }
    match (schema.shape(), value) {
        (Shape::Object(object), Value::Object(fields)) => {
            prune_fields(fields, object, path, dropped);
            for (name, value) in fields {
                if object.embedded_resource && OF_EVERY_RESOURCE.contains(&name.as_str()) {
                    continue;
                }
                let Some(below) = schema.field(name) else {
                    continue;
                };
                let length = path.len();
                push_field(path, name);
                prune_level(value, below, path, dropped, depth - 1);
                path.truncate(length);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for (index, item) in items.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                prune_level(item, schema.go(list.items), path, dropped, depth - 1);
                path.truncate(length);
            }
        }
        (Shape::Any | Shape::Free, _) => {}
        (Shape::Object(object), _) if object.preserve_unknown => {}
        (_, value) => prune_foreign(value, path, dropped, depth),
    }
}

/// An object where none belongs has no field that the schema knows, and neither have those in a list there.
fn prune_foreign(value: &mut Value, path: &mut String, dropped: &mut Vec<String>, depth: usize) {
    match value {
        Value::Object(fields) => prune_fields(fields, &Object::default(), path, dropped),
        Value::Array(items) if depth > 0 => {
            for (index, item) in items.iter_mut().enumerate() {
                let length = path.len();
                path.push_str(&format!("[{index}]"));
                prune_foreign(item, path, dropped, depth - 1);
                path.truncate(length);
            }
        }
        _ => {}
    }
}

fn prune_fields(fields: &mut Map<String, Value>, object: &Object, path: &mut String, dropped: &mut Vec<String>) {
    if object.preserve_unknown || object.additional.is_some() {
        return;
    }
    fields.retain(|name, _| {
        let known = object.properties.contains_key(name.as_str())
            || (object.embedded_resource && OF_EVERY_RESOURCE.contains(&name.as_str()));
        if !known {
            let length = path.len();
            push_field(path, name);
            dropped.push(path.clone());
            path.truncate(length);
        }
        known
    });
}

fn push_field(path: &mut String, name: &str) {
    if !path.is_empty() {
        path.push('.');
    }
    path.push_str(name);
}

/// Fills in the defaults of a custom schema; an explicit null that the schema does not allow counts as
/// absent.
pub fn default(value: &mut Value, schema: SchemaRef<'_>) {
    default_level(value, schema, DEEPEST);
}

/// Drops every null that is no value and has no default either: it says nothing. Items of lists stay.
pub fn drop_nulls(value: &mut Value, schema: SchemaRef<'_>) {
    drop_nulls_level(value, schema, DEEPEST);
}

fn drop_nulls_level(value: &mut Value, schema: SchemaRef<'_>, depth: usize) {
    if depth == 0 {
        return;
    }
    match (schema.shape(), value) {
        (Shape::Object(_), Value::Object(fields)) => {
            fields.retain(|name, value| {
                let kept = |below: SchemaRef<'_>| below.node().nullable || below.node().default.is_some();
                !value.is_null() || schema.field(name).is_none_or(kept)
            });
            for (name, value) in fields {
                if let Some(below) = schema.field(name) {
                    drop_nulls_level(value, below, depth - 1);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            for item in items {
                drop_nulls_level(item, schema.go(list.items), depth - 1);
            }
        }
        _ => {}
    }
}

fn default_level(value: &mut Value, schema: SchemaRef<'_>, depth: usize) {
    if depth == 0 {
        return;
    }
    match (schema.shape(), value) {
        (Shape::Object(object), Value::Object(fields)) => {
            for (name, property) in &object.properties {
                let below = schema.go(property.node);
                if below.node().default.is_none() {
                    continue;
                }
                let absent = match fields.get(&**name) {
                    None => true,
                    Some(value) => value.is_null() && !below.node().nullable,
                };
                if let (true, Some(default)) = (absent, below.default()) {
                    fields.insert(name.to_string(), default);
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(below) = schema.field(name) {
                    if value.is_null()
                        && !below.node().nullable
                        && let Some(default) = below.default()
                    {
                        *value = default;
                    }
                    default_level(value, below, depth - 1);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            let below = schema.go(list.items);
            for item in items {
                if item.is_null()
                    && !below.node().nullable
                    && let Some(default) = below.default()
                {
                    *item = default;
                }
                default_level(item, below, depth - 1);
            }
        }
        _ => {}
    }
}

/// Brings a built-in object into the form in which Kubernetes' types write it: no nulls, no empty
/// optional lists and maps, quantities in canonical form, and structs held by value there even if empty.
pub fn tidy(value: &mut Value, schema: SchemaRef<'_>) {
    tidy_level(value, schema, DEEPEST);
}

fn tidy_level(value: &mut Value, schema: SchemaRef<'_>, depth: usize) {
    if depth == 0 {
        return;
    }
    match (schema.shape(), &mut *value) {
        (Shape::Object(object), Value::Object(fields)) => {
            if let Some(values) = object.additional
                && matches!(schema.go(values).shape(), Shape::String(_))
            {
                // A text that is sent as null is an empty one.
                for value in fields.values_mut().filter(|value| value.is_null()) {
                    *value = Value::String(String::new());
                }
            }
            fields.retain(|_, value| !value.is_null());
            for (name, property) in object.properties.iter().filter(|(_, property)| property.by_value) {
                if !fields.contains_key(&**name) && has_contents(schema.go(property.node)) {
                    fields.insert(name.to_string(), Value::Object(Map::new()));
                }
            }
            for (name, value) in fields.iter_mut() {
                if let Some(below) = schema.field(name) {
                    tidy_level(value, below, depth - 1);
                }
            }
            fields.retain(|name, value| {
                let Some(property) = object.properties.get(name.as_str()) else {
                    return true;
                };
                property.required || property.by_value || !is_empty_container(value, schema.go(property.node))
            });
        }
        (Shape::List(list), Value::Array(items)) => {
            items
                .iter_mut()
                .for_each(|item| tidy_level(item, schema.go(list.items), depth - 1));
        }
        (Shape::Quantity, Value::String(text)) => {
            if let Ok(quantity) = text.parse::<Quantity>() {
                *text = quantity.to_string();
            }
        }
        (Shape::Quantity, Value::Number(number)) => {
            if let Ok(quantity) = number.to_string().parse::<Quantity>() {
                *value = quantity.to_string().into();
            }
        }
        _ => {}
    }
}

/// Whether a type is a struct; a map or an opaque value that is empty is not written.
fn has_contents(schema: SchemaRef<'_>) -> bool {
    matches!(schema.shape(), Shape::Object(object) if !object.properties.is_empty())
}

/// An empty list or map, which `omitempty` leaves out. A pointer to an empty struct is written.
fn is_empty_container(value: &Value, schema: SchemaRef<'_>) -> bool {
    match (schema.shape(), value) {
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Object(object), Value::Object(fields)) => fields.is_empty() && object.additional.is_some(),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
