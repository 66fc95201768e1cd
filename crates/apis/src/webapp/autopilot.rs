//! What Stead decides by itself for a WebApp: how many pods, when, and what to do about failing ones.

use k8s_openapi::api::autoscaling::v2::{HorizontalPodAutoscalerBehavior, MetricSpec};
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Replicas that follow the load, through a HorizontalPodAutoscaler.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Autoscaling {
    /// Never fewer than this.
    #[serde(default = "super::defaults::replicas")]
    #[schemars(range(min = 1, max = 1000))]
    pub min_replicas: i32,

    /// Never more than this.
    #[schemars(range(min = 1, max = 1000))]
    pub max_replicas: i32,

    /// The use of processor, in percent of the request, that is aimed at. 80 unless `metrics` are given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub target_cpu_percent: Option<i32>,

    /// The use of memory, in percent of the request, that is aimed at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub target_memory_percent: Option<i32>,

    /// Further metrics, as a HorizontalPodAutoscaler takes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub metrics: Vec<MetricSpec>,

    /// How fast it may grow and shrink, as a HorizontalPodAutoscaler takes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behavior: Option<HorizontalPodAutoscalerBehavior>,
}

/// A recurring time at which the application sleeps: it does when the last of both that happened is `from`.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.from != self.until").message(NEVER_ASLEEP).field_path(".until"))]
pub struct Window {
    /// When it goes to sleep: a cron expression of five fields, such as `0 20 * * MON-FRI`.
    #[schemars(length(min = 9, max = 100))]
    pub from: String,

    /// When it wakes up: a cron expression of five fields.
    #[schemars(length(min = 9, max = 100))]
    pub until: String,

    /// The time zone in which both are read, such as `Europe/Berlin`.
    #[serde(default = "super::defaults::time_zone")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

/// What is said of a time to wake up that is bedtime as well.
pub(super) const NEVER_ASLEEP: &str = "must be another time than from: who wakes up when going to sleep never sleeps";

/// What is done about pods that are up but failing.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Recovery {
    /// A pod that was ready and has not been for so many seconds is replaced. 0: never.
    #[serde(default = "super::defaults::restart_after")]
    #[schemars(range(min = 0, max = 86400))]
    pub restart_after_seconds: i32,

    /// Whether pods leave nodes that are not ready or under pressure before Kubernetes moves them.
    #[serde(default)]
    pub bad_nodes: BadNodes,
}

/// What happens to pods on nodes that are not well.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BadNodes {
    /// Kubernetes decides.
    #[default]
    Stay,
    /// They are moved, one at a time, when they are not ready there.
    Leave,
}

/// What is done with advice on resource requests.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Advice {
    /// None is given.
    Off,
    /// It stands in the status.
    #[default]
    Report,
    /// It is applied to the pods with their next roll-out.
    Apply,
}
