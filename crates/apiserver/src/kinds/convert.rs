//! Between the version that is stored and the version that a request speaks.
//!
//! Only GA versions are served, so two built-in kinds have more than one: events, which are one kind in two
//! groups, and horizontal pod autoscalers.

use crate::catalogue::{Origin, Resource};
use crate::verbs::object;
use serde_json::{Value, json};

/// Fields of an event in `events.k8s.io/v1` and in `v1`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
];

/// Where a v1 autoscaler keeps the metrics that it has no field for.
const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// Turns a stored object into one of this resource.
pub fn to(resource: &Resource, object: &mut Value) {
    if !object.is_object() {
        return;
    }
    if let Origin::Custom(kind) = &resource.origin
        && (kind.converter.is_some() || object["apiVersion"] != resource.api_version())
    {
        // Another version, or who converts from it, knows other fields. Defaults are those of the version that it comes
        // from: nothing is filled in by being read.
        crate::custom::prune(resource, object);
    }
    match super::id(resource) {
        ("events.k8s.io", "events") => rename(object, |(new, core)| (core, new)),
        ("autoscaling", "horizontalpodautoscalers")
            if resource.version == "v1" && object["apiVersion"] != "autoscaling/v1" =>
        {
            autoscaler_to_v1(object);
        }
        _ => {}
    }
    object["apiVersion"] = resource.api_version().into();
    object["kind"] = resource.kind.as_str().into();
}

/// Turns an object of this resource into the form that is stored.
pub fn to_storage(resource: &Resource, object: &mut Value) {
    if let (Origin::Custom(kind), true) = (&resource.origin, object.is_object()) {
        object["apiVersion"] = format!("{}/{}", resource.group, kind.storage_version).into();
        return;
    }
    match super::id(resource) {
        ("events.k8s.io", "events") => {
            rename(object, |(new, core)| (new, core));
            object["apiVersion"] = "v1".into();
        }
        ("autoscaling", "horizontalpodautoscalers") if resource.version == "v1" => {
            autoscaler_to_v2(object);
            object["apiVersion"] = "autoscaling/v2".into();
        }
        _ => {}
    }
}

/// Renames the fields of an event, in the direction that `pick` says.
fn rename(object: &mut Value, pick: impl Fn((&'static str, &'static str)) -> (&'static str, &'static str)) {
    let Value::Object(map) = object else { return };
    for pair in EVENT_FIELDS {
        let (from, to) = pick(pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.to_string(), value);
        }
    }
}

fn is_cpu_utilization(metric: &Value) -> bool {
    metric["type"] == "Resource"
        && metric["resource"]["name"] == "cpu"
        && metric["resource"]["target"]["averageUtilization"].is_number()
}

fn autoscaler_to_v1(object: &mut Value) {
    let spec = object::map_mut(object, "spec");
    let metrics = spec.remove("metrics");
    let behavior = spec.remove("behavior");
    let mut others = Vec::new();
    for metric in metrics.iter().filter_map(Value::as_array).flatten() {
        match is_cpu_utilization(metric) && !spec.contains_key("targetCPUUtilizationPercentage") {
            true => {
                let target = metric["resource"]["target"]["averageUtilization"].clone();
                spec.insert("targetCPUUtilizationPercentage".to_string(), target);
            }
            false => others.push(metric.clone()),
        }
    }
    if !others.is_empty() {
        annotate(object, METRICS, &Value::Array(others));
    }
    if let Some(behavior) = behavior {
        annotate(object, BEHAVIOR, &behavior);
    }
    let status = object::map_mut(object, "status");
    let current = status.remove("currentMetrics").unwrap_or_default();
    status.remove("conditions");
    status.entry("currentReplicas").or_insert_with(|| 0.into());
    let cpu = current.as_array().into_iter().flatten().find(|metric| {
        metric["type"] == "Resource"
            && metric["resource"]["name"] == "cpu"
            && metric["resource"]["current"]["averageUtilization"].is_number()
    });
    if let Some(cpu) = cpu {
        let used = cpu["resource"]["current"]["averageUtilization"].clone();
        status.insert("currentCPUUtilizationPercentage".to_string(), used);
    }
}

fn autoscaler_to_v2(object: &mut Value) {
    let mut metrics = Vec::new();
    if let Some(target) = object::map_mut(object, "spec").remove("targetCPUUtilizationPercentage") {
        metrics.push(json!({
            "type": "Resource",
            "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": target}},
        }));
    }
    if let Some(Value::Array(others)) = unannotate(object, METRICS) {
        metrics.extend(others);
    }
    let behavior = unannotate(object, BEHAVIOR);
    let spec = object::map_mut(object, "spec");
    if !metrics.is_empty() {
        spec.insert("metrics".to_string(), Value::Array(metrics));
    }
    if let Some(behavior) = behavior {
        spec.insert("behavior".to_string(), behavior);
    }
    let status = object::map_mut(object, "status");
    status.remove("currentCPUUtilizationPercentage");
    status.entry("currentMetrics").or_insert(Value::Null);
    status.entry("desiredReplicas").or_insert_with(|| 0.into());
}

fn annotate(object: &mut Value, name: &str, value: &Value) {
    let annotations = object::metadata_mut(object)
        .entry("annotations")
        .or_insert_with(|| json!({}));
    if annotations.is_object() {
        annotations[name] = value.to_string().into();
    }
}

fn unannotate(object: &mut Value, name: &str) -> Option<Value> {
    let annotations = object::metadata_mut(object).get_mut("annotations")?.as_object_mut()?;
    let text = annotations.remove(name)?;
    if annotations.is_empty() {
        object::metadata_mut(object).remove("annotations");
    }
    serde_json::from_str(text.as_str()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::Catalogue;

    #[test]
    fn an_autoscaler_survives_the_way_to_v1_and_back() {
        let catalogue = Catalogue::built_in();
        let v1 = catalogue.get("autoscaling", "v1", "horizontalpodautoscalers").unwrap();
        let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}});
        let memory = json!({"type": "Resource", "resource": {"name": "memory", "target": {"type": "Utilization", "averageUtilization": 60}}});
        let stored = json!({
            "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "metrics": [cpu, memory], "behavior": {"scaleUp": {"selectPolicy": "Max"}}},
            "status": {"currentMetrics": null, "currentReplicas": 0, "desiredReplicas": 0},
        });
        let mut object = stored.clone();
        to(v1, &mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 50);
        assert!(
            object["metadata"]["annotations"][METRICS]
                .as_str()
                .unwrap()
                .contains("memory")
        );
        to_storage(v1, &mut object);
        assert_eq!(object, stored);
    }

    #[test]
    fn an_event_is_one_object_in_two_groups() {
        let catalogue = Catalogue::built_in();
        let new = catalogue.get("events.k8s.io", "v1", "events").unwrap();
        let sent = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "note": "n", "regarding": {"name": "p"}});
        let mut object = sent.clone();
        to_storage(new, &mut object);
        assert_eq!(
            object,
            json!({"apiVersion": "v1", "kind": "Event", "message": "n", "involvedObject": {"name": "p"}})
        );
        to(new, &mut object);
        assert_eq!(object, sent);
    }
}
