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

/// A term of a pod's affinity, read once: it is held against every pod of the cluster.
#[derive(Debug, Clone)]
pub struct Term {
    pub topology_key: String,
    scope: Scope,
    /// `None` means no pod.
    selector: Option<Selector>,
}

/// In which namespaces a term looks.
#[derive(Debug, Clone)]
struct Scope {
    named: Vec<String>,
    /// By their labels.
    chosen: Option<Selector>,
}

impl Term {
    /// A term of a pod of this namespace.
    pub fn new(term: &PodAffinityTerm, namespace: &str) -> Self {
        let mut named = term.namespaces.clone().unwrap_or_default();
        if named.is_empty() && term.namespace_selector.is_none() {
            named.push(namespace.to_string());
        }
        Term {
            topology_key: term.topology_key.clone(),
            scope: Scope {
                named,
                chosen: term.namespace_selector.as_ref().and_then(pods::selector),
            },
            selector: term.label_selector.as_ref().and_then(pods::selector),
        }
    }

    /// Whether it means this pod.
    pub fn means(&self, other: &Pod, namespaces: &Namespaces) -> bool {
        let selector = self.selector.as_ref();
        selector.is_some_and(|selector| pods::matches(selector, other)) && self.scope.holds(other, namespaces)
    }

    /// Where a node is, as far as the term goes.
    pub fn place<'a>(&self, node: &'a Node) -> Option<&'a String> {
        labels(node).get(&self.topology_key)
    }
}

impl Scope {
    fn holds(&self, other: &Pod, namespaces: &Namespaces) -> bool {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        let theirs = other.metadata.namespace.as_deref().unwrap_or_default();
        let fits = |selector: &Selector| selector.matches(namespaces.get(theirs).unwrap_or(&NONE));
        self.named.iter().any(|name| name == theirs) || self.chosen.as_ref().is_some_and(fits)
    }
}

/// Places, by topology key: what is asked of each node costs a look for each key, however many places there are.
#[derive(Debug, Default)]
struct Places(BTreeMap<String, BTreeSet<String>>);

impl Places {
    fn add(&mut self, key: &str, place: &str) {
        if let Some(places) = self.0.get_mut(key) {
            if !places.contains(place) {
                places.insert(place.to_string());
            }
        } else {
            self.0.insert(key.to_string(), BTreeSet::from([place.to_string()]));
        }
    }

    /// Whether a node is in one of them.
    fn hold(&self, node: &Node) -> bool {
        let labels = labels(node);
        let mut keys = self.0.iter();
        keys.any(|(key, places)| labels.get(key).is_some_and(|place| places.contains(place)))
    }
}

/// What a pod asks of the pods around it, and what they ask of it.
pub struct Affinity {
    /// Each required term with the places where a matching pod is.
    attracted: Vec<(Term, BTreeSet<String>)>,
    /// Whether the pod would be the first of its group: then it may start anywhere.
    first_of_group: bool,
    /// Where it must not be, by its own wish.
    repelled: Places,
    /// The same, by the wish of pods that are there.
    refused: Places,
}

impl Affinity {
    pub fn new<'a>(pod: &Pod, nodes: impl Iterator<Item = &'a NodeInfo> + Clone, namespaces: &Namespaces) -> Self {
        let mut attracted = Vec::new();
        let mut first_of_group = true;
        for term in attracting(pod) {
            let places = places(&term, nodes.clone(), namespaces);
            first_of_group &= places.is_empty() && term.means(pod, namespaces);
            attracted.push((term, places));
        }
        let mut repelled = Places::default();
        for term in repelling(pod) {
            for place in places(&term, nodes.clone(), namespaces) {
                repelled.add(&term.topology_key, &place);
            }
        }
        let mut refused = Places::default();
        for info in nodes {
            let Some(node) = &info.node else { continue };
            for term in info.repelling.values().flat_map(|terms| terms.iter()) {
                if let Some(place) = term.place(node).filter(|_| term.means(pod, namespaces)) {
                    refused.add(&term.topology_key, place);
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

    /// Whether no pod, wherever it is, makes a difference.
    pub fn is_indifferent(&self) -> bool {
        self.attracted.is_empty() && self.repelled.0.is_empty() && self.refused.0.is_empty()
    }

    pub fn check(&self, node: &Node) -> Option<(Reason, Hope)> {
        let there = |(term, places): &(Term, BTreeSet<String>)| term.place(node).is_some_and(|at| places.contains(at));
        let attracted = self.attracted.iter().all(there)
            || (self.first_of_group && self.attracted.iter().all(|(term, _)| term.place(node).is_some()));
        let (text, hope) = if !attracted {
            ("node(s) didn't match pod affinity rules", Hope::None)
        } else if self.repelled.hold(node) {
            ("node(s) didn't match pod anti-affinity rules", Hope::IfPodsGo)
        } else if self.refused.hold(node) {
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

/// The terms by which a pod demands to be near others.
pub fn attracting(pod: &Pod) -> Vec<Term> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let affinity = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    read(
        pod,
        affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref()),
    )
}

/// The terms by which a pod keeps others away from where it is.
pub fn repelling(pod: &Pod) -> Vec<Term> {
    let affinity = pod.spec.as_ref().and_then(|spec| spec.affinity.as_ref());
    let affinity = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    read(
        pod,
        affinity.and_then(|all| all.required_during_scheduling_ignored_during_execution.as_ref()),
    )
}

fn read(pod: &Pod, terms: Option<&Vec<PodAffinityTerm>>) -> Vec<Term> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let terms = terms.into_iter().flatten();
    terms.map(|term| Term::new(term, namespace)).collect()
}

fn places<'a>(term: &Term, nodes: impl Iterator<Item = &'a NodeInfo>, namespaces: &Namespaces) -> BTreeSet<String> {
    let with_match = nodes.filter(|info| info.pods.values().any(|other| term.means(other, namespaces)));
    with_match
        .filter_map(|info| term.place(info.node.as_ref()?).cloned())
        .collect()
}

/// The labels of a node.
pub fn labels(node: &Node) -> &BTreeMap<String, String> {
    static NONE: BTreeMap<String, String> = BTreeMap::new();
    node.metadata.labels.as_ref().unwrap_or(&NONE)
}
