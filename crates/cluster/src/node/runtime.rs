//! What runs the containers of a pod: the place where a container runtime attaches.
//!
//! The agent decides (see `plan`) and the runtime does. Both kinds of Stead's nodes, those whose containers are
//! processes and the hollow ones, are this one trait; an implementation that speaks CRI would be a third.

use super::fault::Power;
use super::seen::{Exit, Seen};
use async_trait::async_trait;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Where a runtime reports what happens by itself. The number of messages under way is bounded by the number of
/// containers, since each has at most one run at a time.
pub type Notices = UnboundedSender<Notice>;

/// Something that happened to a container without the agent asking for it.
#[derive(Clone, Debug)]
pub struct Notice {
    /// The pod's UID.
    pub pod: String,
    pub container: String,
    /// The run it is about: news of an earlier run is ignored.
    pub id: String,
    pub what: What,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum What {
    Exited(Exit),
    /// The startup probe succeeded.
    Started,
    /// The readiness probe changed its mind.
    Ready(Readiness),
    /// The liveness or startup probe failed too often: the container must be started again.
    Unhealthy {
        grace: Option<Duration>,
        message: String,
    },
}

/// Whether a container may get traffic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    NotReady,
}

/// A container that was started.
#[derive(Clone, Debug)]
pub struct Running {
    pub id: String,
    pub since: Timestamp,
    pub image_id: String,
    /// Whether it counts as started, or a startup probe will say so later.
    pub started: bool,
    /// Whether it counts as ready, or a readiness probe will say so later.
    pub ready: Readiness,
}

/// Why the runtime could not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The image cannot be had; `reason` is Kubernetes' word for why.
    #[error("{message}")]
    Image { reason: &'static str, message: String },
    /// What the pod refers to (a config map, a key, a volume) is not there yet, or makes no sense.
    #[error("{message}")]
    Configuration { reason: &'static str, message: String },
    /// The machine refused.
    #[error("{message}")]
    Machine { reason: &'static str, message: String },
}

impl RuntimeError {
    /// The machine refused to start a container.
    pub fn run(message: impl Into<String>) -> RuntimeError {
        RuntimeError::Machine {
            reason: "RunContainerError",
            message: message.into(),
        }
    }

    /// The word that the container's waiting state shows.
    pub fn reason(&self) -> &'static str {
        match self {
            RuntimeError::Image { reason, .. }
            | RuntimeError::Configuration { reason, .. }
            | RuntimeError::Machine { reason, .. } => reason,
        }
    }
}

/// What runs the containers of pods. Every call may be repeated after a crash of the agent.
#[async_trait]
pub trait Runtime: Send + Sync + 'static {
    /// The scheme of container identifiers.
    fn scheme(&self) -> &'static str;

    /// Hears that a node's machine was turned off or on, or its line to the API cut or mended.
    fn set_power(&self, _node: &str, _power: Power) {}

    /// Leaves out of a pod what this runtime never reads: with thousands of them their copies are most of the memory.
    fn trim(&self, _pod: &mut Pod) {}

    /// What the agent finds of a pod that it sees for the first time.
    async fn adopt(&self, pod: &Pod) -> Seen;

    /// UIDs of pods that have something on this machine.
    async fn known(&self) -> Vec<String>;

    /// Makes what the containers share and gives the pod's addresses.
    async fn create_sandbox(&self, pod: Arc<Pod>) -> Result<Vec<IpAddr>, RuntimeError>;

    /// Starts a container in its sandbox. How it ends comes as a notice.
    async fn start(&self, pod: Arc<Pod>, container: String, restarts: u32) -> Result<Running, RuntimeError>;

    /// Lets starts of a pod that ends fail, where they still wait for something from elsewhere.
    fn give_up_starts(&self, _uid: &str) {}

    /// Asks a container to end and kills it after `grace`; returns when it may take its time no longer, or before:
    /// the end itself comes as a notice. Called again with less grace, the shorter time counts.
    async fn stop(&self, pod: Arc<Pod>, container: String, id: String, grace: Duration);

    /// Takes the sandbox down after its containers have ended. Logs stay.
    async fn stop_sandbox(&self, pod: Arc<Pod>) -> Result<(), RuntimeError>;

    /// Removes everything of a pod, running or not, as when its machine died: no grace, no hooks.
    async fn remove(&self, uid: &str) -> Result<(), RuntimeError>;
}
