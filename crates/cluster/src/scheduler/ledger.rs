//! What is known of every node: what it has, and what the pods on it take.
//!
//! Kept change by change, so that a decision costs a look at each node and never at each pod.

use super::filter::{self, Reason};
use super::resources::{self, Resources};
use super::score;
use k8s_openapi::api::core::v1::{Node, Pod};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One node.
#[derive(Debug, Clone, Default)]
pub struct NodeInfo {
    /// `None` while only pods on it are known.
    pub node: Option<Arc<Node>>,
    pub allocatable: Resources,
    pub requested: Resources,
    /// The pods on it, by UID.
    pub pods: HashMap<String, Arc<Pod>>,
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Ledger {
    nodes: BTreeMap<String, NodeInfo>,
    /// Where each pod is, decided or seen.
    places: HashMap<String, String>,
}

impl Ledger {
    pub fn see_node(&mut self, node: &Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let info = self.nodes.entry(name).or_default();
        info.allocatable = Resources::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        info.node = Some(node.clone());
    }

    pub fn forget_node(&mut self, node: &Node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        if let Some(info) = self.nodes.get_mut(name) {
            info.node = None;
            if info.pods.is_empty() {
                self.nodes.remove(name);
            }
        }
    }

    /// Takes in a pod as the cache shows it. A pod that the cache still shows without a node stays where it was put.
    pub fn see_pod(&mut self, pod: &Arc<Pod>) {
        if crate::controllers::pods::has_ended(pod) {
            return self.forget(pod);
        }
        if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
            self.place(pod.clone(), node);
        }
    }

    pub fn forget(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let Some(place) = self.places.remove(uid) else { return };
        let Some(info) = self.nodes.get_mut(&place) else { return };
        if let Some(old) = info.pods.remove(uid) {
            info.requested.subtract(&resources::requests(&old));
        }
        if info.node.is_none() && info.pods.is_empty() {
            self.nodes.remove(&place);
        }
    }

    /// The node for a pod, which counts as taken from now on; or why there is none, in Kubernetes' words.
    pub fn choose(&mut self, pod: &Arc<Pod>) -> Result<String, String> {
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        let mut fitting: Vec<(&String, &NodeInfo)> = Vec::new();
        let world = filter::World::new(pod, self.nodes.values());
        let total = self.nodes.values().filter(|info| info.node.is_some()).count();
        for (name, info) in self.nodes.iter().filter(|(_, info)| info.node.is_some()) {
            match filter::check(pod, info, &world) {
                Ok(()) => fitting.push((name, info)),
                Err(found) => {
                    for Reason(text) in found {
                        *reasons.entry(text).or_default() += 1;
                    }
                }
            }
        }
        let best = score::best(pod, &fitting, &world).map(str::to_string);
        let Some(best) = best else {
            return Err(unschedulable(total, reasons));
        };
        self.place(pod.clone(), best.clone());
        Ok(best)
    }

    fn place(&mut self, pod: Arc<Pod>, node: String) {
        self.forget(&pod);
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let info = self.nodes.entry(node.clone()).or_default();
        info.requested.add(&resources::requests(&pod));
        info.pods.insert(uid.clone(), pod);
        self.places.insert(uid, node);
    }
}

/// `0/3 nodes are available: 1 node(s) had untolerated taint {...}, 2 Insufficient cpu. ...`
fn unschedulable(total: usize, reasons: BTreeMap<String, usize>) -> String {
    if total == 0 {
        return "no nodes available to schedule pods".to_string();
    }
    let mut parts: Vec<String> = reasons
        .into_iter()
        .map(|(text, count)| format!("{count} {text}"))
        .collect();
    parts.sort();
    let preemption =
        format!("preemption: 0/{total} nodes are available: {total} Preemption is not helpful for scheduling.");
    format!("0/{total} nodes are available: {}. {preemption}", parts.join(", "))
}
