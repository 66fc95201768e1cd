//! StatefulSets in detail: identity, order, updates that get stuck, and what becomes of their storage.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn set(cluster: &HollowCluster, replicas: i32, script: Value, extra: Value) {
    let spec = json!({"replicas": replicas, "selector": selector("db"), "serviceName": "db",
        "template": template("db", script)});
    make(cluster, "statefulsets", "db", merged(spec, extra)).await;
}

fn claims(names: &[&str]) -> Value {
    let claim = |name: &&str| {
        json!({"metadata": {"name": name}, "spec": {"accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "1Gi"}}}})
    };
    names.iter().map(claim).collect()
}

async fn up(cluster: &HollowCluster, replicas: i64) -> Value {
    until(cluster, "statefulsets/db", minutes(3), all_ready(replicas)).await
}

async fn updated(cluster: &HollowCluster, replicas: i64) -> Value {
    until(cluster, "statefulsets/db", minutes(5), |set| {
        let status = &set["status"];
        all_ready(replicas)(set) && status["currentRevision"] == status["updateRevision"]
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn each_pod_knows_its_name_its_number_and_its_service() {
    let cluster = cluster().await;
    set(&cluster, 1, json!({}), json!({})).await;
    let set = up(&cluster, 1).await;
    let pod = cluster.get("pods/db-0").await.expect("it");
    assert_eq!(
        (&pod["spec"]["hostname"], &pod["spec"]["subdomain"]),
        (&json!("db-0"), &json!("db"))
    );
    let labels = &pod["metadata"]["labels"];
    assert_eq!(labels["statefulset.kubernetes.io/pod-name"], "db-0");
    assert_eq!(labels["controller-revision-hash"], set["status"]["updateRevision"]);
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_lost_its_name_tag_gets_it_back() {
    let cluster = cluster().await;
    set(&cluster, 2, json!({}), json!({})).await;
    up(&cluster, 2).await;
    let bare = json!({"metadata": {"labels": {"statefulset.kubernetes.io/pod-name": null,
        "apps.kubernetes.io/pod-index": null}}});
    change(&cluster, "pods/db-1", bare).await;
    until(&cluster, "pods/db-1", SOON, |pod| {
        let labels = &pod["metadata"]["labels"];
        labels["statefulset.kubernetes.io/pod-name"] == "db-1" && labels["apps.kubernetes.io/pod-index"] == "1"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn several_may_be_renewed_at_once_where_several_may_be_missing() {
    let cluster = cluster().await;
    let two = json!({"podManagementPolicy": "Parallel", "updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}});
    set(&cluster, 5, json!({"ready-after": "5s"}), two).await;
    up(&cluster, 5).await;
    change(&cluster, "statefulsets/db", image("web:2")).await;
    let mut least = i64::MAX;
    until(&cluster, "statefulsets/db", minutes(3), |set| {
        least = least.min(set["status"]["readyReplicas"].as_i64().unwrap_or(0));
        all_ready(5)(set) && set["status"]["updatedReplicas"] == 5
    })
    .await;
    assert_eq!(least, 3, "two of five, and no more");
}

/// Updates a set of two to an image that is never ready, and goes back when the first pod has it.
async fn take_back_a_bad_update(cluster: &HollowCluster) {
    let bad = image_with("web:2", json!({"ready-after": "never"}));
    change(cluster, "statefulsets/db", bad).await;
    until(cluster, "pods/db-1", minutes(1), |pod| {
        pod["spec"]["containers"][0]["image"] == "web:2"
    })
    .await;
    let good = image_with("web:1", json!({"ready-after": null}));
    change(cluster, "statefulsets/db", good).await;
}

#[tokio::test(start_paused = true)]
async fn a_stuck_update_has_to_be_helped_by_hand() {
    let cluster = cluster().await;
    set(&cluster, 2, json!({}), json!({})).await;
    up(&cluster, 2).await;
    take_back_a_bad_update(&cluster).await;
    stays(&cluster, "pods/db-1", minutes(2), |pod| {
        pod["spec"]["containers"][0]["image"] == "web:2"
    })
    .await;
    remove(&cluster, "pods/db-1").await;
    updated(&cluster, 2).await;
    assert_eq!(images(&cluster, "db").await, ["web:1", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_stuck_update_without_an_order_goes_back_by_itself() {
    let cluster = cluster().await;
    set(&cluster, 2, json!({}), json!({"podManagementPolicy": "Parallel"})).await;
    up(&cluster, 2).await;
    take_back_a_bad_update(&cluster).await;
    updated(&cluster, 2).await;
    assert_eq!(images(&cluster, "db").await, ["web:1", "web:1"]);
}

#[tokio::test(start_paused = true)]
async fn a_scale_in_the_middle_of_an_update_ends_with_all_pods_new() {
    let cluster = cluster().await;
    set(&cluster, 3, json!({"ready-after": "10s"}), json!({})).await;
    up(&cluster, 3).await;
    change(&cluster, "statefulsets/db", image("web:2")).await;
    until(&cluster, "statefulsets/db", minutes(1), |set| {
        set["status"]["updatedReplicas"] == 1
    })
    .await;
    scale(&cluster, "statefulsets/db", 5).await;
    updated(&cluster, 5).await;
    assert_eq!(images(&cluster, "db").await, ["web:2"; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_set_shrinks_only_while_those_below_are_well() {
    let cluster = cluster().await;
    set(&cluster, 3, json!({}), json!({"template": gated_template("db")})).await;
    for pod in ["db-0", "db-1", "db-2"] {
        runs(&cluster, pod).await;
        open_gate(&cluster, pod, "True").await;
    }
    up(&cluster, 3).await;
    open_gate(&cluster, "db-0", "False").await;
    until(&cluster, "statefulsets/db", SOON, |set| {
        set["status"]["readyReplicas"] == 2
    })
    .await;
    scale(&cluster, "statefulsets/db", 1).await;
    stays(&cluster, "statefulsets/db", minutes(1), |set| {
        set["status"]["replicas"] == 3
    })
    .await;
    open_gate(&cluster, "db-0", "True").await;
    up(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn each_pod_of_an_update_has_to_prove_itself() {
    let cluster = cluster().await;
    set(&cluster, 2, json!({}), json!({"minReadySeconds": 30})).await;
    until(&cluster, "statefulsets/db", minutes(3), |set| {
        set["status"]["availableReplicas"] == 2
    })
    .await;
    change(&cluster, "statefulsets/db", image("web:2")).await;
    cluster.pass(Duration::from_secs(20)).await;
    assert_eq!(
        images(&cluster, "db").await,
        ["web:1", "web:2"],
        "the first new one is young"
    );
    until(&cluster, "statefulsets/db", minutes(3), |set| {
        set["status"]["updatedReplicas"] == 2 && set["status"]["availableReplicas"] == 2
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn beyond_the_last_pod_a_partition_holds_everything_back() {
    let cluster = cluster().await;
    set(
        &cluster,
        2,
        json!({}),
        json!({"updateStrategy": {"rollingUpdate": {"partition": 9}}}),
    )
    .await;
    up(&cluster, 2).await;
    change(&cluster, "statefulsets/db", image("web:2")).await;
    scale(&cluster, "statefulsets/db", 3).await;
    let set = up(&cluster, 3).await;
    assert_eq!(
        images(&cluster, "db").await,
        ["web:1"; 3],
        "a new pod too is of the old template"
    );
    let status = &set["status"];
    assert_ne!(status["currentRevision"], status["updateRevision"]);
    assert_eq!(
        (
            &status["currentReplicas"],
            status["updatedReplicas"].as_i64().unwrap_or(0)
        ),
        (&json!(3), 0)
    );
}

#[tokio::test(start_paused = true)]
async fn storage_goes_or_stays_with_the_set_as_the_policy_says() {
    for (policy, left) in [("Delete", 0), ("Retain", 2)] {
        let cluster = cluster().await;
        let retention = json!({"whenDeleted": policy, "whenScaled": "Retain"});
        let storage = json!({"volumeClaimTemplates": claims(&["data"]),
            "persistentVolumeClaimRetentionPolicy": retention});
        set(&cluster, 2, json!({}), storage).await;
        up(&cluster, 2).await;
        remove(&cluster, "statefulsets/db").await;
        gone(&cluster, "pods/db-0", minutes(1)).await;
        cluster.pass(minutes(1)).await;
        let claims = cluster.list("persistentvolumeclaims").await.expect("claims");
        assert_eq!(claims.len(), left, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_changes_holds_for_the_storage_that_is_there() {
    let cluster = cluster().await;
    set(
        &cluster,
        1,
        json!({}),
        json!({"volumeClaimTemplates": claims(&["data"])}),
    )
    .await;
    up(&cluster, 1).await;
    let claim = "persistentvolumeclaims/data-db-0";
    let retention = |policy: &str| json!({"spec": {"persistentVolumeClaimRetentionPolicy": {"whenDeleted": policy}}});
    change(&cluster, "statefulsets/db", retention("Delete")).await;
    until(&cluster, claim, SOON, |claim| {
        claim["metadata"]["ownerReferences"][0]["kind"] == "StatefulSet"
    })
    .await;
    change(&cluster, "statefulsets/db", retention("Retain")).await;
    until(&cluster, claim, SOON, |claim| {
        claim["metadata"]["ownerReferences"].is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_comes_back_from_nothing_finds_its_storage() {
    let cluster = cluster().await;
    set(
        &cluster,
        2,
        json!({}),
        json!({"volumeClaimTemplates": claims(&["data", "log"])}),
    )
    .await;
    up(&cluster, 2).await;
    let before = cluster.list("persistentvolumeclaims").await.expect("claims");
    assert_eq!(names(&before), ["data-db-0", "data-db-1", "log-db-0", "log-db-1"]);
    scale(&cluster, "statefulsets/db", 0).await;
    count(&cluster, "pods?labelSelector=app=db", 0).await;
    scale(&cluster, "statefulsets/db", 2).await;
    up(&cluster, 2).await;
    let uids = |claims: &[Value]| -> Vec<String> {
        claims
            .iter()
            .map(|claim| claim["metadata"]["uid"].to_string())
            .collect()
    };
    let after = cluster.list("persistentvolumeclaims").await.expect("claims");
    assert_eq!(uids(&before), uids(&after));
}

#[tokio::test(start_paused = true)]
async fn storage_that_is_missing_is_made_again_for_a_pod_that_waits_for_it() {
    let cluster = cluster().await;
    let mut waiting = template("db", json!({}));
    waiting["spec"]["nodeSelector"] = json!({"disk": "yes"});
    set(
        &cluster,
        1,
        json!({}),
        json!({"volumeClaimTemplates": claims(&["data"]), "template": waiting}),
    )
    .await;
    let claim = "persistentvolumeclaims/data-db-0";
    let before = until(&cluster, claim, SOON, |claim| claim["status"]["phase"] == "Bound").await;
    remove(&cluster, claim).await;
    // The pod has no node yet: it does not keep the claim, and waits for another one.
    let uid = before["metadata"]["uid"].clone();
    until(&cluster, claim, minutes(2), |claim| claim["metadata"]["uid"] != uid).await;
    change(
        &cluster,
        "nodes/node-1",
        json!({"metadata": {"labels": {"disk": "yes"}}}),
    )
    .await;
    up(&cluster, 1).await;
    let after = cluster.get(claim).await.expect("a claim");
    assert_ne!(before["metadata"]["uid"], after["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn a_name_that_a_stranger_has_is_taken_when_it_is_free() {
    let cluster = cluster().await;
    pod(&cluster, "db-0", "stranger", json!({}), json!({})).await;
    set(&cluster, 1, json!({}), json!({})).await;
    cluster.pass(Duration::from_secs(10)).await;
    let stranger = cluster.get("pods/db-0").await.expect("it");
    assert!(
        stranger["metadata"]["ownerReferences"].is_null(),
        "it is not taken over"
    );
    let set = cluster.get("statefulsets/db").await.expect("the set");
    assert_eq!(
        (&set["status"]["observedGeneration"], &set["status"]["replicas"]),
        (&json!(1), &json!(0)),
        "it says how far it has come: {set}"
    );
    remove(&cluster, "pods/db-0").await;
    up(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_were_left_behind_are_adopted_by_their_names() {
    let cluster = cluster().await;
    set(&cluster, 2, json!({}), json!({})).await;
    up(&cluster, 2).await;
    let uid = cluster.get("pods/db-1").await.expect("it")["metadata"]["uid"].clone();
    cluster.delete("statefulsets/db", "Orphan").await.expect("a deletion");
    gone(&cluster, "statefulsets/db", SOON).await;
    set(&cluster, 2, json!({}), json!({})).await;
    let set = up(&cluster, 2).await;
    let pod = cluster.get("pods/db-1").await.expect("it");
    assert_eq!(pod["metadata"]["uid"], uid);
    assert_eq!(pod["metadata"]["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn templates_that_were_are_remembered_up_to_a_limit() {
    let cluster = cluster().await;
    set(&cluster, 1, json!({}), json!({"revisionHistoryLimit": 1})).await;
    up(&cluster, 1).await;
    for tag in ["web:2", "web:3", "web:4", "web:3"] {
        change(&cluster, "statefulsets/db", image(tag)).await;
        until(&cluster, "pods/db-0", minutes(2), |pod| {
            pod["spec"]["containers"][0]["image"] == tag
        })
        .await;
        updated(&cluster, 1).await;
    }
    let left = count(&cluster, "controllerrevisions", 2).await;
    let mut numbers: Vec<_> = left.iter().map(|one| one["revision"].as_i64()).collect();
    numbers.sort();
    assert_eq!(numbers, [Some(4), Some(5)], "what was gone back to is the newest");
}

#[tokio::test(start_paused = true)]
async fn in_the_middle_of_an_update_both_templates_are_counted() {
    let cluster = cluster().await;
    set(
        &cluster,
        3,
        json!({}),
        json!({"updateStrategy": {"rollingUpdate": {"partition": 2}}}),
    )
    .await;
    let before = up(&cluster, 3).await["status"]["currentRevision"].clone();
    change(&cluster, "statefulsets/db", image("web:2")).await;
    let set = until(&cluster, "statefulsets/db", minutes(1), |set| {
        set["status"]["updatedReplicas"] == 1 && all_ready(3)(set)
    })
    .await;
    assert_eq!(
        (&set["status"]["currentReplicas"], &set["status"]["currentRevision"]),
        (&json!(2), &before)
    );
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_next_pod_is_refused_says_how_far_it_has_come() {
    let cluster = cluster().await;
    make(&cluster, "resourcequotas", "two", json!({"hard": {"pods": "2"}})).await;
    until(&cluster, "resourcequotas/two", SOON, |quota| {
        quota["status"]["hard"]["pods"] == "2"
    })
    .await;
    set(&cluster, 3, json!({}), json!({})).await;
    until(&cluster, "statefulsets/db", minutes(3), |set| {
        set["status"]["readyReplicas"] == 2 && set["status"]["replicas"] == 2
    })
    .await;
    remove(&cluster, "resourcequotas/two").await;
    until(&cluster, "statefulsets/db", minutes(20), all_ready(3)).await;
}
