//! Which node is chosen, and what is said when none is.

use super::ledger::Ledger;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

fn node(name: &str, extra: Value) -> Arc<Node> {
    let mut node = json!({
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "zone": format!("z-{name}")}},
        "status": {"allocatable": {"cpu": "2", "memory": "4Gi", "pods": "110"}},
    });
    if let Some(spec) = extra.get("spec") {
        node["spec"] = spec.clone();
    }
    Arc::new(serde_json::from_value(node).unwrap())
}

fn pod(name: &str, spec: Value) -> Arc<Pod> {
    let mut full = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "500m"}}}]});
    for (key, value) in spec.as_object().unwrap() {
        full[key] = value.clone();
    }
    let meta = json!({"name": name, "namespace": "n", "uid": name, "labels": {"app": "web"}});
    Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": full})).unwrap())
}

fn three() -> Ledger {
    let mut ledger = Ledger::default();
    for name in ["a", "b", "c"] {
        ledger.see_node(&node(name, json!({})));
    }
    ledger
}

#[test]
fn pods_lie_evenly_and_a_decision_counts_before_the_cache_has_seen_it() {
    let mut ledger = three();
    let mut chosen: Vec<String> = (0..3)
        .map(|i| ledger.choose(&pod(&format!("p{i}"), json!({}))).unwrap())
        .collect();
    chosen.sort();
    assert_eq!(chosen, ["a", "b", "c"]);
}

#[test]
fn a_full_cluster_says_so_in_kubernetes_words() {
    let mut ledger = three();
    let big = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "3"}}}]});
    let why = ledger.choose(&pod("big", big)).unwrap_err();
    assert!(why.starts_with("0/3 nodes are available: 3 Insufficient cpu."), "{why}");
}

#[test]
fn a_pod_that_goes_gives_its_space_back() {
    let mut ledger = Ledger::default();
    ledger.see_node(&node("a", json!({})));
    let whole = json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]});
    let first = pod("first", whole.clone());
    ledger.choose(&first).unwrap();
    assert!(ledger.choose(&pod("second", whole.clone())).is_err());
    ledger.forget(&first);
    assert_eq!(ledger.choose(&pod("second", whole)).unwrap(), "a");
}

#[test]
fn taints_repel_and_tolerations_admit() {
    let mut ledger = Ledger::default();
    let taint = json!({"spec": {"taints": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}});
    ledger.see_node(&node("a", taint));
    let why = ledger.choose(&pod("p", json!({}))).unwrap_err();
    assert!(why.contains("1 node(s) had untolerated taint {gpu: yes}"), "{why}");
    let tolerant = json!({"tolerations": [{"key": "gpu", "operator": "Exists"}]});
    assert_eq!(ledger.choose(&pod("q", tolerant)).unwrap(), "a");
}

#[test]
fn a_cordoned_node_takes_nothing_new() {
    let mut ledger = Ledger::default();
    ledger.see_node(&node("a", json!({"spec": {"unschedulable": true}})));
    let why = ledger.choose(&pod("p", json!({}))).unwrap_err();
    assert!(why.contains("1 node(s) were unschedulable"), "{why}");
}

#[test]
fn selectors_and_affinity_choose_nodes() {
    let mut ledger = three();
    assert_eq!(
        ledger
            .choose(&pod("p", json!({"nodeSelector": {"zone": "z-b"}})))
            .unwrap(),
        "b"
    );
    let affinity = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["z-a", "z-b"]}]}]}}}});
    assert_eq!(ledger.choose(&pod("q", affinity)).unwrap(), "c");
    let why = ledger
        .choose(&pod("r", json!({"nodeSelector": {"zone": "nowhere"}})))
        .unwrap_err();
    assert!(
        why.contains("3 node(s) didn't match Pod's node affinity/selector"),
        "{why}"
    );
}

#[test]
fn anti_affinity_keeps_pods_apart_and_then_says_why() {
    let mut ledger = three();
    let apart = json!({"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
        {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "web"}}}]}}});
    for i in 0..3 {
        ledger.choose(&pod(&format!("p{i}"), apart.clone())).unwrap();
    }
    let why = ledger.choose(&pod("p3", apart)).unwrap_err();
    assert!(why.contains("3 node(s) didn't match pod anti-affinity rules"), "{why}");
}

#[test]
fn hard_spread_holds_the_skew() {
    let mut ledger = three();
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    let mut chosen: Vec<_> = (0..6)
        .map(|i| ledger.choose(&pod(&format!("p{i}"), spread.clone())).unwrap())
        .collect();
    chosen.sort();
    assert_eq!(chosen, ["a", "a", "b", "b", "c", "c"]);
}

#[test]
fn a_host_port_is_given_once_on_each_node() {
    let mut ledger = three();
    let port = json!({"containers": [{"name": "c", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    for i in 0..3 {
        ledger.choose(&pod(&format!("p{i}"), port.clone())).unwrap();
    }
    let why = ledger.choose(&pod("p3", port)).unwrap_err();
    assert!(why.contains("didn't have free ports"), "{why}");
}
