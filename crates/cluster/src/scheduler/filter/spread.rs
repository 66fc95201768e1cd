//! How evenly pods must lie over zones, nodes or any other topology. Pure.

use super::affinity::{self, labels};
use super::{Hope, Reason};
use crate::controllers::pods;
use crate::scheduler::ledger::NodeInfo;
use k8s_openapi::api::core::v1::{Node, Pod, TopologySpreadConstraint};
use std::collections::BTreeMap;

/// The constraints of one pod, with how many matching pods each place has.
pub struct Spread {
    hard: Vec<Counted>,
    soft: Vec<Counted>,
}

struct Counted {
    key: String,
    skew: i64,
    counts: BTreeMap<String, i64>,
    fewest: i64,
    /// Whether the pod itself counts where it comes.
    own: i64,
}

impl Spread {
    pub fn new<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a NodeInfo> + Clone) -> Self {
        let constraints = pod
            .spec
            .iter()
            .flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
        let (mut hard, mut soft) = (Vec::new(), Vec::new());
        for constraint in constraints {
            let counted = count(pod, constraint, nodes.clone());
            if constraint.when_unsatisfiable == "DoNotSchedule" {
                hard.push(counted)
            } else {
                soft.push(counted)
            };
        }
        Spread { hard, soft }
    }

    /// Whether any place can be refused.
    pub fn has_limits(&self) -> bool {
        !self.hard.is_empty()
    }

    /// Whether a hard constraint refuses a node.
    pub fn check(&self, node: &Node) -> Option<(Reason, Hope)> {
        for constraint in &self.hard {
            let Some(place) = labels(node).get(&constraint.key) else {
                let text = "node(s) didn't match pod topology spread constraints (missing required label)";
                return Some((Reason(text.to_string()), Hope::None));
            };
            let there = constraint.counts.get(place).copied().unwrap_or(0);
            if there + constraint.own - constraint.fewest > constraint.skew {
                let text = "node(s) didn't match pod topology spread constraints";
                return Some((Reason(text.to_string()), Hope::IfPodsGo));
            }
        }
        None
    }

    /// How crowded a node's places are: the fewer matching pods the better.
    pub fn crowd(&self, node: &Node) -> i64 {
        let there = |constraint: &Counted| {
            let place = labels(node).get(&constraint.key);
            place.map_or(0, |place| constraint.counts.get(place).copied().unwrap_or(0))
        };
        self.soft.iter().map(there).sum()
    }
}

fn count<'a>(pod: &Pod, constraint: &TopologySpreadConstraint, nodes: impl Iterator<Item = &'a NodeInfo>) -> Counted {
    let selector = constraint.label_selector.as_ref().and_then(pods::selector);
    let label = |pod: &Pod, key: &String| pod.metadata.labels.as_ref().and_then(|all| all.get(key).cloned());
    // Keys of labels whose values the counted pods share with this one, as the hash of a roll-out.
    let shared = constraint.match_label_keys.as_deref().unwrap_or_default();
    let shared: Vec<&String> = shared.iter().filter(|key| label(pod, key).is_some()).collect();
    let matches = |other: &Pod| {
        shared.iter().all(|key| label(other, key) == label(pod, key))
            && other.metadata.namespace == pod.metadata.namespace
            && other.metadata.deletion_timestamp.is_none()
            && selector.as_ref().is_some_and(|selector| pods::matches(selector, other))
    };
    let mut counts: BTreeMap<String, i64> = BTreeMap::new();
    for info in nodes {
        let Some(node) = &info.node else { continue };
        // Nodes that the pod could never use do not count; those whose taints keep it away do, unless it says so.
        let apart = constraint.node_affinity_policy.as_deref() != Some("Ignore") && affinity::node(pod, node).is_some();
        let tainted =
            constraint.node_taints_policy.as_deref() == Some("Honor") && super::untolerated(pod, node).is_some();
        if apart || tainted {
            continue;
        }
        let Some(place) = labels(node).get(&constraint.topology_key) else {
            continue;
        };
        let here = info.pods.values().filter(|other| matches(other)).count();
        *counts.entry(place.clone()).or_default() += i64::try_from(here).unwrap_or(i64::MAX);
    }
    let enough = constraint
        .min_domains
        .is_none_or(|least| i64::try_from(counts.len()).unwrap_or(0) >= i64::from(least));
    let fewest = if enough {
        counts.values().copied().min().unwrap_or(0)
    } else {
        0
    };
    Counted {
        key: constraint.topology_key.clone(),
        skew: i64::from(constraint.max_skew),
        counts,
        fewest,
        own: i64::from(matches(pod)),
    }
}
