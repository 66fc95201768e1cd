//! Faults on a node, for demonstrations and tests: off, or cut from the API.
//!
//! They are asked for by an annotation on the Node object, so that any client with the right to write it can
//! (`stead node stop`), and a cluster that is started again comes back with the same node off.

use k8s_openapi::api::core::v1::Node;

/// The annotation that asks for a fault: `stopped` or `partitioned`.
pub const POWER_ANNOTATION: &str = "stead.dev/power";

/// Whether a node works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It works.
    On,
    /// It runs its pods but cannot reach the API: no lease, no status, no news.
    Partitioned,
    /// The machine is off: its pods do not run.
    Off,
}

impl Power {
    /// What the Node object asks for.
    pub fn asked_of(node: &Node) -> Power {
        let annotations = node.metadata.annotations.as_ref();
        match annotations
            .and_then(|annotations| annotations.get(POWER_ANNOTATION))
            .map(String::as_str)
        {
            Some("stopped") => Power::Off,
            Some("partitioned") => Power::Partitioned,
            _ => Power::On,
        }
    }

    /// The annotation's value that asks for this, or none for a node that works.
    pub fn annotation(self) -> Option<&'static str> {
        match self {
            Power::On => None,
            Power::Partitioned => Some("partitioned"),
            Power::Off => Some("stopped"),
        }
    }
}
