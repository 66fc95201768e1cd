//! Where a pod's volumes can be used. Pure.

use super::Reason;
use crate::controllers::volumes::matching;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use std::sync::Arc;

/// What one claim of a pod asks of its node.
#[derive(Debug, Clone)]
pub enum Need {
    /// It is bound: the node must reach the volume.
    Bound(Arc<PersistentVolume>),
    /// It waits for the pod to have a node, and takes one of these volumes or has one made.
    Open {
        claim: Arc<PersistentVolumeClaim>,
        candidates: Vec<Arc<PersistentVolume>>,
        source: Source,
    },
}

/// Where a volume for an open claim can come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Only from those that are there.
    Made,
    /// One can be made on any node.
    Provisioned,
}

impl Need {
    pub fn is_open(&self) -> bool {
        matches!(self, Need::Open { .. })
    }
}

/// Whether the pod's volumes keep it from a node.
pub fn check(needs: &[Need], node: &Node) -> Option<Reason> {
    let refusal = needs.iter().find_map(|need| match need {
        Need::Bound(volume) if !matching::reaches(volume, node) => {
            Some("node(s) didn't match PersistentVolume's node affinity")
        }
        Need::Open {
            claim,
            candidates,
            source: Source::Made,
        } if matching::best(claim, candidates, Some(node)).is_none() => {
            Some("node(s) didn't find available persistent volumes to bind")
        }
        Need::Bound(_) | Need::Open { .. } => None,
    });
    refusal.map(|text| Reason(text.to_string()))
}
