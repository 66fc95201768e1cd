//! Deployments, from the first pod to the last revision.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;

#[tokio::test(start_paused = true)]
async fn a_deployment_rolls_out_scales_and_heals() {
    let cluster = cluster().await;
    deployment(&cluster, 3, json!({}), json!({})).await;
    let ready = until(&cluster, "deployments/web", SOON, rolled_out(3)).await;
    assert!(condition(&ready, "Available", "True"));
    assert_eq!(reason(&ready, "Progressing"), "NewReplicaSetAvailable");
    let before = names(&pods(&cluster, "web").await);
    cluster
        .delete(&format!("pods/{}", before[0]), "Background")
        .await
        .expect("a deletion");
    until(&cluster, "pods?labelSelector=app=web", SOON, |list| {
        let items = list["items"].as_array().cloned().unwrap_or_default();
        items.len() == 3 && !names(&items).contains(&before[0])
    })
    .await;
    cluster
        .patch("deployments/web/scale", json!({"spec": {"replicas": 7}}))
        .await
        .expect("a scale");
    until(&cluster, "deployments/web", SOON, rolled_out(7)).await;
    cluster
        .patch("deployments/web", json!({"spec": {"replicas": 0}}))
        .await
        .expect("a scale");
    until(&cluster, "deployments/web", SOON, |deployment| {
        deployment["status"]["replicas"].is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_rollout_keeps_within_surge_and_unavailable() {
    let cluster = cluster().await;
    let rolling = json!({"strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 1}}});
    deployment(&cluster, 6, json!({"ready-after": "5s"}), rolling).await;
    until(&cluster, "deployments/web", SOON, rolled_out(6)).await;
    cluster
        .patch("deployments/web", image("web:2"))
        .await
        .expect("an update");
    let (mut most, mut least) = (0, i64::MAX);
    until(&cluster, "deployments/web", minutes(2), |deployment| {
        let status = &deployment["status"];
        most = most.max(status["replicas"].as_i64().unwrap_or(0));
        least = least.min(status["availableReplicas"].as_i64().unwrap_or(0));
        rolled_out(6)(deployment)
    })
    .await;
    assert!(most <= 8, "at most 6 + 2 at once, seen {most}");
    assert!(most > 6, "surge was used");
    assert!(least >= 5, "at least 6 - 1 available, seen {least}");
}

#[tokio::test(start_paused = true)]
async fn recreate_ends_the_old_pods_before_the_new_ones_begin() {
    let cluster = cluster().await;
    let recreate = json!({"strategy": {"type": "Recreate"}});
    deployment(&cluster, 3, json!({"stop-after": "4s"}), recreate).await;
    until(&cluster, "deployments/web", SOON, rolled_out(3)).await;
    cluster
        .patch("deployments/web", image("web:2"))
        .await
        .expect("an update");
    until(&cluster, "pods?labelSelector=app=web", minutes(1), |list| {
        let images: Vec<_> = list["items"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|pod| {
                pod["spec"]["containers"][0]["image"]
                    .as_str()
                    .unwrap_or_default()
                    .to_string()
            })
            .collect();
        let (old, new) = (
            images.contains(&"web:1".to_string()),
            images.contains(&"web:2".to_string()),
        );
        assert!(!(old && new), "both at once: {images:?}");
        new && images.len() == 3
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_scales_but_does_not_roll() {
    let cluster = cluster().await;
    deployment(&cluster, 2, json!({}), json!({})).await;
    until(&cluster, "deployments/web", SOON, rolled_out(2)).await;
    let mut change = image("web:2");
    change["spec"]["paused"] = json!(true);
    change["spec"]["replicas"] = json!(4);
    cluster.patch("deployments/web", change).await.expect("an update");
    until(&cluster, "deployments/web", SOON, |deployment| {
        deployment["status"]["availableReplicas"] == 4
    })
    .await;
    cluster.pass(minutes(5)).await;
    let sets = cluster.list("replicasets").await.expect("sets");
    assert_eq!(sets.len(), 1, "no new template while it is paused");
    let paused = cluster.get("deployments/web").await.expect("it");
    assert_eq!(reason(&paused, "Progressing"), "DeploymentPaused");
    cluster
        .patch("deployments/web", json!({"spec": {"paused": false}}))
        .await
        .expect("a resume");
    until(&cluster, "deployments/web", SOON, rolled_out(4)).await;
    assert_eq!(cluster.list("replicasets").await.expect("sets").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn going_back_uses_the_old_set_with_a_new_number() {
    let cluster = cluster().await;
    deployment(&cluster, 2, json!({}), json!({"revisionHistoryLimit": 1})).await;
    until(&cluster, "deployments/web", SOON, rolled_out(2)).await;
    for tag in ["web:2", "web:3", "web:2"] {
        cluster.patch("deployments/web", image(tag)).await.expect("an update");
        until(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
    }
    let at = |object: &Value| object["metadata"]["annotations"]["deployment.kubernetes.io/revision"].clone();
    let now = until(&cluster, "deployments/web", SOON, |deployment| at(deployment) == "4").await;
    assert_eq!(at(&now), "4");
    let sets = until(&cluster, "replicasets", SOON, |list| {
        list["items"].as_array().map_or(0, Vec::len) == 2
    })
    .await;
    let numbers: Vec<_> = sets["items"].as_array().into_iter().flatten().map(at).collect();
    assert!(
        numbers.contains(&json!("4")) && numbers.contains(&json!("3")),
        "{numbers:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_rollout_that_gets_nowhere_says_so_and_recovers() {
    let cluster = cluster().await;
    deployment(&cluster, 2, json!({}), json!({"progressDeadlineSeconds": 60})).await;
    until(&cluster, "deployments/web", SOON, rolled_out(2)).await;
    let mut stuck = image("web:2");
    stuck["spec"]["template"]["metadata"] = json!({"annotations": {"hollow.stead.dev/ready-after": "never"}});
    cluster.patch("deployments/web", stuck).await.expect("an update");
    let late = until(&cluster, "deployments/web", minutes(3), |deployment| {
        reason(deployment, "Progressing") == "ProgressDeadlineExceeded"
    })
    .await;
    assert!(condition(&late, "Progressing", "False"));
    assert!(condition(&late, "Available", "True"), "the old pods still serve");
    let mut good = image("web:3");
    good["spec"]["template"]["metadata"] = json!({"annotations": {"hollow.stead.dev/ready-after": null}});
    cluster.patch("deployments/web", good).await.expect("an update");
    let well = until(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
    assert_eq!(reason(&well, "Progressing"), "NewReplicaSetAvailable");
}

#[tokio::test(start_paused = true)]
async fn pods_count_as_available_after_their_time() {
    let cluster = cluster().await;
    deployment(&cluster, 2, json!({}), json!({"minReadySeconds": 40})).await;
    until(&cluster, "deployments/web", SOON, |deployment| {
        deployment["status"]["readyReplicas"] == 2
    })
    .await;
    let early = cluster.get("deployments/web").await.expect("it");
    assert!(early["status"]["availableReplicas"].is_null(), "{early}");
    cluster.pass(Duration::from_secs(41)).await;
    until(&cluster, "deployments/web", SOON, rolled_out(2)).await;
}

#[tokio::test(start_paused = true)]
async fn old_revisions_beyond_the_limit_are_forgotten() {
    let cluster = cluster().await;
    deployment(&cluster, 1, json!({}), json!({"revisionHistoryLimit": 2})).await;
    until(&cluster, "deployments/web", SOON, rolled_out(1)).await;
    for version in 2..=5 {
        let update = image(&format!("web:{version}"));
        cluster.patch("deployments/web", update).await.expect("an update");
        until(&cluster, "deployments/web", minutes(1), rolled_out(1)).await;
    }
    let sets = until(&cluster, "replicasets", minutes(1), |list| {
        list["items"].as_array().is_some_and(|sets| sets.len() == 3)
    })
    .await;
    let mut revisions: Vec<String> = sets["items"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|set| set["metadata"]["annotations"]["deployment.kubernetes.io/revision"].to_string())
        .collect();
    revisions.sort();
    assert_eq!(revisions, ["\"3\"", "\"4\"", "\"5\""]);
}

#[tokio::test(start_paused = true)]
async fn a_scale_in_the_middle_of_a_rollout_is_shared_by_old_and_new() {
    let cluster = cluster().await;
    let half = json!({"strategy": {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}});
    deployment(&cluster, 8, json!({}), half).await;
    until(&cluster, "deployments/web", SOON, rolled_out(8)).await;
    let mut stuck = image("web:2");
    stuck["spec"]["template"]["metadata"] = json!({"annotations": {"hollow.stead.dev/ready-after": "never"}});
    cluster.patch("deployments/web", stuck).await.expect("an update");
    until(&cluster, "deployments/web", SOON, |one| {
        one["status"]["updatedReplicas"] == 2
    })
    .await;
    cluster
        .patch("deployments/web", json!({"spec": {"replicas": 16}}))
        .await
        .expect("a scale");
    let grown = until(&cluster, "deployments/web", minutes(1), |one| {
        one["status"]["replicas"] == 18
    })
    .await;
    let new = grown["status"]["updatedReplicas"].as_i64().unwrap_or_default();
    assert!(
        (3..=4).contains(&new),
        "both sets have grown in proportion: {new} new ones"
    );
}

#[tokio::test(start_paused = true)]
async fn a_deployment_whose_pods_are_deleted_with_it_leaves_nothing() {
    let cluster = cluster().await;
    deployment(&cluster, 3, json!({"stop-after": "10s"}), json!({})).await;
    until(&cluster, "deployments/web", SOON, rolled_out(3)).await;
    cluster
        .delete("deployments/web", "Foreground")
        .await
        .expect("a deletion");
    gone(&cluster, "deployments/web", minutes(2)).await;
    assert!(cluster.list("replicasets").await.expect("sets").is_empty());
    assert!(cluster.list("pods").await.expect("pods").is_empty());
}
