//! The object before anybody set anything in it.

use super::{Family, Kind};
use crate::schema::{SchemaRef, Shape};
use serde_json::{Map, Value};
use std::borrow::Cow;

/// How deep structs held by value nest; API types that refer to themselves do so by pointer.
const DEEPEST: usize = 16;

/// An object of this kind that nobody has written to: what a create is compared with.
pub(super) fn object(kind: &Kind<'_>) -> Value {
    match kind.family {
        Family::Custom => Value::Object(Map::new()),
        Family::BuiltIn => fields(kind.schema, DEEPEST),
    }
}

/// Structs held by value are there when they are empty, and required fields are there as null.
fn fields(schema: SchemaRef<'_>, depth: usize) -> Value {
    let mut object = Map::new();
    if let (Shape::Object(shape), true) = (schema.shape(), depth > 0) {
        for (name, property) in &shape.properties {
            let below = schema.go(property.node);
            if property.by_value {
                object.insert(name.to_string(), fields(below, depth - 1));
            } else if property.required && matches!(below.shape(), Shape::Object(_) | Shape::List(_)) {
                object.insert(name.to_string(), Value::Null);
            }
        }
    }
    Value::Object(object)
}

/// The times that Go's structs hold by value: they are written as null where they are not set.
const TIMES: [&str; 7] = [
    "lastTransitionTime",
    "lastUpdateTime",
    "lastProbeTime",
    "lastHeartbeatTime",
    "firstTimestamp",
    "lastTimestamp",
    "eventTime",
];

/// An object with the nulls that Go writes: whoever takes such a value away has set it to null.
pub(super) fn with_nulls<'v>(value: &'v Value, schema: SchemaRef<'_>) -> Cow<'v, Value> {
    let mut value = Cow::Borrowed(value);
    if lacks_nulls(&value, schema, DEEPEST) {
        add_nulls(value.to_mut(), schema, DEEPEST);
    }
    value
}

/// The fields of a struct that are null where they are absent.
fn null_fields<'s>(schema: SchemaRef<'s>) -> impl Iterator<Item = &'s str> {
    let properties = match schema.shape() {
        Shape::Object(shape) => Some(&shape.properties),
        _ => None,
    };
    properties.into_iter().flatten().filter_map(move |(name, property)| {
        let listed = property.required && matches!(schema.go(property.node).shape(), Shape::List(_));
        (listed || TIMES.contains(&&**name)).then_some(&**name)
    })
}

fn lacks_nulls(value: &Value, schema: SchemaRef<'_>, depth: usize) -> bool {
    match (schema.shape(), value) {
        _ if depth == 0 => false,
        (Shape::Object(_), Value::Object(fields)) => {
            null_fields(schema).any(|name| !fields.contains_key(name))
                || fields.iter().any(|(name, value)| {
                    let below = schema.field(name);
                    below.is_some_and(|below| lacks_nulls(value, below, depth - 1))
                })
        }
        (Shape::List(list), Value::Array(items)) => items
            .iter()
            .any(|item| lacks_nulls(item, schema.go(list.items), depth - 1)),
        _ => false,
    }
}

fn add_nulls(value: &mut Value, schema: SchemaRef<'_>, depth: usize) {
    match (schema.shape(), value) {
        _ if depth == 0 => {}
        (Shape::Object(_), Value::Object(fields)) => {
            for name in null_fields(schema) {
                fields.entry(name).or_insert(Value::Null);
            }
            for (name, value) in fields {
                if let Some(below) = schema.field(name) {
                    add_nulls(value, below, depth - 1);
                }
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            let below = schema.go(list.items);
            items.iter_mut().for_each(|item| add_nulls(item, below, depth - 1));
        }
        _ => {}
    }
}

/// What an apply that creates starts from: the type of the object and nothing else.
pub(super) fn identity(config: &Value) -> Value {
    let type_of = ["apiVersion", "kind"]
        .into_iter()
        .filter_map(|name| Some((name.to_string(), config.get(name)?.clone())));
    Value::Object(type_of.collect())
}
