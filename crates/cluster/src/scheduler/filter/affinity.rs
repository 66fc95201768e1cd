//! Where a pod must run: node selectors and affinity, and affinity to other pods. Pure.

use super::{Hope, Reason};
use crate::controllers::pods;
use crate::scheduler::ledger::NodeInfo;
use k8s_openapi::api::core::v1::{Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm};
use std::collections::{BTreeMap, BTreeSet};
use stead_machinery::selector::LabelSelector as Selector;

/// The labels of each namespace, by which affinity terms may choose namespaces.
pub type Namespaces = BTreeMap<String, BTreeMap<String, String>>;

/// Whether the pod's node selector and required node affinity refuse a node.
pub fn node(pod: &Pod, node: &Node) -> Option<Reason> {
    let refused = || Some(Reason("node(s) didn't match Pod's node affinity/selector".to_string()));
    let spec = pod.spec.as_ref()?;
    let labels = labels(node);
    if spec
        .node_selector
        .iter()
        .flatten()
        .any(|(key, value)| labels.get(key) != Some(value))
    {
        return refused();
    }
    let affinity = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref());
    let required =
        affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref())?;
    if required.node_selector_terms.iter().any(|term| matches_term(term, node)) {
        None
    } else {
        refused()
    }
}

/// Whether a node matches a term: all of its requirements. A term without any matches nothing.
pub fn matches_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let (expressions, fields) = (term.match_expressions.as_deref(), term.match_fields.as_deref());
    if expressions.unwrap_or_default().is_empty() && fields.unwrap_or_default().is_empty() {
        return false;
    }
    let labels = labels(node);
    let name = node.metadata.name.as_ref();
    expressions
        .unwrap_or_default()
        .iter()
        .all(|need| holds(need, labels.get(&need.key)))
        && fields
            .unwrap_or_default()
            .iter()
            .all(|need| holds(need, name.filter(|_| need.key == "metadata.name")))
}

fn holds(need: &NodeSelectorRequirement, value: Option<&String>) -> bool {
    let listed = |value: &String| need.values.iter().flatten().any(|wanted| wanted == value);
    let number = |text: Option<&String>| text.and_then(|text| text.parse::<i64>().ok());
    let bound = number(need.values.iter().flatten().next());
    match need.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number(value).zip(bound).is_some_and(|(value, bound)| value > bound),
        "Lt" => number(value).zip(bound).is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

/// What a pod asks of the pods around it, and what they ask of it.
pub struct Affinity<'a> {
    /// Each required term with the places where a matching pod is.
    attracted: Vec<(&'a str, BTreeSet<String>)>,
    /// Whether the pod would be the first of its group: then it may start anywhere.
    first_of_group: bool,
    /// Topology key and values where it must not be, by its own wish.
    repelled: BTreeSet<(String, String)>,
    /// The same, by the wish of pods that are there.
    refused: BTreeSet<(String, String)>,
}

impl<'a> Affinity<'a> {
    pub fn new(pod: &'a Pod, nodes: impl Iterator<Item = &'a NodeInfo> + Clone, namespaces: &Namespaces) -> Self {
        let own = terms(pod);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let mut attracted = Vec::new();
        let mut first_of_group = true;
        for term in &own.attract {
            let places = places(term, namespace, nodes.clone(), namespaces);
            first_of_group &= places.is_empty() && fits(term, namespace, pod, namespaces);
            attracted.push((term.topology_key.as_str(), places));
        }
        let mut repelled = BTreeSet::new();
        for term in &own.repel {
            for place in places(term, namespace, nodes.clone(), namespaces) {
                repelled.insert((term.topology_key.clone(), place));
            }
        }
        let mut refused = BTreeSet::new();
        for info in nodes {
            let Some(node) = &info.node else { continue };
            for other in info.repelling.iter().filter_map(|uid| info.pods.get(uid)) {
                let theirs = other.metadata.namespace.as_deref().unwrap_or_default();
                for term in terms(other).repel {
                    let means = fits(term, theirs, pod, namespaces);
                    if let Some(place) = labels(node).get(&term.topology_key).filter(|_| means) {
                        refused.insert((term.topology_key.clone(), place.clone()));
                    }
                }
            }
        }
        Affinity {
            attracted,
            first_of_group,
            repelled,
            refused,
        }
    }

    pub fn check(&self, node: &Node) -> Option<(Reason, Hope)> {
        let labels = labels(node);
        let there = |key: &str, places: &BTreeSet<String>| labels.get(key).is_some_and(|place| places.contains(place));
        let attracted = self.attracted.iter().all(|(key, places)| there(key, places))
            || (self.first_of_group && self.attracted.iter().all(|(key, _)| labels.contains_key(*key)));
        let hit = |set: &BTreeSet<(String, String)>| set.iter().any(|(key, place)| labels.get(key) == Some(place));
        let (text, hope) = if !attracted {
            ("node(s) didn't match pod affinity rules", Hope::None)
        } else if hit(&self.repelled) {
            ("node(s) didn't match pod anti-affinity rules", Hope::IfPodsGo)
        } else if hit(&self.refused) {
            (
                "node(s) didn't satisfy existing pods anti-affinity rules",
                Hope::IfPodsGo,
            )
        } else {
            return None;
        };
        Some((Reason(text.to_string()), hope))
    }
}

#[derive(Default)]
struct Terms<'a> {
    attract: Vec<&'a PodAffinityTerm>,
    repel: Vec<&'a PodAffinityTerm>,
}

/// Whether a pod keeps others away from where it is.
pub fn keeps_away(pod: &Pod) -> bool {
    !terms(pod).repel.is_empty()
}

fn terms(pod: &Pod) -> Terms<'_> {
    let Some(affinity) = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref()) else {
        return Terms::default();
    };
    let attract = affinity.pod_affinity.iter();
    let repel = affinity.pod_anti_affinity.iter();
    Terms {
        attract: attract
            .flat_map(|a| a.required_during_scheduling_ignored_during_execution.iter().flatten())
            .collect(),
        repel: repel
            .flat_map(|a| a.required_during_scheduling_ignored_during_execution.iter().flatten())
            .collect(),
    }
}

fn places<'a>(
    term: &PodAffinityTerm,
    namespace: &str,
    nodes: impl Iterator<Item = &'a NodeInfo>,
    namespaces: &Namespaces,
) -> BTreeSet<String> {
    let with_match = nodes.filter(|info| {
        let mut pods = info.pods.values();
        pods.any(|other| fits(term, namespace, other, namespaces))
    });
    with_match
        .filter_map(|info| labels(info.node.as_ref()?).get(&term.topology_key).cloned())
        .collect()
}

/// Whether a term of a pod in `namespace` means another pod.
pub fn fits(term: &PodAffinityTerm, namespace: &str, other: &Pod, namespaces: &Namespaces) -> bool {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    let theirs = other.metadata.namespace.as_deref().unwrap_or_default();
    let listed = term.namespaces.as_deref().unwrap_or_default();
    let chosen = term.namespace_selector.as_ref().and_then(pods::selector);
    let chosen = chosen.is_some_and(|selector| selector.matches(namespaces.get(theirs).unwrap_or(&NONE)));
    let same = listed.is_empty() && term.namespace_selector.is_none() && theirs == namespace;
    let in_scope = chosen || same || listed.iter().any(|name| name == theirs);
    let selector: Option<Selector> = term
        .label_selector
        .as_ref()
        .filter(|_| in_scope)
        .and_then(pods::selector);
    selector.is_some_and(|selector| pods::matches(&selector, other))
}

/// The labels of a node.
pub fn labels(node: &Node) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    node.metadata.labels.as_ref().unwrap_or(&NONE)
}
