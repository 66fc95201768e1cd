//! What planning needs to know of the world, read by [`crate::observe`].

use crate::requests::Told;
use crate::resources::revision::Revision;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Pod, Service};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Everything that a plan depends on beside the WebApp itself and the time.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    pub stable: Option<Arc<Deployment>>,
    pub canary: Option<Arc<Deployment>>,
    pub service: Option<Arc<Service>>,
    /// Oldest first.
    pub revisions: Vec<Revision>,
    /// All pods of the application, stable and canary.
    pub pods: Vec<Arc<Pod>>,
    /// Of what its spec and its revisions refer to.
    pub digests: Digests,
    /// Kinds that not every cluster has.
    pub optional: OptionalKinds,
    /// Nodes that are not ready or under pressure.
    pub bad_nodes: Vec<String>,
    /// What the pods of a canary told of the requests to them, where the spec asks for it.
    pub requests: Option<Told>,
    /// The older WebApp that is reached under the same name and path, as `namespace/name`.
    pub taken_by: Option<String>,
    /// The namespace in which the operator is a pod itself.
    pub home: Option<String>,
    /// What the pods use, where the cluster measures it.
    pub usage: Vec<Usage>,
}

/// Digests of Secrets and ConfigMaps, by name. What is not here does not exist.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Digests {
    pub config_maps: BTreeMap<String, String>,
    pub secrets: BTreeMap<String, String>,
}

/// The Secrets and ConfigMaps that a spec refers to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct References {
    /// A hash of their content; `None` if there are none.
    pub hash: Option<String>,
    /// Those that are needed and not there, as `Secret name`.
    pub missing: Vec<String>,
}

/// Kinds that come with other projects.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OptionalKinds {
    pub gateway: bool,
    pub monitoring: bool,
}

/// What one pod uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usage {
    pub cpu_millis: i64,
    pub memory_bytes: i64,
}
