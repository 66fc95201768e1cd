//! The HorizontalPodAutoscaler: replicas that follow the load.

use super::metadata;
use crate::names::{self, Track};
use k8s_openapi::api::autoscaling::v2::{
    CrossVersionObjectReference, HorizontalPodAutoscaler, HorizontalPodAutoscalerSpec, MetricSpec, MetricTarget,
    ResourceMetricSource,
};
use stead_apis::WebApp;

/// The processor use that is aimed at when the spec names no metric.
const TARGET_CPU_PERCENT: i32 = 80;

/// The autoscaler, where the spec asks for one.
pub fn build(app: &WebApp) -> Option<HorizontalPodAutoscaler> {
    let wanted = app.spec.autoscaling.as_ref()?;
    let mut metrics: Vec<MetricSpec> = Vec::new();
    metrics.extend(wanted.target_cpu_percent.map(|percent| utilization("cpu", percent)));
    metrics.extend(
        wanted
            .target_memory_percent
            .map(|percent| utilization("memory", percent)),
    );
    metrics.extend(wanted.metrics.iter().cloned());
    if metrics.is_empty() {
        metrics.push(utilization("cpu", TARGET_CPU_PERCENT));
    }
    Some(HorizontalPodAutoscaler {
        metadata: metadata(app, names::child(app)),
        spec: HorizontalPodAutoscalerSpec {
            min_replicas: Some(wanted.min_replicas),
            max_replicas: wanted.max_replicas,
            metrics: Some(metrics),
            behavior: wanted.behavior.clone(),
            scale_target_ref: CrossVersionObjectReference {
                api_version: Some("apps/v1".to_string()),
                kind: "Deployment".to_string(),
                name: Track::Stable.deployment(app),
            },
        },
        status: None,
    })
}

fn utilization(resource: &str, percent: i32) -> MetricSpec {
    MetricSpec {
        type_: "Resource".to_string(),
        resource: Some(ResourceMetricSource {
            name: resource.to_string(),
            target: MetricTarget {
                type_: "Utilization".to_string(),
                average_utilization: Some(percent),
                ..MetricTarget::default()
            },
        }),
        ..MetricSpec::default()
    }
}
