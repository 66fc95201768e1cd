//! Values of the wrong type in a built-in object, in the words of Go's JSON decoder.

use super::{DEEPEST, push_field};
use crate::schema::{SchemaRef, Shape};
use serde_json::Value;
use std::fmt;

/// A value that its field cannot hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mistyped {
    /// Path without indexes: `spec.containers.image`.
    pub path: String,
    /// The short name of the struct that has the field, where the schema knows it.
    pub within: String,
    /// What was sent: `string`, `number`, `bool`, `array`, `object`.
    pub got: &'static str,
    /// The Go type of the field: `int32`, `string`, `[]v1.Container`.
    pub want: String,
}

impl fmt::Display for Mistyped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mistyped {
            path,
            within,
            got,
            want,
        } = self;
        write!(
            f,
            "json: cannot unmarshal {got} into Go struct field {within}.{path} of type {want}"
        )
    }
}

/// The first value that does not fit its type; a decoder stops there.
pub fn mistyped(value: &Value, schema: SchemaRef<'_>) -> Option<Mistyped> {
    find(value, schema, None, &mut String::new(), DEEPEST)
}

fn find(
    value: &Value,
    schema: SchemaRef<'_>,
    within: Option<SchemaRef<'_>>,
    path: &mut String,
    depth: usize,
) -> Option<Mistyped> {
    if depth == 0 {
        return None;
    }
    let fits = match schema.shape() {
        Shape::Any | Shape::Free | Shape::Quantity => true,
        Shape::Object(_) => value.is_object(),
        Shape::List(_) => value.is_array(),
        Shape::String(_) => value.is_string(),
        Shape::Integer => value.is_i64() || value.is_u64(),
        Shape::Number => value.is_number(),
        Shape::Boolean => value.is_boolean(),
        Shape::IntOrString => value.is_string() || value.is_i64(),
    };
    if !fits && !value.is_null() {
        let (got, want) = (kind_of(value), go_type(schema));
        return Some(Mistyped {
            path: path.clone(),
            within: within.map(type_name).unwrap_or_default(),
            got,
            want,
        });
    }
    match (schema.shape(), value) {
        (Shape::Object(object), Value::Object(fields)) => {
            let named = if object.properties.is_empty() {
                within
            } else {
                Some(schema)
            };
            fields.iter().find_map(|(name, value)| {
                let below = schema.field(name)?;
                let length = path.len();
                // The decoder knows where it is by fields of structs only; keys of maps are not on its path.
                if object.properties.contains_key(name.as_str()) {
                    push_field(path, name);
                }
                let found = find(value, below, named, path, depth - 1);
                path.truncate(length);
                found
            })
        }
        (Shape::List(list), Value::Array(items)) => items
            .iter()
            .find_map(|item| find(item, schema.go(list.items), within, path, depth - 1)),
        _ => None,
    }
}

/// What Go's decoder calls this kind of value.
pub(crate) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// The last part of a type's published name: `DeploymentSpec`.
fn type_name(schema: SchemaRef<'_>) -> String {
    let full = published_name(schema);
    full.and_then(|full| full.rsplit('.').next())
        .unwrap_or_default()
        .to_string()
}

/// The name under which the type at this place is published.
pub fn published_name(schema: SchemaRef<'_>) -> Option<&str> {
    schema.arena().name_of(schema.id()).or_else(|| original(schema))
}

/// The name of the type that a field has with another way to merge it: the same fields.
fn original(schema: SchemaRef<'_>) -> Option<&str> {
    let Shape::Object(own) = schema.shape() else {
        return None;
    };
    let same =
        |other: SchemaRef<'_>| matches!(other.shape(), Shape::Object(other) if other.properties == own.properties);
    let mut named = schema.arena().names();
    named
        .find(|(_, other)| !own.properties.is_empty() && same(*other))
        .map(|(name, _)| name)
}

fn go_type(schema: SchemaRef<'_>) -> String {
    let format = schema
        .node()
        .constraints
        .as_deref()
        .and_then(|constraints| constraints.format.as_deref());
    match schema.shape() {
        Shape::Integer => format.unwrap_or("int64").to_string(),
        Shape::Number => "float64".to_string(),
        Shape::Boolean => "bool".to_string(),
        Shape::String(_) => "string".to_string(),
        Shape::IntOrString => "intstr.IntOrString".to_string(),
        Shape::Quantity => "resource.Quantity".to_string(),
        Shape::List(list) => format!("[]{}", go_type(schema.go(list.items))),
        Shape::Object(object) => match object.additional {
            Some(values) => format!("map[string]{}", go_type(schema.go(values))),
            None => {
                let full = schema.arena().name_of(schema.id()).unwrap_or_default();
                let mut parts = full.rsplit('.');
                let (name, package) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
                format!("{package}.{name}")
            }
        },
        Shape::Any | Shape::Free => "interface {}".to_string(),
    }
}
