//! WebApp: a web application and everything it needs to run.
//!
//! `image` and `replicas` are enough; each further field takes over one more duty of an administrator.

pub mod autopilot;
pub mod container;
pub mod defaults;
pub mod exposure;
pub mod status;
pub mod strategy;
pub mod validate;

use k8s_openapi::api::core::v1::{
    Affinity, Container, LocalObjectReference, Toleration, TopologySpreadConstraint, Volume, VolumeMount,
};
use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub use autopilot::{Advice, Autoscaling, Recovery, Window};
pub use container::{File, Port, Probes, Security};
pub use exposure::{Disruption, Ingress, Monitoring, NetworkAccess, Route};
pub use status::{Phase, WebAppStatus};
pub use strategy::Strategy;

/// The most replicas a WebApp may ask for: beyond it a typing mistake is likelier than a wish.
pub const MOST_REPLICAS: i32 = 1000;

/// What a web application needs to run: its image, how many of it, how it is reached and how it is kept well.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "stead.dev",
    version = "v1",
    kind = "WebApp",
    plural = "webapps",
    shortname = "wa",
    category = "all",
    category = "stead",
    namespaced,
    status = "WebAppStatus",
    derive = "PartialEq",
    doc = "A web application: Stead runs it, upgrades it, heals it and scales it.",
    scale(
        spec_replicas_path = ".spec.replicas",
        status_replicas_path = ".status.replicas",
        label_selector_path = ".status.selector"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(name = "Replicas", type_ = "string", json_path = ".status.summary"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"),
    printcolumn(name = "URL", type_ = "string", json_path = ".status.url"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
// Each printer column has a type of its own; clippy takes them for one attribute given twice.
#[allow(clippy::duplicated_attributes)]
#[x_kube(
    validation = Rule::new("!has(self.ingress) || !has(self.route)")
        .message("ingress and route are two ways to the same end: keep one of them"),
    validation = Rule::new("!has(self.autoscaling) || self.autoscaling.minReplicas <= self.autoscaling.maxReplicas")
        .message("autoscaling.minReplicas must not be greater than autoscaling.maxReplicas"),
)]
pub struct WebAppSpec {
    /// The container image to run, such as `nginx:1.25`. Name a tag or a digest: what has neither, or `latest`,
    /// may be another program tomorrow.
    #[schemars(length(min = 1, max = 512))]
    #[x_kube(validation = Rule::new("self.matches('^[a-zA-Z0-9][a-zA-Z0-9._:/-]*(@sha256:[a-fA-F0-9]{64})?$')")
        .message("not an image reference: use name[:tag][@sha256:digest], such as nginx:1.25"))]
    pub image: String,

    /// How many pods run it. With `autoscaling` this is only where it starts.
    #[serde(default = "defaults::replicas")]
    #[schemars(range(min = 0, max = 1000))]
    pub replicas: i32,

    /// The ports it listens on. Without any it is taken to listen on port 80, and the Service offers port 80.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    #[x_kube(validation = Rule::new("self.all(p, self.exists_one(q, q.containerPort == p.containerPort && q.protocol == p.protocol))")
        .message(container::LISTENED_TWICE))]
    pub ports: Vec<Port>,

    /// The program to run instead of the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub command: Vec<String>,

    /// The arguments of the program instead of the image's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub args: Vec<String>,

    /// Environment variables, given here or taken from Secrets and ConfigMaps of the same namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 500))]
    pub env: Vec<k8s_openapi::api::core::v1::EnvVar>,

    /// Whole Secrets and ConfigMaps whose entries become environment variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub env_from: Vec<k8s_openapi::api::core::v1::EnvFromSource>,

    /// Files that are mounted into the container, with their content in this object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub files: Vec<File>,

    /// Processor and memory: what it asks for and what it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<k8s_openapi::api::core::v1::ResourceRequirements>,

    /// How it is known to have started, to be able to serve, and to be alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probes: Option<Probes>,

    /// What its processes may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<Security>,

    /// The service account it runs as; it must exist in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub service_account_name: Option<String>,

    /// Secrets with which its images are pulled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub image_pull_secrets: Vec<LocalObjectReference>,

    /// Labels that its pods carry in addition to Stead's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_labels: BTreeMap<String, String>,

    /// Annotations that its pods carry.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pod_annotations: BTreeMap<String, String>,

    /// Labels that a node must have.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,

    /// Where its pods may or should run. Without it they keep apart from each other where they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub affinity: Option<Affinity>,

    /// Taints of nodes that it puts up with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub tolerations: Vec<Toleration>,

    /// How its pods spread. Without it they spread over zones and nodes where they can.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub topology_spread_constraints: Vec<TopologySpreadConstraint>,

    /// The priority class of its pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub priority_class_name: Option<String>,

    /// How long a pod may take to stop, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 86400))]
    pub termination_grace_period_seconds: Option<i64>,

    /// Volumes of its pods.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub volumes: Vec<Volume>,

    /// Where those volumes appear in the container.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50))]
    pub volume_mounts: Vec<VolumeMount>,

    /// Containers that run to their end before it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub init_containers: Vec<Container>,

    /// Containers that run beside it for as long as it does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub sidecars: Vec<Container>,

    /// How it is reached from outside through an Ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<Ingress>,

    /// How it is reached from outside through a Gateway, by an HTTPRoute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Route>,

    /// Who may talk to it. Without it everybody may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkAccess>,

    /// How many of its pods may be taken away at once, for instance when a node is drained. Without it at most
    /// one at a time where there are at least two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disruption: Option<Disruption>,

    /// How a new version replaces the old one.
    #[serde(default)]
    pub strategy: Strategy,

    /// How many old revisions are kept to go back to.
    #[serde(default = "defaults::history")]
    #[schemars(range(min = 0, max = 100))]
    pub revision_history_limit: i32,

    /// Set to true to stop all pods and keep everything else; set to false to go on.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub suspend: bool,

    /// Let the number of replicas follow the load.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaling: Option<Autoscaling>,

    /// Times at which it does not run at all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20))]
    pub sleep: Vec<Window>,

    /// What is done about pods that are up but failing, and about bad nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<Recovery>,

    /// Advice on resource requests from observed use.
    #[serde(default)]
    pub advice: Advice,

    /// Where its Prometheus metrics are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub monitoring: Option<Monitoring>,
}
