//! The PodDisruptionBudget: how many pods a drain may take at once.

use super::metadata;
use crate::names;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_apis::WebApp;

/// The budget. A single pod gets none unless the spec asks for it: it would block every drain of its node.
pub fn build(app: &WebApp) -> Option<PodDisruptionBudget> {
    let least = app
        .spec
        .autoscaling
        .as_ref()
        .map_or(app.spec.replicas, |scaling| scaling.min_replicas);
    let (min_available, max_unavailable) = match &app.spec.disruption {
        Some(wanted) => (wanted.min_available.clone(), wanted.max_unavailable.clone()),
        None if least >= 2 => (None, Some(IntOrString::Int(1))),
        None => return None,
    };
    Some(PodDisruptionBudget {
        metadata: metadata(app, names::child(app)),
        spec: Some(PodDisruptionBudgetSpec {
            selector: Some(LabelSelector {
                match_labels: Some(names::selector(app)),
                match_expressions: None,
            }),
            min_available,
            max_unavailable,
            unhealthy_pod_eviction_policy: Some("AlwaysAllow".to_string()),
        }),
        status: None,
    })
}
