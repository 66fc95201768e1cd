//! The defaults of built-in kinds, which Kubernetes sets in code and its schemas do not tell.
//!
//! A default belongs to a type, not to a kind: a probe is a probe in a Pod and in a CronJob's template. So
//! each type has one function, and one walk along the schema finds every place where the type occurs.
//! Custom resources have their defaults in their schemas and are not handled here.

mod autoscaling;
mod core;
mod pods;
mod storage;
mod webhooks;
mod workloads;

use crate::catalogue::{Origin, Resource, built_in};
use crate::protobuf;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::sync::LazyLock;
use stead_machinery::schema::{NodeId, SchemaRef, Shape};

/// An object of JSON, which every default is set in.
type Fields = Map<String, Value>;
type Defaulter = fn(&mut Fields);

/// The types with defaults; the parent's run before its children's.
const TYPES: &[&[(&str, Defaulter)]] = &[
    autoscaling::TYPES,
    core::TYPES,
    pods::TYPES,
    storage::TYPES,
    webhooks::TYPES,
    workloads::TYPES,
];

static BY_TYPE: LazyLock<HashMap<NodeId, Defaulter>> = LazyLock::new(|| {
    let schemas = built_in::schemas();
    let all = TYPES.iter().copied().flatten();
    all.filter_map(|(name, set)| {
        let schema = schemas.named(&format!("io.k8s.{name}"));
        debug_assert!(schema.is_some(), "no type is named {name}");
        Some((schema?.id(), *set))
    })
    .collect()
});

/// Brings an object of a built-in kind into the form that Kubernetes stores: what Go writes without being
/// told, then the defaults.
pub fn apply(resource: &Resource, object: &mut Value) {
    if matches!(resource.origin, Origin::Custom(_)) {
        return;
    }
    // An empty list of managers is a wish to forget them all, and no Go struct would write it.
    let forget = object["metadata"]["managedFields"]
        .as_array()
        .is_some_and(Vec::is_empty);
    protobuf::normalize(&resource.api_version(), &resource.kind, object);
    if forget {
        object["metadata"]["managedFields"] = Value::Array(Vec::new());
    }
    walk(resource.schema(), object);
}

/// The same for a kind that no resource stores: a `Scale`, a `TokenRequest`.
pub fn apply_kind(group: &str, version: &str, kind: &str, object: &mut Value) {
    let api_version = match group {
        "" => version.to_string(),
        group => format!("{group}/{version}"),
    };
    protobuf::normalize(&api_version, kind, object);
    if let Some(schema) = built_in::kind(group, version, kind) {
        walk(schema, object);
    }
}

fn walk(schema: SchemaRef<'_>, value: &mut Value) {
    match (schema.shape(), value) {
        (Shape::Object(object), Value::Object(map)) => {
            if let Some(set) = BY_TYPE.get(&schema.id()) {
                set(map);
            }
            for (name, property) in &object.properties {
                let inner = schema.go(property.node);
                match map.get_mut(name.as_ref()) {
                    // Nothing below an object's metadata has a default.
                    Some(_) if name.as_ref() == "metadata" => {}
                    Some(value) => walk(inner, value),
                    None => {
                        if let Some(default) = inner.default() {
                            map.insert(name.to_string(), default);
                        }
                    }
                }
            }
            if let Some(values) = object.additional.map(|id| schema.go(id))
                && matches!(values.shape(), Shape::Object(_) | Shape::List(_))
            {
                map.values_mut().for_each(|value| walk(values, value));
            }
        }
        (Shape::List(list), Value::Array(items)) => {
            let inner = schema.go(list.items);
            if matches!(inner.shape(), Shape::Object(_) | Shape::List(_)) {
                items.iter_mut().for_each(|item| walk(inner, item));
            }
        }
        _ => {}
    }
}

/// Sets a field that is absent. Empty strings are absent by now, since Go leaves them out.
fn set(map: &mut Fields, name: &str, value: impl Into<Value>) {
    if is_unset(map, name) {
        map.insert(name.to_string(), value.into());
    }
}

fn is_unset(map: &Fields, name: &str) -> bool {
    match map.get(name) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    }
}

fn text<'a>(map: &'a Fields, name: &str) -> &'a str {
    map.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The object at a field, made when it is absent; `None` if something else is there.
fn child<'a>(map: &'a mut Fields, name: &str) -> Option<&'a mut Fields> {
    if map.get(name).is_none_or(Value::is_null) {
        map.insert(name.to_string(), Value::Object(Fields::new()));
    }
    map.get_mut(name).and_then(Value::as_object_mut)
}

/// The objects of a list at a field.
fn each<'a>(map: &'a mut Fields, name: &str) -> impl Iterator<Item = &'a mut Fields> {
    let items = map.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

#[cfg(test)]
mod tests;
