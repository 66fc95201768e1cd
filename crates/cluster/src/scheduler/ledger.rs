//! What is known of every node: what it has, and what the pods on it take.
//!
//! Kept change by change, so that a decision costs a look at each node and never at each pod.

use super::filter::affinity::{self, Namespaces, Term};
use super::filter::volumes::Need;
use super::filter::{self, Reason, Refusal};
use super::preempt::{self, Candidate};
use super::resources::{self, Resources};
use super::score;
use super::score::neighbours::{self, Neighbours, Wish};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// One node.
#[derive(Debug, Clone, Default)]
pub struct NodeInfo {
    /// `None` while only pods on it are known.
    pub node: Option<Arc<Node>>,
    pub allocatable: Resources,
    pub requested: Resources,
    /// What its pods are taken to use when it is compared with others.
    pub weight: Resources,
    /// The pods on it, by UID.
    pub pods: HashMap<String, Arc<Pod>>,
    /// How those of them that keep others away do it. Few pods do, and only these are asked for each decision.
    pub repelling: BTreeMap<String, Arc<[Term]>>,
    /// What those of them would like that want to have others near, or not so near.
    pub wishing: BTreeMap<String, Arc<[Wish]>>,
}

impl NodeInfo {
    /// Counts a pod, anew if it is known. What it demands of others never changes, and is read only once.
    pub fn add(&mut self, pod: &Arc<Pod>) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.requested.add(&resources::requests(pod));
        self.weight.add(&resources::weight(pod));
        if let Some(before) = self.pods.insert(uid.clone(), pod.clone()) {
            self.weight.subtract(&resources::weight(&before));
            return self.requested.subtract(&resources::requests(&before));
        }
        let repelling = affinity::repelling(pod);
        if !repelling.is_empty() {
            self.repelling.insert(uid.clone(), repelling.into());
        }
        let opinions = neighbours::opinions(pod);
        if !opinions.is_empty() {
            self.wishing.insert(uid, opinions.into());
        }
    }

    /// Counts a pod no more.
    pub fn remove(&mut self, uid: &str) {
        if let Some(old) = self.pods.remove(uid) {
            self.requested.subtract(&resources::requests(&old));
            self.weight.subtract(&resources::weight(&old));
            self.repelling.remove(uid);
            self.wishing.remove(uid);
        }
    }
}

/// All nodes.
#[derive(Debug, Default)]
pub struct Ledger {
    nodes: BTreeMap<String, NodeInfo>,
    /// Where each pod is, decided or seen.
    places: HashMap<String, String>,
    /// Pods for which room is being made, with the node.
    nominated: HashMap<String, (String, Arc<Pod>)>,
    namespaces: Namespaces,
}

/// Why no node does.
#[derive(Debug, Clone)]
pub struct Refused {
    pub total: usize,
    pub by_node: BTreeMap<String, Refusal>,
}

impl Refused {
    /// `0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu.`
    pub fn words(&self) -> String {
        if self.total == 0 {
            return "no nodes available to schedule pods".to_string();
        }
        let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
        for Reason(text) in self.by_node.values().flat_map(|refusal| &refusal.reasons) {
            *reasons.entry(text.clone()).or_default() += 1;
        }
        unavailable(self.total, &reasons)
    }
}

/// How many nodes say what, in Kubernetes' words.
pub fn unavailable(total: usize, reasons: &BTreeMap<String, usize>) -> String {
    let mut parts: Vec<String> = reasons.iter().map(|(text, count)| format!("{count} {text}")).collect();
    parts.sort();
    format!("0/{total} nodes are available: {}.", parts.join(", "))
}

impl Ledger {
    pub fn see_node(&mut self, node: &Arc<Node>) {
        let name = node.metadata.name.clone().unwrap_or_default();
        let info = self.nodes.entry(name).or_default();
        info.allocatable = Resources::of(node.status.as_ref().and_then(|status| status.allocatable.as_ref()));
        info.node = Some(node.clone());
    }

    /// Takes in the labels of a namespace.
    pub fn see_namespace(&mut self, namespace: &Namespace) {
        let meta = &namespace.metadata;
        let name = meta.name.clone().unwrap_or_default();
        self.namespaces.insert(name, meta.labels.clone().unwrap_or_default());
    }

    pub fn forget_namespace(&mut self, namespace: &Namespace) {
        self.namespaces
            .remove(namespace.metadata.name.as_deref().unwrap_or_default());
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
        } else if let Some(node) = nominated_node(pod) {
            self.nominate(pod.clone(), node.to_string());
        }
    }

    /// Keeps room on a node for a pod, until it is placed or gone.
    pub fn nominate(&mut self, pod: Arc<Pod>, node: String) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        self.nominated.insert(uid, (node, pod));
    }

    pub fn forget(&mut self, pod: &Pod) {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        self.nominated.remove(uid);
        let Some(place) = self.places.remove(uid) else { return };
        let Some(info) = self.nodes.get_mut(&place) else { return };
        info.remove(uid);
        if info.node.is_none() && info.pods.is_empty() {
            self.nodes.remove(&place);
        }
    }

    /// How many nodes there are.
    pub fn total(&self) -> usize {
        self.nodes.values().filter(|info| info.node.is_some()).count()
    }

    /// The node for a pod, which counts as taken from now on; or why there is none.
    pub fn choose(&mut self, pod: &Arc<Pod>, needs: &[Need]) -> Result<String, Refused> {
        let mut by_node = BTreeMap::new();
        let mut fitting: Vec<(&String, &NodeInfo)> = Vec::new();
        let world = filter::World::new(pod, self.nodes.values(), needs, &self.namespaces);
        for (name, info) in self.nodes.iter().filter(|(_, info)| info.node.is_some()) {
            let found = match self.with_nominated(pod, name, info) {
                Some(fuller) => filter::check(pod, &fuller, &world),
                None => filter::check(pod, info, &world),
            };
            match found {
                Ok(()) => fitting.push((name, info)),
                Err(refusal) => drop(by_node.insert(name.clone(), refusal)),
            }
        }
        // Room was made for it there.
        let kept = nominated_node(pod).filter(|node| fitting.iter().any(|(name, _)| name == node));
        let wishes = || Neighbours::new(pod, self.nodes.values(), &self.namespaces);
        let best = kept.or_else(|| score::best(pod, &fitting, &world, &wishes()));
        let best = best.map(str::to_string);
        let Some(best) = best else {
            return Err(Refused {
                total: self.total(),
                by_node,
            });
        };
        self.place(pod.clone(), best.clone());
        Ok(best)
    }

    /// What to take away for a pod that was refused, or why nothing helps. The room is the pod's from now on.
    pub fn make_room(
        &mut self,
        pod: &Arc<Pod>,
        needs: &[Need],
        refused: &Refused,
        budgets: &[Arc<PodDisruptionBudget>],
    ) -> Result<Candidate, String> {
        let found = self.preempt(pod, needs, refused, budgets)?;
        self.nominate(pod.clone(), found.node.clone());
        Ok(found)
    }

    /// What would have to go for a pod that was refused, or why nothing helps.
    pub fn preempt(
        &self,
        pod: &Pod,
        needs: &[Need],
        refused: &Refused,
        budgets: &[Arc<PodDisruptionBudget>],
    ) -> Result<Candidate, String> {
        let cluster = preempt::Cluster {
            nodes: &self.nodes,
            namespaces: &self.namespaces,
            budgets,
        };
        preempt::preempt(pod, needs, &cluster, refused)
    }

    /// A node with those pods for which room is kept there, if any is at least as important as this one.
    fn with_nominated(&self, pod: &Pod, name: &str, info: &NodeInfo) -> Option<NodeInfo> {
        let others = self.nominated.iter().filter(|(uid, (node, other))| {
            node == name
                && pod.metadata.uid.as_ref() != Some(*uid)
                && preempt::priority(other) >= preempt::priority(pod)
                && !self.places.contains_key(*uid)
        });
        let mut fuller: Option<NodeInfo> = None;
        for (_, (_, other)) in others {
            fuller.get_or_insert_with(|| info.clone()).add(other);
        }
        fuller
    }

    fn place(&mut self, pod: Arc<Pod>, node: String) {
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        match self.places.get(&uid) == Some(&node) {
            true => drop(self.nominated.remove(&uid)),
            false => self.forget(&pod),
        }
        self.nodes.entry(node.clone()).or_default().add(&pod);
        self.places.insert(uid, node);
    }
}

/// Where room is kept for a pod.
pub fn nominated_node(pod: &Pod) -> Option<&str> {
    let name = pod.status.as_ref()?.nominated_node_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}
