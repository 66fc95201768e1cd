//! ReplicaSets and ReplicationControllers: who belongs, who goes first, and what is counted.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn running(cluster: &HollowCluster, name: &str, script: Value, spec: Value) {
    pod(cluster, name, "web", script, spec).await;
    runs(cluster, name).await;
}

/// Which of the pods that are there stay when a set of this size takes them over.
async fn survivors(cluster: &HollowCluster, size: i32) -> Vec<String> {
    replica_set(cluster, size, json!({})).await;
    count(
        cluster,
        "pods?labelSelector=app=web",
        usize::try_from(size).expect("a small number"),
    )
    .await;
    names(&pods(cluster, "web").await)
}

#[tokio::test(start_paused = true)]
async fn a_pod_without_a_node_goes_before_one_that_has_one() {
    let cluster = cluster().await;
    pod(
        &cluster,
        "lost",
        "web",
        json!({}),
        json!({"nodeSelector": {"nowhere": "true"}}),
    )
    .await;
    running(&cluster, "settled", json!({}), json!({})).await;
    assert_eq!(survivors(&cluster, 1).await, ["settled"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_shares_its_node_with_others_goes_before_one_that_is_alone() {
    let cluster = cluster().await;
    for (name, node) in [("pair-a", "node-0"), ("single", "node-1"), ("pair-b", "node-0")] {
        running(&cluster, name, json!({}), json!({"nodeName": node})).await;
        // Of the pair the younger one goes: it is ready since later.
        cluster.pass(Duration::from_secs(5)).await;
    }
    assert_eq!(survivors(&cluster, 2).await, ["pair-a", "single"]);
}

#[tokio::test(start_paused = true)]
async fn of_equals_those_that_were_ready_last_go_first() {
    let cluster = cluster().await;
    // The older one became ready after the younger one.
    running(
        &cluster,
        "late",
        json!({"ready-after": "40s"}),
        json!({"nodeName": "node-0"}),
    )
    .await;
    running(&cluster, "early", json!({}), json!({"nodeName": "node-1"})).await;
    until(&cluster, "pods/late", minutes(1), |pod| condition(pod, "Ready", "True")).await;
    assert_eq!(survivors(&cluster, 1).await, ["early"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_have_ended_are_replaced_and_left_lying() {
    let cluster = cluster().await;
    replica_set(&cluster, 2, json!({})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(2)).await;
    let victim = name(&pods(&cluster, "web").await[0]);
    let end = json!({"status": {"phase": "Failed", "reason": "Evicted"}});
    change(&cluster, &format!("pods/{victim}/status"), end).await;
    count(&cluster, "pods?labelSelector=app=web", 3).await;
    until(&cluster, "replicasets/web", SOON, all_ready(2)).await;
    let dead = cluster
        .get(&format!("pods/{victim}"))
        .await
        .expect("it is kept to be looked at");
    assert_eq!(dead["status"]["phase"], "Failed");
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_its_way_out_is_replaced_before_it_is_gone() {
    let cluster = cluster().await;
    replica_set(&cluster, 1, json!({"stop-after": "25s"})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(1)).await;
    let first = name(&pods(&cluster, "web").await[0]);
    remove(&cluster, &format!("pods/{first}")).await;
    let set = until(&cluster, "replicasets/web", Duration::from_secs(10), |set| {
        set["status"]["terminatingReplicas"] == 1 && all_ready(1)(set)
    })
    .await;
    assert_eq!(set["status"]["replicas"], 1);
    cluster.get(&format!("pods/{first}")).await.expect("it still ends");
}

#[tokio::test(start_paused = true)]
async fn labels_beyond_the_selector_are_counted_apart() {
    let cluster = cluster().await;
    let mut labelled = template("web", json!({}));
    labelled["metadata"]["labels"]["tier"] = json!("front");
    make(
        &cluster,
        "replicasets",
        "web",
        json!({"replicas": 2, "selector": selector("web"), "template": labelled}),
    )
    .await;
    until(&cluster, "replicasets/web", SOON, |set| {
        set["status"]["fullyLabeledReplicas"] == 2
    })
    .await;
    let first = name(&pods(&cluster, "web").await[0]);
    change(
        &cluster,
        &format!("pods/{first}"),
        json!({"metadata": {"labels": {"tier": null}}}),
    )
    .await;
    let set = until(&cluster, "replicasets/web", SOON, |set| {
        set["status"]["fullyLabeledReplicas"] == 1
    })
    .await;
    assert_eq!(set["status"]["replicas"], 2, "it still belongs");
}

#[tokio::test(start_paused = true)]
async fn of_two_sets_that_want_the_same_orphan_one_gets_it() {
    let cluster = cluster().await;
    running(&cluster, "orphan", json!({}), json!({})).await;
    for name in ["one", "two"] {
        let spec = json!({"replicas": 1, "selector": selector("web"), "template": template("web", json!({}))});
        make(&cluster, "replicasets", name, spec).await;
    }
    for name in ["one", "two"] {
        until(&cluster, &format!("replicasets/{name}"), minutes(1), all_ready(1)).await;
    }
    assert_eq!(pods(&cluster, "web").await.len(), 2);
    let orphan = cluster.get("pods/orphan").await.expect("it stays");
    assert_eq!(
        orphan["metadata"]["ownerReferences"].as_array().map(Vec::len),
        Some(1),
        "{orphan}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_pod_of_another_controller_is_never_taken() {
    let cluster = cluster().await;
    deployment(&cluster, 2, json!({}), json!({})).await;
    until(&cluster, "deployments/web", SOON, rolled_out(2)).await;
    replica_set(&cluster, 1, json!({})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(1)).await;
    stays(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
    assert_eq!(pods(&cluster, "web").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_set_with_expressions_in_its_selector_finds_its_pods() {
    let cluster = cluster().await;
    let choice = json!({"matchExpressions": [{"key": "app", "operator": "In", "values": ["web", "shop"]},
        {"key": "old", "operator": "DoesNotExist"}]});
    make(
        &cluster,
        "replicasets",
        "web",
        json!({"replicas": 2, "selector": choice, "template": template("web", json!({}))}),
    )
    .await;
    until(&cluster, "replicasets/web", SOON, all_ready(2)).await;
    let first = name(&pods(&cluster, "web").await[0]);
    change(
        &cluster,
        &format!("pods/{first}"),
        json!({"metadata": {"labels": {"old": "yes"}}}),
    )
    .await;
    until(&cluster, &format!("pods/{first}"), SOON, |pod| {
        pod["metadata"]["ownerReferences"].is_null()
    })
    .await;
    until(&cluster, "replicasets/web", SOON, all_ready(2)).await;
    assert_eq!(pods(&cluster, "web").await.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn an_orphan_that_has_ended_is_not_adopted() {
    let cluster = cluster().await;
    ended_pod(&cluster, "done", "web").await;
    replica_set(&cluster, 1, json!({})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(1)).await;
    let done = cluster.get("pods/done").await.expect("it stays");
    assert!(done["metadata"]["ownerReferences"].is_null(), "{done}");
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_deleted_without_its_pods_leaves_them_to_the_next() {
    let cluster = cluster().await;
    replica_set(&cluster, 2, json!({})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(2)).await;
    let before = names(&pods(&cluster, "web").await);
    cluster.delete("replicasets/web", "Orphan").await.expect("a deletion");
    gone(&cluster, "replicasets/web", SOON).await;
    let spec = json!({"replicas": 2, "selector": {"app": "web"}, "template": template("web", json!({}))});
    make(&cluster, "replicationcontrollers", "web", spec).await;
    until(&cluster, "replicationcontrollers/web", SOON, all_ready(2)).await;
    assert_eq!(names(&pods(&cluster, "web").await), before);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_scaled_by_the_subresource_says_so_there() {
    let cluster = cluster().await;
    replica_set(&cluster, 1, json!({})).await;
    change(&cluster, "replicasets/web/scale", json!({"spec": {"replicas": 3}})).await;
    let scale = until(&cluster, "replicasets/web/scale", SOON, |scale| {
        scale["status"]["replicas"] == 3
    })
    .await;
    assert_eq!(scale["status"]["selector"], "app=web");
}

#[tokio::test(start_paused = true)]
async fn failed_writes_are_told_once_and_forgotten_when_they_succeed() {
    let cluster = cluster().await;
    make(&cluster, "resourcequotas", "few", json!({"hard": {"pods": "1"}})).await;
    until(&cluster, "resourcequotas/few", SOON, |quota| {
        quota["status"]["hard"]["pods"] == "1"
    })
    .await;
    replica_set(&cluster, 3, json!({})).await;
    until(&cluster, "replicasets/web", minutes(1), |set| {
        condition(set, "ReplicaFailure", "True") && set["status"]["replicas"] == 1
    })
    .await;
    change(&cluster, "resourcequotas/few", json!({"spec": {"hard": {"pods": "5"}}})).await;
    let set = until(&cluster, "replicasets/web", minutes(20), all_ready(3)).await;
    until(&cluster, "replicasets/web", SOON, |set| {
        told(set, "ReplicaFailure").is_null()
    })
    .await;
    assert_eq!(set["status"]["availableReplicas"], 3);
}
