//! What makes a revision of a Deployment and what does not, and how revisions are named, numbered and kept.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn up(cluster: &HollowCluster, replicas: i32) {
    until(cluster, "deployments/web", minutes(1), rolled_out(replicas.into())).await;
}

async fn started(extra: Value) -> HollowCluster {
    let cluster = cluster_of(1).await;
    deployment(&cluster, 2, json!({}), extra).await;
    up(&cluster, 2).await;
    cluster
}

async fn sets(cluster: &HollowCluster) -> Vec<Value> {
    cluster.list("replicasets").await.expect("sets")
}

fn annotation<'a>(object: &'a Value, name: &str) -> &'a Value {
    &object["metadata"]["annotations"][format!("deployment.kubernetes.io/{name}")]
}

#[tokio::test(start_paused = true)]
async fn a_restart_is_a_new_annotation_of_the_template() {
    let cluster = started(json!({})).await;
    let before = names(&pods(&cluster, "web").await);
    let now = json!({"kubectl.kubernetes.io/restartedAt": "2026-01-01T00:00:00Z"});
    change(
        &cluster,
        "deployments/web",
        json!({"spec": {"template": {"metadata": {"annotations": now}}}}),
    )
    .await;
    until(&cluster, "deployments/web", minutes(1), |web| {
        rolled_out(2)(web) && *annotation(web, "revision") == "2"
    })
    .await;
    let after = names(&pods(&cluster, "web").await);
    assert!(before.iter().all(|name| !after.contains(name)), "{before:?} {after:?}");
}

#[tokio::test(start_paused = true)]
async fn another_label_of_the_template_comes_to_new_pods_only() {
    let cluster = started(json!({})).await;
    change(
        &cluster,
        "deployments/web",
        json!({"spec": {"template": {"metadata": {"labels": {"tier": "front"}}}}}),
    )
    .await;
    count(&cluster, "pods?labelSelector=tier=front", 2).await;
    up(&cluster, 2).await;
    assert_eq!(sets(&cluster).await.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_scale_or_a_label_of_its_own_is_no_revision() {
    let cluster = started(json!({})).await;
    scale(&cluster, "deployments/web", 3).await;
    change(
        &cluster,
        "deployments/web",
        json!({"metadata": {"labels": {"team": "blue"}}}),
    )
    .await;
    up(&cluster, 3).await;
    cluster.pass(minutes(1)).await;
    assert_eq!(sets(&cluster).await.len(), 1);
    let web = cluster.get("deployments/web").await.expect("it");
    assert_eq!(*annotation(&web, "revision"), "1");
}

#[tokio::test(start_paused = true)]
async fn annotations_are_handed_down_but_for_those_of_its_own() {
    let cluster = started(json!({})).await;
    let notes =
        json!({"kubernetes.io/change-cause": "better", "kubectl.kubernetes.io/last-applied-configuration": "{}"});
    change(&cluster, "deployments/web", json!({"metadata": {"annotations": notes}})).await;
    let name = name(&sets(&cluster).await[0]);
    let set = until(&cluster, &format!("replicasets/{name}"), SOON, |set| {
        set["metadata"]["annotations"]["kubernetes.io/change-cause"] == "better"
    })
    .await;
    assert!(
        set["metadata"]["annotations"]["kubectl.kubernetes.io/last-applied-configuration"].is_null(),
        "{set}"
    );
    assert_eq!(
        (annotation(&set, "desired-replicas"), annotation(&set, "max-replicas")),
        (&json!("2"), &json!("3"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_revision_that_came_back_remembers_its_old_numbers() {
    let cluster = started(json!({})).await;
    let first = name(&sets(&cluster).await[0]);
    for tag in ["web:2", "web:1", "web:2", "web:1"] {
        change(&cluster, "deployments/web", image(tag)).await;
        up(&cluster, 2).await;
    }
    let set = until(&cluster, &format!("replicasets/{first}"), SOON, |set| {
        *annotation(set, "revision") == "5"
    })
    .await;
    assert_eq!(*annotation(&set, "revision-history"), "1,3");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_somebody_else_has_is_not_fought_over() {
    let cluster = started(json!({})).await;
    let taken = name(&sets(&cluster).await[0]);
    cluster
        .delete("deployments/web", "Foreground")
        .await
        .expect("a deletion");
    gone(&cluster, "deployments/web", minutes(1)).await;
    let spec = json!({"replicas": 0, "selector": selector("other"), "template": template("other", json!({}))});
    make(&cluster, "replicasets", &taken, spec).await;
    deployment(&cluster, 2, json!({}), json!({})).await;
    let web = until(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
    assert_eq!(web["status"]["collisionCount"], 1, "{web}");
    let other = cluster.get(&format!("replicasets/{taken}")).await.expect("it stays");
    assert!(other["metadata"]["ownerReferences"].is_null(), "it is left alone");
}

#[tokio::test(start_paused = true)]
async fn a_history_of_nothing_keeps_only_what_runs() {
    let cluster = started(json!({"revisionHistoryLimit": 0})).await;
    change(&cluster, "deployments/web", image("web:2")).await;
    up(&cluster, 2).await;
    let left = count(&cluster, "replicasets", 1).await;
    assert_eq!(left[0]["spec"]["template"]["spec"]["containers"][0]["image"], "web:2");
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_that_is_deleted_by_hand_comes_back_under_its_name() {
    let cluster = started(json!({})).await;
    let before = sets(&cluster).await.remove(0);
    remove(&cluster, &format!("replicasets/{}", name(&before))).await;
    until(&cluster, &format!("replicasets/{}", name(&before)), minutes(1), |set| {
        set["metadata"]["uid"] != before["metadata"]["uid"] && all_ready(2)(set)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_replica_set_that_is_scaled_by_hand_is_set_right() {
    let cluster = started(json!({})).await;
    let set = format!("replicasets/{}", name(&sets(&cluster).await[0]));
    scale(&cluster, &set, 5).await;
    until(&cluster, &set, minutes(1), |set| set["spec"]["replicas"] == 2).await;
    up(&cluster, 2).await;
}

#[tokio::test(start_paused = true)]
async fn two_deployments_with_one_selector_keep_apart() {
    let cluster = started(json!({})).await;
    let spec = json!({"replicas": 3, "selector": selector("web"), "template": template("web", json!({"note": "b"}))});
    make(&cluster, "deployments", "twin", spec).await;
    until(&cluster, "deployments/twin", minutes(1), rolled_out(3)).await;
    stays(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
    assert_eq!(pods(&cluster, "web").await.len(), 5);
}

#[tokio::test(start_paused = true)]
async fn the_hash_of_the_template_is_in_labels_selector_and_names() {
    let cluster = started(json!({})).await;
    let set = sets(&cluster).await.remove(0);
    let hash = set["metadata"]["labels"]["pod-template-hash"]
        .as_str()
        .expect("a hash")
        .to_string();
    assert_eq!(name(&set), format!("web-{hash}"));
    assert_eq!(
        set["spec"]["selector"]["matchLabels"]["pod-template-hash"],
        hash.as_str()
    );
    for pod in pods(&cluster, "web").await {
        assert_eq!(pod["metadata"]["labels"]["pod-template-hash"], hash.as_str());
        assert!(name(&pod).starts_with(&format!("web-{hash}-")), "{}", name(&pod));
    }
}

#[tokio::test(start_paused = true)]
async fn another_patience_reaches_the_set_without_a_roll_out() {
    let cluster = started(json!({})).await;
    change(&cluster, "deployments/web", json!({"spec": {"minReadySeconds": 15}})).await;
    let set = format!("replicasets/{}", name(&sets(&cluster).await[0]));
    until(&cluster, &set, SOON, |set| set["spec"]["minReadySeconds"] == 15).await;
    assert_eq!(sets(&cluster).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_set_whose_template_somebody_edits_is_an_old_one_from_then_on() {
    let cluster = started(json!({})).await;
    let edited = name(&sets(&cluster).await[0]);
    change(&cluster, &format!("replicasets/{edited}"), image("web:edited")).await;
    let web = until(&cluster, "deployments/web", minutes(5), |web| {
        rolled_out(2)(web) && web["status"]["collisionCount"] == 1
    })
    .await;
    assert!(condition(&web, "Available", "True"), "{web}");
    assert_eq!(images(&cluster, "web").await, ["web:1", "web:1"]);
    let sets = count(&cluster, "replicasets", 2).await;
    let emptied = sets.iter().find(|set| name(set) == edited).expect("the edited one");
    assert_eq!(emptied["spec"]["replicas"], 0, "{emptied}");
    stays(&cluster, "deployments/web", minutes(5), |web| {
        web["status"]["collisionCount"] == 1 && rolled_out(2)(web)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_refused_is_told_of_by_its_deployment() {
    let cluster = cluster_of(1).await;
    let none = json!({"hard": {"count/replicasets.apps": "0"}});
    make(&cluster, "resourcequotas", "none", none).await;
    until(&cluster, "resourcequotas/none", SOON, |quota| {
        quota["status"]["hard"]["count/replicasets.apps"] == "0"
    })
    .await;
    deployment(&cluster, 1, json!({}), json!({})).await;
    let web = until(&cluster, "deployments/web", minutes(1), |web| {
        reason(web, "Progressing") == "ReplicaSetCreateError"
    })
    .await;
    let told = told(&web, "Progressing");
    assert_eq!(told["status"], "False", "{told}");
    let words = event(&cluster, "ReplicaSetCreateError").await;
    assert_eq!(told["message"], words.as_str());
    assert!(words.starts_with("Failed to create new replica set \"web-"), "{words}");
    assert!(words.contains("\": replicasets.apps \"web-"), "{words}");
    assert!(words.contains("is forbidden: exceeded quota: none"), "{words}");
    remove(&cluster, "resourcequotas/none").await;
    let web = until(&cluster, "deployments/web", minutes(20), rolled_out(1)).await;
    assert!(condition(&web, "Progressing", "True"), "{web}");
}
