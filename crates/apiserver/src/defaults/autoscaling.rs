//! Defaults of autoscalers.

use super::{Defaulter, Fields, child, set};
use serde_json::{Value, json};

pub const TYPES: &[(&str, Defaulter)] = &[
    ("api.autoscaling.v1.HorizontalPodAutoscalerSpec", spec_v1),
    ("api.autoscaling.v2.HorizontalPodAutoscalerSpec", spec),
];

fn spec_v1(spec: &mut Fields) {
    set(spec, "minReplicas", 1);
    // What version 2 says as its one default metric.
    set(spec, "targetCPUUtilizationPercentage", 80);
}

fn spec(spec: &mut Fields) {
    set(spec, "minReplicas", 1);
    let cpu = json!({
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
    });
    set(spec, "metrics", json!([cpu]));
    if let Some(behavior) = spec.get_mut("behavior").and_then(Value::as_object_mut) {
        let percent = || json!({"type": "Percent", "value": 100, "periodSeconds": 15});
        if let Some(up) = child(behavior, "scaleUp") {
            set(up, "selectPolicy", "Max");
            set(up, "stabilizationWindowSeconds", 0);
            set(
                up,
                "policies",
                json!([{"type": "Pods", "value": 4, "periodSeconds": 15}, percent()]),
            );
        }
        if let Some(down) = child(behavior, "scaleDown") {
            set(down, "selectPolicy", "Max");
            set(down, "policies", json!([percent()]));
        }
    }
}
