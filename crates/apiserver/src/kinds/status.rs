//! The status of a new object: empty, whatever the client sent, with the numbers that a kind always shows.

use super::id;
use crate::catalogue::{Origin, Resource};
use crate::verbs::object;
use jiff::Timestamp;
use serde_json::{Value, json};

pub fn initial(resource: &Resource, object: &mut Value, now: Timestamp) {
    if let Origin::Custom(_) = resource.origin {
        if resource.has_status()
            && let Value::Object(map) = object
        {
            map.remove("status");
        }
        return;
    }
    let status = match id(resource) {
        ("apps", "replicasets") | ("", "replicationcontrollers") => json!({"replicas": 0}),
        ("apps", "statefulsets") => json!({"replicas": 0, "availableReplicas": 0}),
        ("apps", "daemonsets") => json!({
            "currentNumberScheduled": 0, "desiredNumberScheduled": 0, "numberMisscheduled": 0, "numberReady": 0,
        }),
        ("policy", "poddisruptionbudgets") => json!({
            "currentHealthy": 0, "desiredHealthy": 0, "disruptionsAllowed": 0, "expectedPods": 0,
        }),
        ("autoscaling", "horizontalpodautoscalers") => match resource.version.as_str() {
            "v1" => json!({"currentReplicas": 0, "desiredReplicas": 0}),
            _ => json!({"desiredReplicas": 0}),
        },
        ("", "services") | ("networking.k8s.io", "ingresses") => json!({"loadBalancer": {}}),
        ("", "persistentvolumes") => json!({"phase": "Pending", "lastPhaseTransitionTime": object::time(now)}),
        ("", "persistentvolumeclaims") => json!({"phase": "Pending"}),
        ("", "namespaces") => json!({"phase": "Active"}),
        ("", "pods") => json!({"phase": "Pending"}),
        ("apps", "deployments") | ("batch", "jobs" | "cronjobs") | ("", "resourcequotas") => json!({}),
        ("flowcontrol.apiserver.k8s.io", _) => json!({}),
        ("certificates.k8s.io", "certificatesigningrequests") => json!({}),
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => json!({}),
        ("resource.k8s.io", "resourceclaims") => json!({}),
        ("storage.k8s.io", "volumeattachments") => json!({"attached": false}),
        // Nodes and the rest keep what they are created with.
        _ => return,
    };
    object["status"] = status;
}

/// Notes when a volume came to its phase, unless its writer does.
pub fn note_phase(volume: &mut Value, old: &Value, now: jiff::Timestamp) {
    let (new, was) = (&volume["status"], &old["status"]);
    let told = &new["lastPhaseTransitionTime"];
    let time = match new["phase"] == was["phase"] {
        true if told.is_null() => was["lastPhaseTransitionTime"].clone(),
        false if told.is_null() || *told == was["lastPhaseTransitionTime"] => object::time(now).into(),
        _ => return,
    };
    if !time.is_null() {
        object::map_mut(volume, "status").insert("lastPhaseTransitionTime".to_string(), time);
    }
}
