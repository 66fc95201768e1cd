//! Jobs: the selector that the server makes, and children that outlive a careless delete.

use crate::verbs::object;
use serde_json::{Value, json};
use stead_machinery::names::label_value;

/// What a client hears that deletes a job without saying what becomes of its pods.
pub const ORPHAN_WARNING: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set propagationPolicy=Orphan to suppress this warning";

/// Ties a job to its own pods by its UID, unless its author does that.
pub fn prepare_create(job: &mut Value) {
    if job["spec"]["manualSelector"] == true {
        return;
    }
    let (name, uid) = (object::name(job).to_string(), object::meta(job, "uid").to_string());
    let labels = [
        ("batch.kubernetes.io/controller-uid", uid.as_str()),
        ("batch.kubernetes.io/job-name", name.as_str()),
        ("controller-uid", uid.as_str()),
        ("job-name", name.as_str()),
    ];
    // A job that has no labels gets those of its pods, once nothing is wrong with them.
    let unlabelled = job["metadata"]["labels"]
        .as_object()
        .is_none_or(serde_json::Map::is_empty);
    if unlabelled && label_value(&name).is_empty() {
        set_labels(job, &labels);
    }
    let template = &mut job["spec"]["template"];
    if !template.is_object() {
        *template = json!({});
    }
    set_labels(template, &labels);
    let selector = object::map_mut(&mut job["spec"], "selector");
    let matched = selector.entry("matchLabels").or_insert_with(|| json!({}));
    if matched.is_object() {
        matched["batch.kubernetes.io/controller-uid"] = uid.into();
    }
}

fn set_labels(object: &mut Value, labels: &[(&str, &str)]) {
    let slot = object::metadata_mut(object)
        .entry("labels")
        .or_insert_with(|| json!({}));
    if !slot.is_object() {
        *slot = json!({});
    }
    for (name, value) in labels {
        slot[*name] = (*value).into();
    }
}
