//! Which pods a pod would like to have near it, and which would like to have it near them. Pure.
//!
//! Wishes go both ways, as in Kubernetes: a pod that is there and wants company counts for a newcomer that it means,
//! though the newcomer says nothing.

use crate::scheduler::filter::affinity::{Namespaces, Term, attracting, labels};
use crate::scheduler::ledger::NodeInfo;
use k8s_openapi::api::core::v1::{Node, Pod, WeightedPodAffinityTerm};
use std::collections::{BTreeMap, HashMap};

/// What a pod that is there and demands company adds for one that it means.
const DEMAND: i64 = 1;

/// A term and how much it counts.
#[derive(Debug, Clone)]
pub struct Wish {
    term: Term,
    weight: i64,
}

/// How much each place is liked, by topology key and value.
#[derive(Debug, Default)]
pub struct Neighbours {
    places: BTreeMap<String, HashMap<String, i64>>,
}

/// A pod's opinion on who is near it, other than a demand to keep others away.
pub fn opinions(pod: &Pod) -> Vec<Wish> {
    let demands = attracting(pod).into_iter().map(|term| Wish { term, weight: DEMAND });
    wishes(pod).into_iter().chain(demands).collect()
}

/// The preferred terms of a pod; those that keep away count against a place.
fn wishes(pod: &Pod) -> Vec<Wish> {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else {
        return Vec::new();
    };
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let near = affinity.pod_affinity.as_ref();
    let near = near.and_then(|all| all.preferred_during_scheduling_ignored_during_execution.as_ref());
    let far = affinity.pod_anti_affinity.as_ref();
    let far = far.and_then(|all| all.preferred_during_scheduling_ignored_during_execution.as_ref());
    let read = |sign: i64| {
        move |wish: &WeightedPodAffinityTerm| Wish {
            term: Term::new(&wish.pod_affinity_term, namespace),
            weight: sign * i64::from(wish.weight),
        }
    };
    let near = near.into_iter().flatten().map(read(1));
    near.chain(far.into_iter().flatten().map(read(-1))).collect()
}

impl Neighbours {
    pub fn new<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a NodeInfo>, namespaces: &Namespaces) -> Self {
        let own = wishes(pod);
        let mut liked = Neighbours::default();
        for info in nodes {
            let Some(node) = &info.node else { continue };
            // All pods are looked at only for a pod that has wishes of its own.
            for wish in &own {
                let meant = info.pods.values().filter(|other| wish.term.means(other, namespaces));
                let count = i64::try_from(meant.count()).unwrap_or(i64::MAX);
                liked.add(&wish.term, node, wish.weight.saturating_mul(count));
            }
            for wish in info.wishing.values().flat_map(|wishes| wishes.iter()) {
                if wish.term.means(pod, namespaces) {
                    liked.add(&wish.term, node, wish.weight);
                }
            }
        }
        liked
    }

    fn add(&mut self, term: &Term, node: &Node, weight: i64) {
        let Some(place) = term.place(node).filter(|_| weight != 0) else {
            return;
        };
        if !self.places.contains_key(&term.topology_key) {
            self.places.insert(term.topology_key.clone(), HashMap::new());
        }
        let Some(places) = self.places.get_mut(&term.topology_key) else {
            return;
        };
        match places.get_mut(place) {
            Some(liking) => *liking += weight,
            None => drop(places.insert(place.clone(), weight)),
        }
    }

    /// How much a node is liked: a look for each topology key, however many places there are.
    pub fn of(&self, node: &Node) -> i64 {
        let labels = labels(node);
        let here = self
            .places
            .iter()
            .filter_map(|(key, places)| places.get(labels.get(key)?));
        here.sum()
    }
}
