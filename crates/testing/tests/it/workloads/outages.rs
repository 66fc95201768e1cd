//! Nodes in trouble: what is said of them, which pods leave when, and what happens when they come back.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

fn taints(node: &Value) -> Vec<(String, String)> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    let text = |taint: &Value, field: &str| taint[field].as_str().unwrap_or_default().to_string();
    let mut all: Vec<_> = taints
        .map(|taint| (text(taint, "key"), text(taint, "effect")))
        .collect();
    all.sort();
    all
}

fn pair(key: &str, effect: &str) -> (String, String) {
    (format!("node.kubernetes.io/{key}"), effect.to_string())
}

async fn silent(cluster: &HollowCluster, node: &str) -> Value {
    set_power(cluster, node, json!("stopped")).await;
    until(cluster, &format!("nodes/{node}"), minutes(3), |node| {
        condition(node, "Ready", "Unknown") && !taints(node).is_empty()
    })
    .await
}

async fn on(cluster: &HollowCluster, name: &str, node: &str, extra: Value) {
    pod(
        cluster,
        name,
        "web",
        json!({}),
        merged(json!({"nodeName": node}), extra),
    )
    .await;
    runs(cluster, name).await;
}

#[tokio::test(start_paused = true)]
async fn a_silent_node_says_in_all_its_conditions_that_nobody_knows() {
    let cluster = cluster_of(2).await;
    let node = silent(&cluster, "node-0").await;
    for type_ in ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"] {
        let said = told(&node, type_);
        assert_eq!(
            (&said["status"], &said["reason"]),
            (&json!("Unknown"), &json!("NodeStatusUnknown")),
            "{type_}"
        );
    }
    assert_eq!(told(&node, "Ready")["message"], "Kubelet stopped posting node status.");
    assert_eq!(
        taints(&node),
        [pair("unreachable", "NoExecute"), pair("unreachable", "NoSchedule")]
    );
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_silent_node_are_not_ready_and_behind_no_service() {
    let cluster = cluster_of(2).await;
    make(
        &cluster,
        "services",
        "web",
        json!({"selector": {"app": "web"}, "ports": [{"port": 80}]}),
    )
    .await;
    on(&cluster, "a", "node-0", json!({})).await;
    silent(&cluster, "node-0").await;
    until(&cluster, "pods/a", minutes(1), |pod| condition(pod, "Ready", "False")).await;
    until(&cluster, "endpointslices", minutes(1), |list| {
        items(list)
            .iter()
            .any(|slice| slice["endpoints"][0]["conditions"]["ready"] == false)
    })
    .await;
    set_power(&cluster, "node-0", Value::Null).await;
    until(&cluster, "pods/a", minutes(2), |pod| condition(pod, "Ready", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn each_pod_leaves_when_its_own_patience_is_over() {
    let cluster = cluster_of(2).await;
    let patience = |seconds: Value| {
        json!({"tolerations": [{"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": seconds}]})
    };
    on(&cluster, "hasty", "node-0", patience(json!(10))).await;
    on(&cluster, "usual", "node-0", json!({})).await;
    on(&cluster, "stoic", "node-0", patience(Value::Null)).await;
    let usual = cluster.get("pods/usual").await.expect("it");
    let given = usual["spec"]["tolerations"].as_array().into_iter().flatten();
    let seconds: Vec<_> = given.map(|one| one["tolerationSeconds"].as_i64()).collect();
    assert_eq!(
        seconds,
        [Some(300), Some(300)],
        "everybody has five minutes for both troubles"
    );
    silent(&cluster, "node-0").await;
    let leaving = async || {
        let all = cluster.list("pods").await.expect("pods");
        let mut leaving = all;
        leaving.retain(|pod| pod["metadata"]["deletionTimestamp"].is_string());
        names(&leaving)
    };
    cluster.pass(Duration::from_secs(30)).await;
    assert_eq!(leaving().await, ["hasty"]);
    cluster.pass(minutes(6)).await;
    assert_eq!(leaving().await, ["hasty", "usual"]);
    let usual = cluster.get("pods/usual").await.expect("its node cannot end it");
    assert_eq!(reason(&usual, "DisruptionTarget"), "DeletionByTaintManager");
}

#[tokio::test(start_paused = true)]
async fn where_no_node_is_well_nobody_is_driven_away() {
    let cluster = cluster_of(2).await;
    on(&cluster, "a", "node-0", json!({})).await;
    set_power(&cluster, "node-1", json!("stopped")).await;
    set_power(&cluster, "node-0", json!("stopped")).await;
    for node in ["node-0", "node-1"] {
        until(&cluster, &format!("nodes/{node}"), minutes(3), |node| {
            condition(node, "Ready", "Unknown")
        })
        .await;
    }
    let node = until(&cluster, "nodes/node-0", minutes(1), |node| {
        taints(node) == [pair("unreachable", "NoSchedule")]
    })
    .await;
    assert!(condition(&node, "Ready", "Unknown"));
    cluster.pass(minutes(10)).await;
    let pod = cluster.get("pods/a").await.expect("it stays");
    assert!(
        pod["metadata"]["deletionTimestamp"].is_null(),
        "there is no place to move to"
    );
    set_power(&cluster, "node-1", Value::Null).await;
    until(&cluster, "nodes/node-0", minutes(2), |node| taints(node).len() == 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_off_for_good_gives_its_pods_free_at_once() {
    let cluster = cluster_of(2).await;
    on(&cluster, "a", "node-0", json!({})).await;
    silent(&cluster, "node-0").await;
    remove(&cluster, "pods/a").await;
    stays(&cluster, "pods/a", minutes(1), |pod| {
        pod["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    let node = cluster.get("nodes/node-0").await.expect("it");
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.push(json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}));
    change(&cluster, "nodes/node-0", json!({"spec": {"taints": taints}})).await;
    gone(&cluster, "pods/a", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_to_go_after_their_node_was_given_up_are_freed_too() {
    let cluster = cluster_of(2).await;
    let bears = json!({"tolerations": [{"operator": "Exists"}]});
    on(&cluster, "stays", "node-0", bears).await;
    on(&cluster, "leaves", "node-0", json!({})).await;
    silent(&cluster, "node-0").await;
    let node = cluster.get("nodes/node-0").await.expect("it");
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.push(json!({"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}));
    change(&cluster, "nodes/node-0", json!({"spec": {"taints": taints}})).await;
    gone(&cluster, "pods/leaves", minutes(1)).await;
    cluster.pass(minutes(10)).await;
    remove(&cluster, "pods/stays").await;
    gone(&cluster, "pods/stays", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_takes_its_pods_along() {
    let cluster = cluster_of(2).await;
    on(&cluster, "lost", "node-0", json!({})).await;
    on(&cluster, "safe", "node-1", json!({})).await;
    set_power(&cluster, "node-0", json!("stopped")).await;
    remove(&cluster, "nodes/node-0").await;
    gone(&cluster, "pods/lost", minutes(1)).await;
    stays(&cluster, "pods/safe", minutes(1), |pod| condition(pod, "Ready", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_cordon_is_a_taint_and_moves_nobody() {
    let cluster = cluster_of(2).await;
    on(&cluster, "a", "node-0", json!({})).await;
    change(&cluster, "nodes/node-0", json!({"spec": {"unschedulable": true}})).await;
    until(&cluster, "nodes/node-0", SOON, |node| {
        taints(node) == [pair("unschedulable", "NoSchedule")]
    })
    .await;
    for number in 0..3 {
        pod(&cluster, &format!("b-{number}"), "web", json!({}), json!({})).await;
        assert_eq!(
            runs(&cluster, &format!("b-{number}")).await["spec"]["nodeName"],
            "node-1"
        );
    }
    cluster.get("pods/a").await.expect("it stays");
    change(&cluster, "nodes/node-0", json!({"spec": {"unschedulable": null}})).await;
    until(&cluster, "nodes/node-0", SOON, |node| taints(node).is_empty()).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_under_pressure_is_left_alone_and_says_so() {
    let cluster = cluster_of(2).await;
    set_power(&cluster, "node-0", json!("partitioned")).await;
    let node = cluster.get("nodes/node-0").await.expect("it");
    let mut conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    for one in conditions.iter_mut().filter(|one| one["type"] == "DiskPressure") {
        one["status"] = json!("True");
    }
    change(
        &cluster,
        "nodes/node-0/status",
        json!({"status": {"conditions": conditions}}),
    )
    .await;
    until(&cluster, "nodes/node-0", SOON, |node| {
        taints(node) == [pair("disk-pressure", "NoSchedule")]
    })
    .await;
    pod(&cluster, "a", "web", json!({}), json!({})).await;
    assert_eq!(runs(&cluster, "a").await["spec"]["nodeName"], "node-1");
}

#[tokio::test(start_paused = true)]
async fn taints_of_people_stay_whatever_a_node_does() {
    let cluster = cluster_of(2).await;
    let own = json!({"key": "team", "value": "blue", "effect": "NoSchedule"});
    change(&cluster, "nodes/node-0", json!({"spec": {"taints": [own]}})).await;
    let lost = silent(&cluster, "node-0").await;
    assert!(taints(&lost).contains(&("team".to_string(), "NoSchedule".to_string())));
    set_power(&cluster, "node-0", Value::Null).await;
    until(&cluster, "nodes/node-0", minutes(2), |node| {
        taints(node) == [("team".to_string(), "NoSchedule".to_string())]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_gives_a_sign_of_life_in_its_lease() {
    let cluster = cluster_of(1).await;
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";
    let renewed = async || {
        let lease = cluster.request("GET", path, Value::Null).await.expect("a lease");
        assert_eq!(lease["spec"]["holderIdentity"], "node-0");
        lease["spec"]["renewTime"].as_str().unwrap_or_default().to_string()
    };
    let first = renewed().await;
    cluster.pass(minutes(1)).await;
    let second = renewed().await;
    assert!(second > first, "{first} {second}");
    set_power(&cluster, "node-0", json!("stopped")).await;
    cluster.pass(Duration::from_secs(15)).await;
    let third = renewed().await;
    cluster.pass(minutes(1)).await;
    assert_eq!(renewed().await, third, "it is silent");
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_put_on_a_tainted_node_by_name_runs_there_or_leaves_at_once() {
    let cluster = cluster_of(1).await;
    change(
        &cluster,
        "nodes/node-0",
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    )
    .await;
    on(&cluster, "named", "node-0", json!({})).await;
    change(
        &cluster,
        "nodes/node-0",
        json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    )
    .await;
    gone(&cluster, "pods/named", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_silent_node_are_not_ready_even_where_no_node_is_well() {
    let cluster = cluster_of(1).await;
    on(&cluster, "a", "node-0", json!({})).await;
    until(&cluster, "pods/a", SOON, |pod| condition(pod, "Ready", "True")).await;
    set_power(&cluster, "node-0", json!("stopped")).await;
    let pod = until(&cluster, "pods/a", minutes(3), |pod| condition(pod, "Ready", "False")).await;
    assert!(
        pod["metadata"]["deletionTimestamp"].is_null(),
        "there is no place to move to: {pod}"
    );
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_node_that_says_it_is_not_well_are_not_ready() {
    let cluster = cluster_of(1).await;
    let node = json!({"metadata": {"name": "by-hand"}});
    cluster.create("nodes", node).await.expect("a node");
    pod(&cluster, "a", "web", json!({}), json!({"nodeName": "by-hand"})).await;
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2000-01-01T00:00:00Z"}]);
    let running = json!({"status": {"phase": "Running", "conditions": ready}});
    change(&cluster, "pods/a/status", running).await;
    let trouble = json!([{"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": "disk",
        "lastHeartbeatTime": "2200-01-01T00:00:00Z", "lastTransitionTime": "2001-01-01T00:00:00Z"}]);
    change(
        &cluster,
        "nodes/by-hand/status",
        json!({"status": {"conditions": trouble}}),
    )
    .await;
    until(&cluster, "pods/a", minutes(1), |pod| condition(pod, "Ready", "False")).await;
    // What the node says of a pod after that is its own word, and nobody argues with it.
    let ready = json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2002-01-01T00:00:00Z"}]);
    change(&cluster, "pods/a/status", json!({"status": {"conditions": ready}})).await;
    stays(&cluster, "pods/a", minutes(1), |pod| condition(pod, "Ready", "True")).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_clock_is_at_the_end_of_time_is_a_node_like_any_other() {
    let cluster = cluster_of(1).await;
    set_power(&cluster, "node-0", json!("partitioned")).await;
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/node-0";
    let late = json!({"spec": {"renewTime": "9999-12-30T21:59:59.000000Z"}});
    cluster.request("PATCH", lease, late).await.expect("a lease");
    change(&cluster, "nodes/node-0", json!({"spec": {"unschedulable": true}})).await;
    until(&cluster, "nodes/node-0", SOON, |node| {
        taints(node) == [pair("unschedulable", "NoSchedule")]
    })
    .await;
    stays(&cluster, "nodes/node-0", minutes(5), |node| {
        condition(node, "Ready", "True")
    })
    .await;
}
