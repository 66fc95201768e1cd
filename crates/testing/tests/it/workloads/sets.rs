//! StatefulSets and DaemonSets.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn set(cluster: &HollowCluster, replicas: i32, script: Value, extra: Value) {
    let spec = merged(
        json!({"replicas": replicas, "selector": selector("db"), "serviceName": "db",
        "template": template("db", script)}),
        extra,
    );
    let object = json!({"metadata": {"name": "db"}, "spec": spec});
    cluster.create("statefulsets", object).await.expect("a set");
}

fn ready(count: i64) -> impl FnMut(&Value) -> bool {
    move |set| {
        set["status"]["readyReplicas"] == count
            && set["status"]["replicas"] == count
            && set["status"]["observedGeneration"] == set["metadata"]["generation"]
    }
}

fn updated(count: i64) -> impl FnMut(&Value) -> bool {
    move |set| ready(count)(set) && set["status"]["currentRevision"] == set["status"]["updateRevision"]
}

#[tokio::test(start_paused = true)]
async fn pods_come_in_order_and_go_in_reverse() {
    let cluster = cluster().await;
    set(&cluster, 3, json!({"ready-after": "5s"}), json!({})).await;
    let mut seen = Vec::new();
    until(&cluster, "pods?labelSelector=app=db", minutes(1), |list| {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        for pod in &items {
            let number = name(pod);
            if !seen.contains(&number) {
                let others = items.iter().filter(|other| name(other) != number);
                let mut unready = others.filter(|other| !condition(other, "Ready", "True"));
                assert!(
                    unready.next().is_none(),
                    "{number} came before those below it were ready"
                );
                seen.push(number);
            }
        }
        seen.len() == 3
    })
    .await;
    assert_eq!(seen, ["db-0", "db-1", "db-2"]);
    until(&cluster, "statefulsets/db", minutes(1), ready(3)).await;
    cluster
        .patch("statefulsets/db", json!({"spec": {"replicas": 1}}))
        .await
        .expect("a scale");
    until(&cluster, "statefulsets/db", minutes(1), ready(1)).await;
    assert_eq!(names(&pods(&cluster, "db").await), ["db-0"]);
}

#[tokio::test(start_paused = true)]
async fn parallel_sets_do_not_wait() {
    let cluster = cluster().await;
    let parallel = json!({"podManagementPolicy": "Parallel", "ordinals": {"start": 5}});
    set(&cluster, 3, json!({"ready-after": "never"}), parallel).await;
    until(&cluster, "statefulsets/db", SOON, |set| set["status"]["replicas"] == 3).await;
    assert_eq!(names(&pods(&cluster, "db").await), ["db-5", "db-6", "db-7"]);
}

#[tokio::test(start_paused = true)]
async fn an_update_goes_down_to_the_partition() {
    let cluster = cluster().await;
    let partition = json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}});
    set(&cluster, 4, json!({}), partition).await;
    until(&cluster, "statefulsets/db", minutes(1), ready(4)).await;
    cluster
        .patch("statefulsets/db", image("web:2"))
        .await
        .expect("an update");
    until(&cluster, "statefulsets/db", minutes(2), |set| {
        set["status"]["updatedReplicas"] == 2 && ready(4)(set)
    })
    .await;
    assert_eq!(images(&cluster, "db").await, ["web:1", "web:1", "web:2", "web:2"]);
    cluster.delete("pods/db-0", "Background").await.expect("a deletion");
    cluster.pass(SOON).await;
    until(&cluster, "statefulsets/db", minutes(1), ready(4)).await;
    assert_eq!(
        images(&cluster, "db").await[0],
        "web:1",
        "below the partition the old template stays"
    );
    let all = json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}});
    cluster.patch("statefulsets/db", all).await.expect("an update");
    until(&cluster, "statefulsets/db", minutes(2), updated(4)).await;
    assert_eq!(images(&cluster, "db").await, ["web:2"; 4]);
}

#[tokio::test(start_paused = true)]
async fn on_delete_waits_for_a_hand() {
    let cluster = cluster().await;
    set(&cluster, 2, json!({}), json!({"updateStrategy": {"type": "OnDelete"}})).await;
    until(&cluster, "statefulsets/db", minutes(1), ready(2)).await;
    cluster
        .patch("statefulsets/db", image("web:2"))
        .await
        .expect("an update");
    cluster.pass(minutes(2)).await;
    assert_eq!(images(&cluster, "db").await, ["web:1", "web:1"]);
    cluster.delete("pods/db-1", "Background").await.expect("a deletion");
    cluster.pass(SOON).await;
    until(&cluster, "statefulsets/db", minutes(1), ready(2)).await;
    assert_eq!(images(&cluster, "db").await, ["web:1", "web:2"]);
}

#[tokio::test(start_paused = true)]
async fn claims_outlive_pods_and_go_when_the_policy_says_so() {
    let cluster = cluster().await;
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}}}});
    let policy = json!({"whenScaled": "Delete", "whenDeleted": "Retain"});
    let mut mounting = template("db", json!({}));
    mounting["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
    let extra = json!({"volumeClaimTemplates": [claim], "persistentVolumeClaimRetentionPolicy": policy,
        "template": mounting});
    set(&cluster, 2, json!({}), extra).await;
    until(&cluster, "statefulsets/db", minutes(1), ready(2)).await;
    let before = cluster.get("persistentvolumeclaims/data-db-0").await.expect("a claim");
    assert_eq!(before["status"]["phase"], "Bound", "{before}");
    cluster.delete("pods/db-0", "Background").await.expect("a deletion");
    cluster.pass(SOON).await;
    until(&cluster, "statefulsets/db", minutes(1), ready(2)).await;
    let after = cluster.get("persistentvolumeclaims/data-db-0").await.expect("a claim");
    assert_eq!(after["spec"]["volumeName"], before["spec"]["volumeName"]);
    cluster
        .patch("statefulsets/db", json!({"spec": {"replicas": 1}}))
        .await
        .expect("a scale");
    gone(&cluster, "persistentvolumeclaims/data-db-1", minutes(1)).await;
    cluster
        .delete("statefulsets/db", "Background")
        .await
        .expect("a deletion");
    gone(&cluster, "pods/db-0", minutes(1)).await;
    let kept = cluster.list("persistentvolumeclaims").await.expect("claims");
    assert_eq!(names(&kept), ["data-db-0"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_runs_on_every_node_and_is_renewed_one_by_one() {
    let cluster = cluster().await;
    let spec = json!({"selector": selector("agent"), "template": template("agent", json!({"ready-after": "3s"}))});
    let object = json!({"metadata": {"name": "agent"}, "spec": spec});
    cluster.create("daemonsets", object).await.expect("a set");
    let all = |set: &Value| {
        let status = &set["status"];
        status["numberAvailable"] == 3
            && status["updatedNumberScheduled"] == 3
            && status["observedGeneration"] == set["metadata"]["generation"]
    };
    until(&cluster, "daemonsets/agent", minutes(1), all).await;
    assert_eq!(nodes_of(&cluster, "agent").await, ["node-0", "node-1", "node-2"]);
    cluster
        .patch("daemonsets/agent", image("web:2"))
        .await
        .expect("an update");
    let mut least = i64::MAX;
    until(&cluster, "daemonsets/agent", minutes(2), |set| {
        least = least.min(set["status"]["numberAvailable"].as_i64().unwrap_or(0));
        all(set)
    })
    .await;
    assert_eq!(least, 2, "one at a time");
    assert_eq!(images(&cluster, "agent").await, ["web:2"; 3]);
    let revisions = cluster.list("controllerrevisions").await.expect("revisions");
    assert_eq!(revisions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_scaled_away_keeps_or_loses_its_claims_as_it_says() {
    for (policy, left) in [("Retain", 2), ("Delete", 1)] {
        let cluster = cluster().await;
        let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}}]);
        let retention = json!({"whenScaled": policy, "whenDeleted": "Retain"});
        let extra = json!({"volumeClaimTemplates": claims, "persistentVolumeClaimRetentionPolicy": retention});
        set(&cluster, 2, json!({}), extra).await;
        until(&cluster, "statefulsets/db", minutes(1), ready(2)).await;
        cluster
            .patch("statefulsets/db", json!({"spec": {"replicas": 1}}))
            .await
            .expect("a scale");
        until(&cluster, "statefulsets/db", minutes(1), ready(1)).await;
        cluster.pass(minutes(2)).await;
        let claims = cluster.list("persistentvolumeclaims").await.expect("claims");
        assert_eq!(claims.len(), left, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_set_numbers_its_pods_from_where_it_says() {
    let cluster = cluster().await;
    set(&cluster, 2, json!({}), json!({"ordinals": {"start": 3}})).await;
    until(&cluster, "statefulsets/db", minutes(1), ready(2)).await;
    assert_eq!(names(&pods(&cluster, "db").await), ["db-3", "db-4"]);
    let pod = cluster.get("pods/db-3").await.expect("it");
    assert_eq!(pod["metadata"]["labels"]["apps.kubernetes.io/pod-index"], "3");
    cluster
        .patch("statefulsets/db", json!({"spec": {"ordinals": {"start": 2}}}))
        .await
        .expect("a change");
    until(&cluster, "pods/db-2", minutes(1), |pod| condition(pod, "Ready", "True")).await;
    gone(&cluster, "pods/db-4", minutes(1)).await;
}
