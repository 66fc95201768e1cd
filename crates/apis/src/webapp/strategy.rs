//! How a new version of a WebApp replaces the old one.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How a new version replaces the old one, and what happens when it does not come up.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.type == 'Canary' ? has(self.canary) : !has(self.canary)")
        .message("canary goes with type Canary, and type Canary needs it"),
    validation = Rule::new("self.type == 'RollingUpdate' || (!has(self.maxSurge) && !has(self.maxUnavailable))")
        .message("maxSurge and maxUnavailable go with type RollingUpdate"),
)]
pub struct Strategy {
    /// RollingUpdate replaces pods a few at a time; Recreate stops all old ones first; Canary tries the new version
    /// on a part of the pods.
    #[serde(rename = "type", default)]
    pub kind: StrategyType,

    /// How many pods there may be beyond the wanted number during a rolling update: a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_surge: Option<IntOrString>,

    /// How many of the wanted pods may be missing during a rolling update: a number or a percentage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_unavailable: Option<IntOrString>,

    /// The steps of a canary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<Canary>,

    /// How long a new version may make no progress, in seconds, before it counts as failed.
    #[serde(default = "super::defaults::deadline")]
    #[schemars(range(min = 1, max = 86400))]
    pub progress_deadline_seconds: i32,

    /// Whether a failed version is replaced by the last good one.
    #[serde(default)]
    pub on_failure: OnFailure,
}

/// The ways to replace a version.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StrategyType {
    #[default]
    RollingUpdate,
    Recreate,
    Canary,
}

/// What happens to a version that does not come up.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// Go back to the last good revision by itself, and say so.
    #[default]
    RollBack,
    /// Leave it as it is, and say so.
    Stop,
}

/// A new version on a part of the pods, in steps.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Canary {
    /// The steps in order, each with more pods than the one before; after the last one the new version takes over.
    #[schemars(length(min = 1, max = 20))]
    #[x_kube(validation = Rule::new("self.map(s, s.percent).isSorted() && self.all(s, self.exists_one(t, t.percent == s.percent))")
        .message(NOT_RISING))]
    pub steps: Vec<CanaryStep>,

    /// How many restarts of a canary pod condemn the new version.
    #[serde(default = "super::defaults::restarts")]
    #[schemars(range(min = 0, max = 100))]
    pub max_restarts: i32,

    /// The share of failed requests that condemns the new version, read from the pods' Prometheus metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_rate: Option<ErrorRate>,
}

/// What is said of steps that go back or stand still.
pub(super) const NOT_RISING: &str = "each step has a greater share than the one before";

/// One step of a canary.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct CanaryStep {
    /// The share of pods that run the new version, in percent.
    #[schemars(range(min = 1, max = 100))]
    pub percent: i32,

    /// How long this step lasts once its pods are ready, in seconds.
    #[serde(default = "super::defaults::pause")]
    #[schemars(range(min = 0, max = 604800))]
    pub pause_seconds: i32,
}

/// Which metric counts requests, and how many may fail.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ErrorRate {
    /// A counter of requests with a label that holds the HTTP status code.
    #[schemars(length(min = 1, max = 200))]
    pub metric: String,

    /// The label with the status code; codes from 500 on are failures.
    #[serde(default = "super::defaults::code_label")]
    #[schemars(length(min = 1, max = 100))]
    pub code_label: String,

    /// The largest share of failures that is borne, in percent.
    #[schemars(range(min = 0, max = 100))]
    pub max_percent: i32,
}

impl Default for Strategy {
    fn default() -> Self {
        Strategy {
            kind: StrategyType::default(),
            max_surge: None,
            max_unavailable: None,
            canary: None,
            progress_deadline_seconds: super::defaults::deadline(),
            on_failure: OnFailure::default(),
        }
    }
}
