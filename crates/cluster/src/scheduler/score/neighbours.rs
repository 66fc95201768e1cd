//! Which pods a pod would like to have near it, and which would like to have it near them. Pure.
//!
//! Wishes go both ways, as in Kubernetes: a pod that is there and wants company counts for a newcomer that it means,
//! though the newcomer says nothing.

use crate::scheduler::filter::affinity::{Namespaces, fits, labels};
use crate::scheduler::ledger::NodeInfo;
use k8s_openapi::api::core::v1::{Node, Pod, PodAffinityTerm, WeightedPodAffinityTerm};
use std::collections::BTreeMap;

/// What a pod that is there and demands company adds for one that it means.
const DEMAND: i64 = 1;

/// How much each place is liked, by topology key and value.
#[derive(Debug, Default)]
pub struct Neighbours {
    places: BTreeMap<(String, String), i64>,
}

/// Whether a pod has an opinion on who is near it, other than a demand to keep others away.
pub fn has_wishes(pod: &Pod) -> bool {
    !wishes(pod).is_empty() || !demands(pod).is_empty()
}

/// The preferred terms of a pod; those that keep away count against a place.
fn wishes(pod: &Pod) -> Vec<(&PodAffinityTerm, i64)> {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else {
        return Vec::new();
    };
    let near = affinity.pod_affinity.iter();
    let near = near.flat_map(|all| {
        all.preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    });
    let far = affinity.pod_anti_affinity.iter();
    let far = far.flat_map(|all| {
        all.preferred_during_scheduling_ignored_during_execution
            .iter()
            .flatten()
    });
    let weighed = |sign: i64| move |term: &'_ WeightedPodAffinityTerm| sign * i64::from(term.weight);
    let (plus, minus) = (weighed(1), weighed(-1));
    near.map(|term| (&term.pod_affinity_term, plus(term)))
        .chain(far.map(|term| (&term.pod_affinity_term, minus(term))))
        .collect()
}

fn demands(pod: &Pod) -> Vec<&PodAffinityTerm> {
    let affinity = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.pod_affinity.as_ref());
    let terms = affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref());
    terms.into_iter().flatten().collect()
}

impl Neighbours {
    pub fn new<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a NodeInfo>, namespaces: &Namespaces) -> Self {
        let own = wishes(pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut places = BTreeMap::new();
        for info in nodes {
            let Some(node) = &info.node else { continue };
            let mut add = |term: &PodAffinityTerm, weight: i64| {
                if let Some(place) = labels(node).get(&term.topology_key) {
                    let key = (term.topology_key.clone(), place.clone());
                    *places.entry(key).or_insert(0) += weight;
                }
            };
            // All pods are looked at only for a pod that has wishes of its own.
            for (term, weight) in &own {
                let meant = info
                    .pods
                    .values()
                    .filter(|other| fits(term, namespace, other, namespaces));
                add(term, weight * i64::try_from(meant.count()).unwrap_or(i64::MAX));
            }
            for other in info.wishing.iter().filter_map(|uid| info.pods.get(uid)) {
                let theirs = other.metadata.namespace.as_deref().unwrap_or_default();
                let demands = demands(other).into_iter().map(|term| (term, DEMAND));
                for (term, weight) in wishes(other).into_iter().chain(demands) {
                    if fits(term, theirs, pod, namespaces) {
                        add(term, weight);
                    }
                }
            }
        }
        Neighbours { places }
    }

    /// How much a node is liked.
    pub fn of(&self, node: &Node) -> i64 {
        let labels = labels(node);
        let here = self
            .places
            .iter()
            .filter(|((key, place), _)| labels.get(key) == Some(place));
        here.map(|(_, liking)| liking).sum()
    }
}
