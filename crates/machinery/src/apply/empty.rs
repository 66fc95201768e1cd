//! The object before anybody set anything in it.

use super::{Family, Kind};
use crate::schema::{SchemaRef, Shape};
use serde_json::{Map, Value};

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

/// What an apply that creates starts from: the type of the object and nothing else.
pub(super) fn identity(config: &Value) -> Value {
    let type_of = ["apiVersion", "kind"]
        .into_iter()
        .filter_map(|name| Some((name.to_string(), config.get(name)?.clone())));
    Value::Object(type_of.collect())
}
