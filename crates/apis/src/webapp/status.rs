//! What Stead saw of a WebApp.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stead_machinery::conditions::Condition;

/// What was last seen. Nothing here is read back as a wish; the spec alone is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct WebAppStatus {
    /// The generation of the spec that this status speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// Where in its life it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,

    /// Pods that exist.
    #[serde(default)]
    pub replicas: i32,

    /// Pods that are ready.
    #[serde(default)]
    pub ready_replicas: i32,

    /// Pods that have been ready long enough to count.
    #[serde(default)]
    pub available_replicas: i32,

    /// Pods of the wanted version.
    #[serde(default)]
    pub updated_replicas: i32,

    /// Available and wanted pods, as `3/3`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// The selector of its pods, for the scale subresource.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<String>,

    /// Where it is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,

    /// The image that its pods really run, with its digest, as their nodes resolved it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_image: Option<String>,

    /// The revision that the spec stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<i64>,

    /// The newest revision that came up well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_good_revision: Option<i64>,

    /// The revision that the spec stands for, where it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_revision: Option<i64>,

    /// How far a canary is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryStatus>,

    /// How far a new version is that is not complete yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<RolloutStatus>,

    /// Resource requests that its observed use suggests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advice: Option<ResourceAdvice>,

    /// Ready, Reconciling, Stalled and Progressing, each with its reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(schema_with = "conditions_schema")]
    pub conditions: Vec<Condition>,
}

/// The life of a WebApp.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Seen for the first time; nothing done yet.
    Created,
    /// Its children are being made or changed.
    Reconciling,
    /// Its children are as they should be; pods are not all ready.
    WaitingForPods,
    /// All is as the spec wants it.
    Ready,
    /// The number of pods is changing.
    Scaling,
    /// It is going away and waits for something.
    Deleting,
}

/// How far a canary is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStatus {
    /// The revision that is on trial.
    pub revision: i64,
    /// The step, counted from 1.
    pub step: i32,
    /// The share of pods of this step, in percent.
    #[serde(default)]
    pub percent: i32,
    /// How many pods that is. An autoscaler that changes its mind does not change the step that is under way.
    #[serde(default)]
    pub pods: i32,
    /// Since when all pods of this step are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_since: Option<Time>,
}

/// How far a new version is that is not complete yet: what its deadline is counted from.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStatus {
    /// The revision that is rolled out.
    pub revision: i64,
    /// The step of its canary; 0 where it is to run on all pods.
    pub step: i32,
    /// How many pods it was to have when it came so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// The furthest it came with so many pods: this grows with every pod that is replaced and with every new one that is
    /// available.
    pub progress: i32,
    /// When it came so far. After `spec.strategy.progressDeadlineSeconds` without anything further it has failed.
    pub moved_at: Time,
}

/// Requests that would fit what was observed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceAdvice {
    /// Processor, such as `250m`.
    pub cpu: String,
    /// Memory, such as `128Mi`.
    pub memory: String,
    /// What it rests on, in a sentence.
    pub basis: String,
}

/// Conditions are a list that is keyed by type, so that others may add theirs without a fight.
fn conditions_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
    let mut schema = generator.subschema_for::<Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>>();
    schema.insert("x-kubernetes-list-type".into(), "map".into());
    schema.insert("x-kubernetes-list-map-keys".into(), serde_json::json!(["type"]));
    schema
}
