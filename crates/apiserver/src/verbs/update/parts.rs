//! Which part of an object a path changes: the status, one list of the spec, or everything but the status.

use crate::kinds::strategy;
use crate::verbs::{Call, object};
use jiff::Timestamp;
use serde_json::Value;

/// Takes everything that the path does not change over from the old state.
pub fn keep_other(call: &Call, object: &mut Value, old: &Value) {
    match call.path.subresource.as_str() {
        "" if call.resource.has_status() && strategy::of(&call.resource).status_apart => {
            object::copy_field(old, object, "status");
            // What was asked for is what is approved.
            if call.resource.origin_is_built_in() && call.resource.plural == "certificatesigningrequests" {
                object::copy_field(old, object, "spec");
            }
        }
        "status" => {
            let mut kept = old.clone();
            object::copy_field(object, &mut kept, "status");
            if call.resource.plural == "pods" && kept["status"]["qosClass"].is_null() {
                let class = old["status"]["qosClass"].clone();
                object::map_mut(&mut kept, "status").insert("qosClass".to_string(), class);
            }
            if call.resource.plural == "certificatesigningrequests" {
                keep_decisions(&mut kept, old, call.now);
            }
            kept["metadata"] = strategy::status_metadata(&call.resource, object, old);
            *object = kept;
        }
        "approval" => {
            let conditions = object["status"]["conditions"].clone();
            object::copy_field(old, object, "spec");
            object::copy_field(old, object, "status");
            let conditions = dated(&conditions, &old["status"]["conditions"], call.now);
            object::map_mut(object, "status").insert("conditions".to_string(), conditions);
        }
        "ephemeralcontainers" => {
            let mut kept = keep(object, old);
            let spec = object::map_mut(&mut kept, "spec");
            match object["spec"].get("ephemeralContainers") {
                Some(sent) => spec.insert("ephemeralContainers".to_string(), sent.clone()),
                None => spec.remove("ephemeralContainers"),
            };
            *object = kept;
        }
        "resize" => {
            let lists = ["containers", "initContainers"];
            let count = |pod: &Value, list: &str| pod["spec"][list].as_array().map_or(0, Vec::len);
            if lists.iter().any(|list| count(object, list) != count(old, list)) {
                // Validation says what is wrong with that.
                return;
            }
            let mut kept = keep(object, old);
            for list in lists {
                if let Some(kept) = kept["spec"].get_mut(list) {
                    resize(kept, &object["spec"][list]);
                }
            }
            let spec = object::map_mut(&mut kept, "spec");
            match object["spec"].get("resources") {
                Some(sent) => spec.insert("resources".to_string(), sent.clone()),
                None => spec.remove("resources"),
            };
            *object = kept;
        }
        "finalize" => object::copy_field(old, object, "status"),
        _ => {}
    }
}

/// The old state with the metadata that comes along with a part of it.
fn keep(object: &Value, old: &Value) -> Value {
    let mut kept = old.clone();
    kept["metadata"] = strategy::part_metadata(object, old);
    kept
}

/// The conditions of a signing request with the times that their sender left out.
fn dated(sent: &Value, old: &Value, now: Timestamp) -> Value {
    let mut conditions = sent.as_array().cloned().unwrap_or_default();
    let before = old.as_array().map(Vec::as_slice).unwrap_or_default();
    for condition in conditions.iter_mut().filter(|condition| condition.is_object()) {
        if condition["lastUpdateTime"].is_null() {
            condition["lastUpdateTime"] = object::time(now).into();
        }
        if condition["lastTransitionTime"].is_null() {
            let same = |old: &&Value| old["type"] == condition["type"] && old["status"] == condition["status"];
            let since = before.iter().find(same).map(|old| old["lastTransitionTime"].clone());
            let since = since.filter(|since| !since.is_null());
            condition["lastTransitionTime"] = since.unwrap_or_else(|| object::time(now).into());
        }
    }
    Value::Array(conditions)
}

/// The status of a signing request decides nothing: approvals and denials are neither added nor taken away by it.
fn keep_decisions(request: &mut Value, old: &Value, now: Timestamp) {
    let is_decision = |condition: &Value| matches!(condition["type"].as_str(), Some("Approved" | "Denied"));
    let decisions = |request: &Value| -> Vec<Value> {
        let conditions = request["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.into_iter().filter(is_decision).collect()
    };
    let (sent, before) = (decisions(request), decisions(old));
    let conditions = dated(&request["status"]["conditions"], &old["status"]["conditions"], now);
    let Value::Array(mut conditions) = conditions else {
        return;
    };
    if sent != before {
        conditions.retain(|one| !is_decision(one));
        conditions.extend(before);
    }
    if !conditions.is_empty() {
        object::map_mut(request, "status").insert("conditions".to_string(), conditions.into());
    }
}

/// Takes over the resources of containers. Other names, or names in another order, are for validation to refuse.
fn resize(kept: &mut Value, sent: &Value) {
    let (Value::Array(kept), Value::Array(sent)) = (kept, sent) else {
        return;
    };
    if kept.iter().zip(sent).any(|(kept, sent)| kept["name"] != sent["name"]) {
        kept.clone_from(sent);
        return;
    }
    for (container, sent) in kept.iter_mut().zip(sent) {
        object::copy_field(sent, container, "resources");
        object::copy_field(sent, container, "resizePolicy");
    }
}
