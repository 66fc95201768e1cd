//! Pods: how they begin, and how they end.

use crate::verbs::object::time;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Seconds that a pod gets to end when it does not say.
const GRACE_SECONDS: i64 = 30;

/// A pod that wants to be gone before it has ended gets the shortest time that there is.
pub fn default(object: &mut Value) {
    let seconds = object["spec"]["terminationGracePeriodSeconds"].as_i64();
    if seconds.is_some_and(|seconds| seconds < 0) {
        object["spec"]["terminationGracePeriodSeconds"] = 1.into();
    }
}

pub fn prepare_create(object: &mut Value, now: Timestamp) {
    object["status"] = json!({"phase": "Pending", "qosClass": qos_class(&object["spec"])});
    if object["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        object["status"]["conditions"] = json!([{
            "type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null, "lastTransitionTime": time(now),
        }]);
    }
}

/// An update that leaves out the priority that admission gave keeps it.
pub fn keep_priority(pod: &mut Value, old: &Value) {
    for field in ["priority", "preemptionPolicy"] {
        if let (Some(Value::Object(spec)), Some(kept)) = (pod.get_mut("spec"), old["spec"].get(field)) {
            spec.entry(field).or_insert_with(|| kept.clone());
        }
    }
}

/// How long a pod may take to end. One that never ran, or has ended, needs no time.
pub fn grace_period(object: &Value, wanted: Option<i64>) -> i64 {
    let own = || {
        object["spec"]["terminationGracePeriodSeconds"]
            .as_i64()
            .unwrap_or(GRACE_SECONDS)
    };
    let mut period = wanted.unwrap_or_else(own);
    if object["spec"]["nodeName"].as_str().unwrap_or_default().is_empty() {
        period = 0;
    }
    if matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded")) {
        period = 0;
    }
    if period < 0 { 1 } else { period }
}

/// Sets a condition, keeping the time of its last change if its status is what it was.
pub fn set_condition(pod: &mut Value, mut condition: Value) {
    let status = crate::verbs::object::map_mut(pod, "status");
    let slot = status.entry("conditions").or_insert_with(|| json!([]));
    let Value::Array(conditions) = slot else {
        *slot = json!([condition]);
        return;
    };
    match conditions.iter_mut().find(|known| known["type"] == condition["type"]) {
        Some(known) => {
            if known["status"] == condition["status"] {
                condition["lastTransitionTime"] = known["lastTransitionTime"].clone();
            }
            *known = condition;
        }
        None => conditions.push(condition),
    }
}

/// `Guaranteed` if every container's requests equal its limits for both resources, `BestEffort` if none says
/// anything, `Burstable` otherwise.
pub fn qos_class(spec: &Value) -> &'static str {
    let mut all = Vec::new();
    for list in ["containers", "initContainers"] {
        let containers = spec[list].as_array().into_iter().flatten();
        all.extend(containers.map(|container| &container["resources"]));
    }
    // What the containers have together counts instead of what each of them has.
    let together = &spec["resources"];
    let said = |list: &str| together[list].as_object().is_some_and(|map| !map.is_empty());
    if said("requests") || said("limits") {
        all = vec![together];
    }
    let mut any = false;
    let mut guaranteed = true;
    for resources in all {
        for resource in ["cpu", "memory"] {
            let limit = &resources["limits"][resource];
            let request = &resources["requests"][resource];
            any |= !limit.is_null() || !request.is_null();
            guaranteed &= !limit.is_null() && (request.is_null() || request == limit);
        }
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}
