//! Filters and scores on whole clusters: which node a pod gets, and what it says while it gets none.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn pod(cluster: &HollowCluster, name: &str, extra: Value) {
    let mut pod = template(name.split('-').next().unwrap_or(name), json!({}));
    pod["metadata"]["name"] = json!(name);
    for (key, value) in extra.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    cluster.create("pods", pod).await.expect("a pod");
}

async fn node_of(cluster: &HollowCluster, name: &str) -> String {
    let pod = until(cluster, &format!("pods/{name}"), SOON, |pod| {
        pod["status"]["phase"] == "Running"
    })
    .await;
    pod["spec"]["nodeName"].as_str().unwrap_or_default().to_string()
}

/// Why a pod waits.
async fn waits(cluster: &HollowCluster, name: &str) -> String {
    let pod = until(cluster, &format!("pods/{name}"), SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    let conditions = pod["status"]["conditions"].as_array();
    let scheduled = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "PodScheduled");
    scheduled
        .and_then(|one| one["message"].as_str())
        .unwrap_or_default()
        .to_string()
}

async fn label(cluster: &HollowCluster, node: &str, labels: Value) {
    let patch = json!({"metadata": {"labels": labels}});
    cluster.patch(&format!("nodes/{node}"), patch).await.expect("a label");
}

async fn taint(cluster: &HollowCluster, node: &str, effect: &str) {
    let patch = json!({"spec": {"taints": [{"key": "only", "value": "gpu", "effect": effect}]}});
    cluster.patch(&format!("nodes/{node}"), patch).await.expect("a taint");
}

#[tokio::test(start_paused = true)]
async fn a_selector_waits_for_its_node() {
    let cluster = cluster().await;
    pod(&cluster, "p", json!({"nodeSelector": {"disk": "fast"}})).await;
    assert_eq!(
        waits(&cluster, "p").await,
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector. preemption: 0/3 nodes are \
         available: 3 Preemption is not helpful for scheduling."
    );
    label(&cluster, "node-1", json!({"disk": "fast"})).await;
    assert_eq!(node_of(&cluster, "p").await, "node-1");
}

#[tokio::test(start_paused = true)]
async fn affinity_to_nodes_is_a_demand_or_a_wish() {
    let cluster = cluster().await;
    label(&cluster, "node-2", json!({"size": "7"})).await;
    let larger = |key: &str, value: &str| json!([{"key": key, "operator": "Gt", "values": [value]}]);
    let demand = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": larger("size", "5")}]}}});
    pod(&cluster, "demand", json!({"affinity": demand})).await;
    assert_eq!(node_of(&cluster, "demand").await, "node-2");
    let wish = |value: &str| {
        json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 100, "preference": {"matchExpressions": larger("size", value)}}]}})
    };
    pod(&cluster, "wish", json!({"affinity": wish("5")})).await;
    assert_eq!(node_of(&cluster, "wish").await, "node-2");
    pod(&cluster, "dream", json!({"affinity": wish("9")})).await;
    node_of(&cluster, "dream").await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_repels_and_one_that_came_later_evicts() {
    let cluster = cluster_of(2).await;
    taint(&cluster, "node-0", "NoSchedule").await;
    taint(&cluster, "node-1", "NoSchedule").await;
    pod(&cluster, "p", json!({})).await;
    let why = waits(&cluster, "p").await;
    assert!(
        why.starts_with("0/2 nodes are available: 2 node(s) had untolerated taint(s)."),
        "{why}"
    );
    let tolerant = json!([{"key": "only", "operator": "Exists", "effect": "NoSchedule"}]);
    pod(&cluster, "tolerant", json!({"tolerations": tolerant})).await;
    let node = node_of(&cluster, "tolerant").await;
    taint(&cluster, &node, "NoExecute").await;
    gone(&cluster, "pods/tolerant", minutes(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_wish_to_stay_away_is_outdone_by_need() {
    let cluster = cluster_of(1).await;
    taint(&cluster, "node-0", "PreferNoSchedule").await;
    pod(&cluster, "p", json!({})).await;
    assert_eq!(node_of(&cluster, "p").await, "node-0");
}

#[tokio::test(start_paused = true)]
async fn pods_that_want_each_other_share_a_node_and_rivals_do_not() {
    let cluster = cluster().await;
    let near = |app: &str, side: &str| {
        let term = json!([{"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "kubernetes.io/hostname"}]);
        json!({"affinity": {side: {"requiredDuringSchedulingIgnoredDuringExecution": term}}})
    };
    pod(&cluster, "db", json!({})).await;
    let home = node_of(&cluster, "db").await;
    pod(&cluster, "web", near("db", "podAffinity")).await;
    assert_eq!(node_of(&cluster, "web").await, home);
    for number in 0..3 {
        pod(&cluster, &format!("rival-{number}"), near("rival", "podAntiAffinity")).await;
    }
    let mut homes = Vec::new();
    for number in 0..3 {
        homes.push(node_of(&cluster, &format!("rival-{number}")).await);
    }
    homes.sort();
    assert_eq!(homes, ["node-0", "node-1", "node-2"]);
    pod(&cluster, "rival-3", near("rival", "podAntiAffinity")).await;
    let why = waits(&cluster, "rival-3").await;
    assert!(why.contains("3 node(s) didn't match pod anti-affinity rules"), "{why}");
    pod(&cluster, "lonely", near("nobody", "podAffinity")).await;
    let why = waits(&cluster, "lonely").await;
    assert!(why.contains("3 node(s) didn't match pod affinity rules"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn a_spread_holds_over_zones() {
    let cluster = cluster().await;
    let spread = json!([{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable":
        "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]);
    cluster
        .patch("nodes/node-2", json!({"spec": {"unschedulable": true}}))
        .await
        .expect("a cordon");
    for number in 0..2 {
        pod(
            &cluster,
            &format!("web-{number}"),
            json!({"topologySpreadConstraints": spread}),
        )
        .await;
        node_of(&cluster, &format!("web-{number}")).await;
    }
    pod(&cluster, "web-2", json!({"topologySpreadConstraints": spread})).await;
    let why = waits(&cluster, "web-2").await;
    assert!(
        why.contains("2 node(s) didn't match pod topology spread constraints"),
        "{why}"
    );
    assert!(why.contains("1 node(s) were unschedulable"), "{why}");
    cluster
        .patch("nodes/node-2", json!({"spec": {"unschedulable": null}}))
        .await
        .expect("an end of it");
    assert_eq!(node_of(&cluster, "web-2").await, "node-2");
}

#[tokio::test(start_paused = true)]
async fn a_host_port_is_given_once_on_each_node() {
    let cluster = cluster_of(2).await;
    let port = json!([{"name": "main", "image": "web:1", "ports": [{"containerPort": 80, "hostPort": 8080}]}]);
    for number in 0..2 {
        pod(&cluster, &format!("door-{number}"), json!({"containers": port})).await;
        node_of(&cluster, &format!("door-{number}")).await;
    }
    pod(&cluster, "door-2", json!({"containers": port})).await;
    let why = waits(&cluster, "door-2").await;
    assert!(
        why.contains("2 node(s) didn't have free ports for the requested pod ports"),
        "{why}"
    );
    cluster.delete("pods/door-0", "Background").await.expect("a deletion");
    node_of(&cluster, "door-2").await;
}

#[tokio::test(start_paused = true)]
async fn several_reasons_are_told_together() {
    let cluster = cluster().await;
    taint(&cluster, "node-0", "NoSchedule").await;
    cluster
        .patch("nodes/node-1", json!({"spec": {"unschedulable": true}}))
        .await
        .expect("a cordon");
    let huge = json!([{"name": "main", "image": "web:1", "resources": {"requests": {"memory": "900Gi"}}}]);
    pod(&cluster, "p", json!({"containers": huge})).await;
    let why = waits(&cluster, "p").await;
    for part in [
        "1 Insufficient memory",
        "1 node(s) had untolerated taint(s)",
        "1 node(s) were unschedulable",
    ] {
        assert!(why.contains(part), "{part}: {why}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_scheduler_is_left_to_it() {
    let cluster = cluster().await;
    pod(&cluster, "p", json!({"schedulerName": "other"})).await;
    cluster.pass(minutes(2)).await;
    let waiting = cluster.get("pods/p").await.expect("it");
    assert!(
        waiting["spec"]["nodeName"].is_null() && waiting["status"]["conditions"].is_null(),
        "{waiting}"
    );
}
