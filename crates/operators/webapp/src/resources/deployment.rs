//! The Deployments: one of stable pods, and during a canary one of trial pods.

use super::metadata;
use crate::names::{self, Track};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStrategy, RollingUpdateDeployment};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use stead_apis::WebApp;
use stead_apis::webapp::strategy::StrategyType;

/// What one Deployment shall run.
#[derive(Debug, Clone)]
pub struct Wanted {
    pub track: Track,
    /// `None` leaves the number to whoever else owns it.
    pub replicas: Option<i32>,
    /// The revision that the template comes from.
    pub revision: String,
    pub template: PodTemplateSpec,
    /// The hash of what the pods read at their start.
    pub config: Option<String>,
}

/// The Deployment that runs it.
pub fn build(app: &WebApp, wanted: Wanted) -> Deployment {
    let mut meta = metadata(app, wanted.track.deployment(app));
    let strategy = strategy(app, wanted.track);
    let labels = meta.labels.get_or_insert_default();
    labels.insert(names::TRACK_LABEL.to_string(), wanted.track.label().to_string());
    labels.insert(names::REVISION_LABEL.to_string(), wanted.revision.clone());
    Deployment {
        metadata: meta,
        spec: Some(DeploymentSpec {
            replicas: wanted.replicas,
            selector: LabelSelector {
                match_labels: Some(names::track_selector(app, wanted.track)),
                ..LabelSelector::default()
            },
            template: tracked(wanted),
            strategy: Some(strategy),
            progress_deadline_seconds: Some(app.spec.strategy.progress_deadline_seconds),
            // Older pods are kept by our own revisions; two ReplicaSets are enough to move between.
            revision_history_limit: Some(2),
            ..DeploymentSpec::default()
        }),
        status: None,
    }
}

fn tracked(wanted: Wanted) -> PodTemplateSpec {
    let mut template = wanted.template;
    let meta = template.metadata.get_or_insert_default();
    let labels = meta.labels.get_or_insert_with(BTreeMap::new);
    labels.insert(names::TRACK_LABEL.to_string(), wanted.track.label().to_string());
    // One trial may follow another in the same Deployment; what the pods of the first did must not be held against the
    // second.
    if wanted.track == Track::Canary {
        labels.insert(names::REVISION_LABEL.to_string(), wanted.revision);
    }
    if let Some(config) = wanted.config {
        let annotations = meta.annotations.get_or_insert_with(BTreeMap::new);
        annotations.insert(names::CONFIG_ANNOTATION.to_string(), config);
    }
    template
}

fn strategy(app: &WebApp, track: Track) -> DeploymentStrategy {
    let wanted = &app.spec.strategy;
    match (wanted.kind, track) {
        (StrategyType::Recreate, Track::Stable) => DeploymentStrategy {
            type_: Some("Recreate".to_string()),
            rolling_update: None,
        },
        (StrategyType::RollingUpdate | StrategyType::Canary, _) | (StrategyType::Recreate, Track::Canary) => {
            // Kubernetes' own defaults, said by us: what the server fills in belongs to nobody, would stay when the
            // strategy becomes Recreate, and is forbidden beside it.
            let quarter = || Some(IntOrString::String("25%".to_string()));
            DeploymentStrategy {
                type_: Some("RollingUpdate".to_string()),
                rolling_update: Some(RollingUpdateDeployment {
                    max_surge: wanted.max_surge.clone().or_else(quarter),
                    max_unavailable: wanted.max_unavailable.clone().or_else(quarter),
                }),
            }
        }
    }
}
