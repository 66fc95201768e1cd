//! Deletion: three ways down the tree of owners, and namespaces with all that is in them.

use super::story::*;
use serde_json::json;
use stead_test::hollow_cluster::HollowCluster;

async fn web(cluster: &HollowCluster) {
    let template = template("web", json!({"stop-after": "10s"}));
    let spec = json!({"replicas": 2, "selector": selector("web"), "template": template});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster.create("deployments", object).await.expect("a deployment");
    until(cluster, "deployments/web", SOON, |web| {
        web["status"]["availableReplicas"] == 2
    })
    .await;
}

async fn set_name(cluster: &HollowCluster) -> String {
    name(&cluster.list("replicasets").await.expect("sets")[0])
}

#[tokio::test(start_paused = true)]
async fn in_the_background_the_owner_goes_first() {
    let cluster = cluster().await;
    web(&cluster).await;
    let set = set_name(&cluster).await;
    cluster
        .delete("deployments/web", "Background")
        .await
        .expect("a deletion");
    assert_eq!(cluster.get("deployments/web").await.expect_err("gone").code, 404);
    gone(&cluster, &format!("replicasets/{set}"), SOON).await;
    until(&cluster, "pods?labelSelector=app=web", minutes(2), |list| {
        list["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_the_owner_waits_for_all_below_it() {
    let cluster = cluster().await;
    web(&cluster).await;
    cluster
        .delete("deployments/web", "Foreground")
        .await
        .expect("a deletion");
    cluster.pass(std::time::Duration::from_secs(5)).await;
    let waiting = cluster.get("deployments/web").await.expect("its pods take ten seconds");
    assert_eq!(waiting["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    gone(&cluster, "deployments/web", minutes(2)).await;
    let left = cluster.list("pods?labelSelector=app=web").await.expect("pods");
    assert!(left.is_empty(), "nothing is left below: {left:?}");
    assert!(cluster.list("replicasets").await.expect("sets").is_empty());
}

#[tokio::test(start_paused = true)]
async fn orphans_stay_and_are_adopted_again() {
    let cluster = cluster().await;
    web(&cluster).await;
    let (set, before) = (set_name(&cluster).await, names(&pods(&cluster, "web").await));
    cluster.delete("deployments/web", "Orphan").await.expect("a deletion");
    gone(&cluster, "deployments/web", SOON).await;
    cluster.pass(minutes(2)).await;
    let orphan = cluster.get(&format!("replicasets/{set}")).await.expect("it stays");
    assert!(orphan["metadata"]["ownerReferences"].is_null(), "{orphan}");
    assert_eq!(names(&pods(&cluster, "web").await), before);
    web(&cluster).await;
    let adopted = cluster.get(&format!("replicasets/{set}")).await.expect("it stays");
    assert_eq!(adopted["metadata"]["ownerReferences"][0]["name"], "web");
    assert_eq!(names(&pods(&cluster, "web").await), before);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_goes_with_all_that_is_in_it() {
    let cluster = cluster().await;
    let meta = json!({"metadata": {"name": "shop"}});
    cluster.create("namespaces", meta).await.expect("a namespace");
    let template = template("web", json!({"stop-after": "10s"}));
    let spec = json!({"replicas": 2, "selector": selector("web"), "template": template});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec});
    let path = "/apis/apps/v1/namespaces/shop/deployments";
    cluster.request("POST", path, object).await.expect("a deployment");
    cluster.pass(SOON).await;
    cluster
        .delete("namespaces/shop", "Background")
        .await
        .expect("a deletion");
    gone(&cluster, "namespaces/shop", minutes(3)).await;
}
