//! That the items of sets and maps are told apart by what identifies them.

use super::{DEEPEST, child};
use crate::field::FieldError;
use crate::schema::{SchemaRef, Shape, Topology};
use serde_json::{Map, Value};

/// The items that repeat another of their list, by index, with what they repeat.
pub fn unique_items(value: &Value, schema: SchemaRef<'_>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    walk("", value, schema, &mut errors, DEEPEST);
    errors
}

fn walk(path: &str, value: &Value, schema: SchemaRef<'_>, errors: &mut Vec<FieldError>, depth: usize) {
    if depth == 0 {
        return;
    }
    match (schema.shape(), value) {
        (Shape::Object(object), Value::Object(fields)) => {
            for (name, value) in fields {
                let Some(below) = schema.field(name) else {
                    continue;
                };
                let named = object.properties.contains_key(name.as_str());
                let path = if named {
                    child(path, name)
                } else {
                    format!("{path}[{name}]")
                };
                walk(&path, value, below, errors, depth - 1);
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            match &list.topology {
                Topology::Atomic => {}
                Topology::Set => repeated(path, items, errors),
                Topology::Map(keys) => {
                    let odd = items.iter().position(|item| !item.is_object() && !item.is_null());
                    if let Some(at) = odd {
                        let detail = "must be an object for an array of list-type map";
                        errors.push(FieldError::invalid(format!("{path}[{at}]"), items[at].clone(), detail));
                    } else {
                        let items: Vec<Value> = items
                            .iter()
                            .map(|item| keys_of(item, keys, schema.go(list.items)))
                            .collect();
                        repeated(path, &items, errors);
                    }
                }
            }
            for (index, item) in items.iter().enumerate() {
                walk(
                    &format!("{path}[{index}]"),
                    item,
                    schema.go(list.items),
                    errors,
                    depth - 1,
                );
            }
        }
        _ => {}
    }
}

/// Reports the second of equal items; further ones add nothing.
fn repeated(path: &str, items: &[Value], errors: &mut Vec<FieldError>) {
    for (index, item) in items.iter().enumerate() {
        if items[..index].iter().filter(|other| *other == item).count() == 1 {
            errors.push(FieldError::duplicate(format!("{path}[{index}]"), item.clone()));
        }
    }
}

fn keys_of(item: &Value, keys: &[Box<str>], schema: SchemaRef<'_>) -> Value {
    let mut found = Map::new();
    for key in keys {
        let value = item.get(&**key).cloned().or_else(|| schema.field(key)?.default());
        found.extend(value.map(|value| (key.to_string(), value)));
    }
    Value::Object(found)
}
