//! Which nodes a daemon belongs on, and the pod that is bound for one of them. Pure.

use crate::controllers::{history, ownership, pods};
use crate::scheduler::filter;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec};
use k8s_openapi::api::core::v1::{
    Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration,
};

const GENERATION: &str = "deprecated.daemonset.template.generation";
/// Troubles of a node that daemons live through: they may be the cure.
const ENDURED: &[(&str, &str)] = &[
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
];

/// What a node says to a daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fit {
    /// It shall run there.
    Runs,
    /// It would not be started there, but may stay.
    Stays,
    /// It must not be there.
    Never,
}

/// Whether a node is one for this template; `pod` as [`template_pod`] makes it.
pub fn fit(pod: &Pod, node: &Node) -> Fit {
    let named = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
    if named.is_some_and(|name| node.metadata.name.as_ref() != Some(name))
        || filter::affinity::node(pod, node).is_some()
    {
        return Fit::Never;
    }
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let bad: Vec<&Taint> = taints.filter(|taint| !filter::tolerates(pod, taint)).collect();
    if bad.iter().any(|taint| taint.effect == "NoExecute") {
        Fit::Never
    } else if bad.iter().any(|taint| taint.effect == "NoSchedule") {
        Fit::Stays
    } else {
        Fit::Runs
    }
}

/// A pod of the template with what daemons endure, for no node yet.
pub fn template_pod(set: &DaemonSet, spec: &DaemonSetSpec) -> Pod {
    let meta = &set.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    let mut pod = pods::from_template(&spec.template, meta.namespace.as_deref(), name);
    if let Some(inner) = &mut pod.spec {
        let on_host = inner.host_network == Some(true);
        let network = on_host.then_some(("node.kubernetes.io/network-unavailable", "NoSchedule"));
        let tolerations = inner.tolerations.get_or_insert_default();
        for (key, effect) in ENDURED.iter().copied().chain(network) {
            let toleration = Toleration {
                key: Some(key.to_string()),
                operator: Some("Exists".to_string()),
                effect: Some(effect.to_string()),
                ..Toleration::default()
            };
            if !tolerations.contains(&toleration) {
                tolerations.push(toleration);
            }
        }
    }
    pod
}

/// The pod for one node. The scheduler binds it, by an affinity that no other node meets.
pub fn pod(set: &DaemonSet, spec: &DaemonSetSpec, node: &str, hash: &str) -> Pod {
    let mut pod = template_pod(set, spec);
    pod.metadata.owner_references = Some(vec![ownership::controller_reference(set)]);
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(history::HASH_LABEL.to_string(), hash.to_string());
    let annotations = set.metadata.annotations.as_ref();
    if let Some(generation) = annotations.and_then(|all| all.get(GENERATION)) {
        labels.insert("pod-template-generation".to_string(), generation.clone());
    }
    let affinity = pod.spec.get_or_insert_default().affinity.get_or_insert_default();
    let on_nodes = affinity.node_affinity.get_or_insert_default();
    on_nodes.required_during_scheduling_ignored_during_execution = Some(NodeSelector {
        node_selector_terms: vec![NodeSelectorTerm {
            match_expressions: None,
            match_fields: Some(vec![NodeSelectorRequirement {
                key: "metadata.name".to_string(),
                operator: "In".to_string(),
                values: Some(vec![node.to_string()]),
            }]),
        }],
    });
    pod
}

/// The node that a pod of ours is on or is bound for.
pub fn node_of(pod: &Pod) -> Option<&str> {
    let spec = pod.spec.as_ref()?;
    if let Some(name) = &spec.node_name {
        return Some(name);
    }
    let on_nodes = spec.affinity.as_ref()?.node_affinity.as_ref()?;
    let required = on_nodes.required_during_scheduling_ignored_during_execution.as_ref()?;
    let fields = required
        .node_selector_terms
        .iter()
        .flat_map(|term| term.match_fields.iter().flatten());
    let mut named = fields.filter(|field| field.key == "metadata.name" && field.operator == "In");
    named.find_map(|field| field.values.as_ref()?.first().map(String::as_str))
}
