//! What workloads and nodes tell people in events, in Kubernetes' words, and how much of it.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

/// A quota on pods that is in force.
async fn allow(cluster: &HollowCluster, pods: &str) {
    make(cluster, "resourcequotas", "few", json!({"hard": {"pods": pods}})).await;
    until(cluster, "resourcequotas/few", SOON, |quota| {
        quota["status"]["hard"]["pods"] == pods
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_tells_of_each_pod_that_it_makes_and_deletes() {
    let cluster = cluster_of(1).await;
    replica_set(&cluster, 2, json!({})).await;
    until(&cluster, "replicasets/web", minutes(1), all_ready(2)).await;
    let told = |what: &str, pods: &[Value]| -> Vec<String> {
        names(pods).iter().map(|name| format!("{what} pod: {name}")).collect()
    };
    let both = pods(&cluster, "web").await;
    until(&cluster, "events", SOON, |list| {
        items(list)
            .iter()
            .filter(|event| event["reason"] == "SuccessfulCreate")
            .count()
            == 2
    })
    .await;
    assert_eq!(
        notes(&cluster, "ReplicaSet", "SuccessfulCreate").await,
        told("Created", &both)
    );
    scale(&cluster, "replicasets/web", 0).await;
    count(&cluster, "pods", 0).await;
    until(&cluster, "events", SOON, |list| {
        items(list)
            .iter()
            .filter(|event| event["reason"] == "SuccessfulDelete")
            .count()
            == 2
    })
    .await;
    assert_eq!(
        notes(&cluster, "ReplicaSet", "SuccessfulDelete").await,
        told("Deleted", &both)
    );
}

#[tokio::test(start_paused = true)]
async fn every_kind_of_workload_tells_of_its_pods() {
    let cluster = cluster_of(1).await;
    let spec = |extra: Value| merged(json!({"template": template("web", json!({}))}), extra);
    let selected = json!({"selector": selector("web")});
    let plain = json!({"replicas": 1, "selector": {"app": "web"}});
    make(&cluster, "replicationcontrollers", "rc", spec(plain)).await;
    make(&cluster, "daemonsets", "ds", spec(selected)).await;
    let mut once = spec(json!({}));
    once["template"]["spec"]["restartPolicy"] = json!("Never");
    make(&cluster, "jobs", "job", once).await;
    for kind in ["ReplicationController", "DaemonSet", "Job"] {
        let notes = notes(&cluster, kind, "SuccessfulCreate").await;
        assert!(notes[0].starts_with("Created pod: "), "{kind}: {notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_tells_of_its_pods_and_claims() {
    let cluster = cluster_of(1).await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let spec = json!({"replicas": 1, "selector": selector("db"), "serviceName": "db",
        "template": template("db", json!({})), "volumeClaimTemplates": [claim]});
    make(&cluster, "statefulsets", "db", spec).await;
    until(&cluster, "statefulsets/db", minutes(1), all_ready(1)).await;
    until(&cluster, "events", SOON, |list| {
        items(list)
            .iter()
            .any(|event| event["note"] == "Create Pod db-0 in StatefulSet db successful")
    })
    .await;
    assert_eq!(
        notes(&cluster, "StatefulSet", "SuccessfulCreate").await,
        [
            "Create Claim data-db-0 Pod db-0 in StatefulSet db success",
            "Create Pod db-0 in StatefulSet db successful"
        ]
    );
    scale(&cluster, "statefulsets/db", 0).await;
    assert_eq!(
        notes(&cluster, "StatefulSet", "SuccessfulDelete").await,
        ["Delete Pod db-0 in StatefulSet db successful"]
    );
    allow(&cluster, "0").await;
    scale(&cluster, "statefulsets/db", 1).await;
    let refused = notes(&cluster, "StatefulSet", "FailedCreate").await;
    assert!(
        refused[0].starts_with(
            "Create Pod db-0 in StatefulSet db failed error: pods \"db-0\" is forbidden: exceeded quota: few"
        ),
        "{refused:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn where_one_pod_is_refused_the_others_are_not_even_tried() {
    let cluster = cluster_of(1).await;
    allow(&cluster, "0").await;
    replica_set(&cluster, 30, json!({})).await;
    until(&cluster, "replicasets/web", SOON, |set| {
        condition(set, "ReplicaFailure", "True")
    })
    .await;
    let notes = notes(&cluster, "ReplicaSet", "FailedCreate").await;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with("Error creating: pods \"web-"), "{notes:?}");
    assert!(notes[0].contains("is forbidden: exceeded quota: few"), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn of_many_pods_most_are_told_of_together() {
    let cluster = cluster_of(1).await;
    replica_set(&cluster, 60, json!({})).await;
    until(&cluster, "replicasets/web", minutes(2), all_ready(60)).await;
    cluster.pass(minutes(1)).await;
    let notes = notes(&cluster, "ReplicaSet", "SuccessfulCreate").await;
    assert_eq!(notes.len(), 10, "{notes:?}");
    let combined = "(combined from similar events): Created pod: web-";
    assert!(notes[0].starts_with(combined), "{notes:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_refused_keeps_no_workload_from_saying_how_far_it_has_come() {
    let cluster = cluster_of(3).await;
    allow(&cluster, "1").await;
    let spec = json!({"selector": selector("agent"), "template": template("agent", json!({}))});
    make(&cluster, "daemonsets", "agent", spec).await;
    until(&cluster, "daemonsets/agent", minutes(2), |set| {
        set["status"]["desiredNumberScheduled"] == 3 && set["status"]["numberReady"] == 1
    })
    .await;
    let mut once = template("work", json!({}));
    once["spec"]["restartPolicy"] = json!("Never");
    job(&cluster, once, json!({"completions": 2})).await;
    until(&cluster, "jobs/work", minutes(2), |job| {
        job["status"]["startTime"].is_string()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_falls_silent_is_told_of_with_its_pods() {
    let cluster = cluster_of(2).await;
    pod(&cluster, "a", "web", json!({}), json!({"nodeName": "node-0"})).await;
    until(&cluster, "pods/a", minutes(1), |pod| condition(pod, "Ready", "True")).await;
    set_power(&cluster, "node-0", json!("stopped")).await;
    assert_eq!(
        notes(&cluster, "Node", "NodeNotReady").await,
        ["Node node-0 status is now: NodeNotReady"]
    );
    assert_eq!(notes(&cluster, "Pod", "NodeNotReady").await, ["Node is not ready"]);
    cluster.pass(minutes(5)).await;
    assert_eq!(
        notes(&cluster, "Pod", "TaintManagerEviction").await,
        ["Marking for deletion Pod default/a"]
    );
}
