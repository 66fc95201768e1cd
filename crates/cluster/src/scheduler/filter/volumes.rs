//! Where a pod's volumes can be used. Pure.

use super::Reason;
use super::affinity::labels;
use crate::controllers::volumes::{claim_ref, matching, protection};
use crate::scheduler::ledger::NodeInfo;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
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
        Need::Bound(volume) if !is_in_zone(volume, node) => Some("node(s) had no available volume zone"),
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

/// Labels of volumes and nodes that say where they are, with the names that replaced the oldest.
const ZONES: &[(&str, &str)] = &[
    (ZONE, ZONE),
    (REGION, REGION),
    ("failure-domain.beta.kubernetes.io/zone", ZONE),
    ("failure-domain.beta.kubernetes.io/region", REGION),
];
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
/// Between the zones of a volume that is in several.
const BETWEEN: &str = "__";

/// Whether a node is where the volume is. One that says nothing of where it is has no zones, and is everywhere.
fn is_in_zone(volume: &PersistentVolume, node: &Node) -> bool {
    let here = labels(node);
    if !ZONES.iter().any(|(key, _)| here.contains_key(*key)) {
        return true;
    }
    let there = volume.metadata.labels.as_ref();
    ZONES.iter().all(|(key, newer)| {
        let Some(zones) = there.and_then(|labels| labels.get(*key)) else {
            return true;
        };
        let zone = here.get(*key).or_else(|| here.get(*newer));
        zone.is_some_and(|here| zones.split(BETWEEN).any(|zone| zone.trim() == here))
    })
}

/// Whether a volume that only one pod may use is used by another one.
pub fn occupied<'a>(pod: &Pod, needs: &[Need], nodes: impl Iterator<Item = &'a NodeInfo>) -> Option<Reason> {
    let alone = needs.iter().filter_map(|need| match need {
        Need::Bound(volume) => {
            let modes = volume.spec.as_ref()?.access_modes.as_ref()?;
            let single = modes.iter().any(|mode| mode == "ReadWriteOncePod");
            claim_ref(volume).filter(|_| single)?.name.clone()
        }
        Need::Open { .. } => None,
    });
    let alone: Vec<String> = alone.collect();
    if alone.is_empty() {
        return None;
    }
    let uses = |other: &Pod| {
        other.metadata.namespace == pod.metadata.namespace
            && other.metadata.uid != pod.metadata.uid
            && protection::claims_of(other).any(|used| alone.iter().any(|name| name == used.name()))
    };
    let mut others = nodes.flat_map(|info| info.pods.values());
    let text = "node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode";
    others.any(|other| uses(other)).then(|| Reason(text.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn is_in(volume: Value, node: Value) -> bool {
        let volume: PersistentVolume = serde_json::from_value(json!({"metadata": {"labels": volume}})).unwrap();
        let node: Node = serde_json::from_value(json!({"metadata": {"labels": node}})).unwrap();
        is_in_zone(&volume, &node)
    }

    #[test]
    fn a_volume_of_a_zone_is_for_nodes_of_that_zone_and_for_nodes_without_any() {
        let volume = json!({"topology.kubernetes.io/zone": "a__b"});
        for (node, expected) in [
            (json!({"topology.kubernetes.io/zone": "b"}), true),
            (json!({"topology.kubernetes.io/zone": "c"}), false),
            (json!({"topology.kubernetes.io/region": "r"}), false),
            (json!({"kubernetes.io/hostname": "n"}), true),
        ] {
            assert_eq!(is_in(volume.clone(), node.clone()), expected, "{node}");
        }
    }

    #[test]
    fn the_oldest_names_of_zones_mean_the_same() {
        let volume = json!({"failure-domain.beta.kubernetes.io/zone": "a"});
        for (node, expected) in [
            (json!({"failure-domain.beta.kubernetes.io/zone": "a"}), true),
            (json!({"topology.kubernetes.io/zone": "a"}), true),
            (json!({"topology.kubernetes.io/zone": "b"}), false),
        ] {
            assert_eq!(is_in(volume.clone(), node.clone()), expected, "{node}");
        }
    }
}
