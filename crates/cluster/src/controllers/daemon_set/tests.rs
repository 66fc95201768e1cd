//! DaemonSets told by nodes and pods: who gets a pod, who loses one.

use super::nodes;
use super::steps::World;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

fn set(template: Value, strategy: Value) -> DaemonSet {
    serde_json::from_value(json!({
        "metadata": {"name": "agent", "uid": "set"},
        "spec": {"selector": {}, "template": {"spec": template}, "updateStrategy": strategy},
    }))
    .unwrap()
}

fn node(name: &str, taint: Option<(&str, &str)>) -> Arc<Node> {
    let taints: Vec<Value> = taint
        .iter()
        .map(|(key, effect)| json!({"key": key, "effect": effect}))
        .collect();
    let meta = json!({"name": name, "labels": {"disk": name}});
    Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": {"taints": taints}})).unwrap())
}

/// A pod as `node hash state`.
fn pod(text: &str) -> Arc<Pod> {
    let words: Vec<&str> = text.split(' ').collect();
    let mut pod = json!({
        "metadata": {"name": text.replace(' ', "-"), "labels": {"controller-revision-hash": words[1]}},
        "spec": {"nodeName": words[0], "containers": []},
        "status": {"phase": if words[2] == "failed" { "Failed" } else { "Running" }},
    });
    if words[2] == "ready" {
        pod["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

/// Steps read as `+node` and `-pod`.
#[track_caller]
fn check(set: &DaemonSet, nodes: &[Arc<Node>], have: &[&str], expected: &[&str]) {
    let pods: Vec<_> = have.iter().map(|text| pod(text)).collect();
    let spec = set.spec.as_ref().unwrap();
    let steps = World::new(set, spec, nodes, &pods, "new", Timestamp::UNIX_EPOCH).steps();
    let creates = steps.create.iter().map(|node| format!("+{node}"));
    let deletes = steps
        .delete
        .iter()
        .map(|pod| format!("-{}", pod.metadata.name.clone().unwrap()));
    assert_eq!(creates.chain(deletes).collect::<Vec<_>>(), expected);
}

#[test]
fn every_node_that_fits_gets_one_pod() {
    let set = set(json!({"containers": []}), json!({}));
    let nodes = [
        node("a", None),
        node("b", Some(("dedicated", "NoSchedule"))),
        node("c", Some(("node.kubernetes.io/unschedulable", "NoSchedule"))),
    ];
    check(&set, &nodes, &[], &["+a", "+c"]);
    check(&set, &nodes, &["a new ready", "c new ready"], &[]);
    check(
        &set,
        &nodes,
        &["a new ready", "a new waiting", "c new ready"],
        &["-a-new-waiting"],
    );
    check(&set, &nodes, &["a new failed", "c new ready"], &["-a-new-failed"]);
}

#[test]
fn a_pod_leaves_a_node_that_no_longer_wants_it() {
    let picky = set(json!({"containers": [], "nodeSelector": {"disk": "a"}}), json!({}));
    let nodes = [node("a", None), node("b", None)];
    check(&picky, &nodes, &["a new ready", "b new ready"], &["-b-new-ready"]);
    let any = set(json!({"containers": []}), json!({}));
    let tainted = [
        node("a", Some(("x", "NoSchedule"))),
        node("b", Some(("x", "NoExecute"))),
    ];
    check(
        &any,
        &tainted,
        &["a new ready", "b new ready", "gone new ready"],
        &["-b-new-ready", "-gone-new-ready"],
    );
}

#[test]
fn an_update_replaces_no_more_pods_than_may_be_missing() {
    let nodes = [node("a", None), node("b", None), node("c", None)];
    let rolling = set(
        json!({"containers": []}),
        json!({"rollingUpdate": {"maxUnavailable": 1}}),
    );
    check(
        &rolling,
        &nodes,
        &["a old ready", "b old ready", "c old ready"],
        &["-a-old-ready"],
    );
    check(&rolling, &nodes, &["a new waiting", "b old ready", "c old ready"], &[]);
    check(
        &rolling,
        &nodes,
        &["a new ready", "b old ready", "c old waiting"],
        &["-c-old-waiting"],
    );
    let manual = set(json!({"containers": []}), json!({"type": "OnDelete"}));
    check(&manual, &nodes, &["a old ready", "b old ready", "c old ready"], &[]);
}

#[test]
fn with_surge_the_new_pod_is_ready_before_the_old_one_goes() {
    let nodes = [node("a", None), node("b", None)];
    let surge = set(
        json!({"containers": []}),
        json!({"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}),
    );
    check(&surge, &nodes, &["a old ready", "b old ready"], &["+a"]);
    check(&surge, &nodes, &["a old ready", "a new waiting", "b old ready"], &[]);
    check(
        &surge,
        &nodes,
        &["a old ready", "a new ready", "b old ready"],
        &["-a-old-ready"],
    );
}

#[test]
fn a_pod_is_bound_for_its_node_by_name() {
    let set = set(json!({"containers": []}), json!({}));
    let pod = nodes::pod(&set, set.spec.as_ref().unwrap(), "a", "new");
    assert_eq!(nodes::node_of(&pod), Some("a"));
    let nodes = [node("a", None), node("b", None)];
    assert_eq!(nodes::fit(&pod, &nodes[0]), nodes::Fit::Runs);
    assert_eq!(nodes::fit(&pod, &nodes[1]), nodes::Fit::Never);
}

#[test]
fn the_status_counts_nodes() {
    let set = set(json!({"containers": []}), json!({}));
    let nodes = [node("a", None), node("b", None), node("c", Some(("x", "NoSchedule")))];
    let pods = [pod("a new ready"), pod("b old waiting"), pod("c old ready")];
    let spec = set.spec.as_ref().unwrap();
    let status = World::new(&set, spec, &nodes, &pods, "new", Timestamp::UNIX_EPOCH)
        .status()
        .unwrap();
    assert_eq!(
        (
            status.desired_number_scheduled,
            status.current_number_scheduled,
            status.number_ready
        ),
        (2, 2, 1)
    );
    assert_eq!(
        (status.updated_number_scheduled, status.number_misscheduled),
        (Some(1), 1)
    );
    assert_eq!((status.number_available, status.number_unavailable), (Some(1), Some(1)));
}
