//! DaemonSets: the count of template changes that an annotation has shown since it lost its field.

use crate::verbs::object;
use serde_json::{Value, json};

const GENERATION: &str = "deprecated.daemonset.template.generation";

/// Kubernetes writes the annotation whatever was sent, so who updates comes to own it.
pub fn annotate(object: &mut Value) {
    let annotations = object::metadata_mut(object)
        .entry("annotations")
        .or_insert_with(|| json!({}));
    if annotations.is_object() && annotations.get(GENERATION).is_none() {
        annotations[GENERATION] = "0".into();
    }
}

pub fn prepare_create(object: &mut Value) {
    set(object, 1);
}

/// The count goes up with every change of the template.
pub fn prepare_update(object: &mut Value, old: &Value) {
    let before = old["metadata"]["annotations"][GENERATION]
        .as_str()
        .and_then(|text| text.parse::<i64>().ok())
        .unwrap_or(0);
    let changed = object["spec"]["template"] != old["spec"]["template"];
    set(object, before + i64::from(changed));
}

fn set(object: &mut Value, count: i64) {
    annotate(object);
    object["metadata"]["annotations"][GENERATION] = count.to_string().into();
}
