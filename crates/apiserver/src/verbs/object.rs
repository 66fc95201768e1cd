//! The metadata of an object, read and written on its JSON.
//!
//! Every kind has these fields in the same place, so the generic path needs no types: it needs a few
//! accessors that cannot fail on nonsense.

use serde_json::{Map, Value, json};

/// Reads a string of the metadata; empty if absent.
pub fn meta<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}

pub fn name(object: &Value) -> &str {
    meta(object, "name")
}

pub fn namespace(object: &Value) -> &str {
    meta(object, "namespace")
}

/// The metadata as a map; made if it is absent or no map.
pub fn metadata_mut(object: &mut Value) -> &mut Map<String, Value> {
    map_mut(object, "metadata")
}

/// A field as a map; made if it is absent or no map.
pub fn map_mut<'a>(object: &'a mut Value, field: &str) -> &'a mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let slot = &mut object[field];
    if !slot.is_object() {
        *slot = json!({});
    }
    match slot {
        Value::Object(map) => map,
        _ => unreachable!("the slot was made a map above"),
    }
}

/// Sets a string of the metadata, or removes it if there is nothing to set.
pub fn set_meta(object: &mut Value, field: &str, value: &str) {
    let metadata = metadata_mut(object);
    if value.is_empty() {
        metadata.remove(field);
    } else {
        metadata.insert(field.to_string(), value.into());
    }
}

/// Takes a field of the metadata over from another object, its absence included.
pub fn copy_meta(from: &Value, to: &mut Value, field: &str) {
    match from["metadata"].get(field) {
        Some(value) => {
            metadata_mut(to).insert(field.to_string(), value.clone());
        }
        None => {
            metadata_mut(to).remove(field);
        }
    }
}

/// Takes a top-level field over from another object, its absence included.
pub fn copy_field(from: &Value, to: &mut Value, field: &str) {
    let Value::Object(map) = to else { return };
    match from.get(field) {
        Some(value) => {
            map.insert(field.to_string(), value.clone());
        }
        None => {
            map.remove(field);
        }
    }
}

pub fn finalizers(object: &Value) -> Vec<String> {
    strings(&object["metadata"]["finalizers"])
}

/// The strings of a list; what is none is left out.
pub fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().map(Vec::as_slice).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| item.as_str().map(str::to_string))
        .collect()
}

pub fn set_finalizers(object: &mut Value, finalizers: &[String]) {
    let metadata = metadata_mut(object);
    if finalizers.is_empty() {
        metadata.remove("finalizers");
    } else {
        metadata.insert("finalizers".to_string(), json!(finalizers));
    }
}

pub fn is_deleting(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

pub fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or(0)
}

pub fn set_generation(object: &mut Value, generation: i64) {
    metadata_mut(object).insert("generation".to_string(), generation.into());
}

/// A time as `metav1.Time` writes it: UTC, whole seconds.
pub fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as `metav1.MicroTime` writes it.
pub fn micro_time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Looks a dotted path up.
pub fn at<'a>(object: &'a Value, path: &str) -> &'a Value {
    path.split('.').fold(object, |value, part| &value[part])
}
