//! Owners and what becomes of what they owned; namespaces that are emptied, and what holds them up.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn map(cluster: &HollowCluster, name: &str, meta: Value) -> Value {
    let meta = merged(json!({"name": name}), meta);
    cluster
        .create("configmaps", json!({"metadata": meta}))
        .await
        .expect("a map")
}

fn owned_by(owner: &Value, extra: Value) -> Value {
    let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name(owner),
        "uid": owner["metadata"]["uid"]});
    json!({"ownerReferences": [merged(reference, extra)]})
}

async fn exists(cluster: &HollowCluster, what: &str) -> bool {
    cluster.get(what).await.is_ok()
}

#[tokio::test(start_paused = true)]
async fn in_the_foreground_only_those_that_block_are_waited_for() {
    let cluster = cluster_of(1).await;
    let owner = map(&cluster, "owner", json!({})).await;
    let held = json!({"finalizers": ["example.com/hold"]});
    map(&cluster, "free", merged(owned_by(&owner, json!({})), held.clone())).await;
    map(
        &cluster,
        "blocks",
        merged(owned_by(&owner, json!({"blockOwnerDeletion": true})), held),
    )
    .await;
    cluster
        .delete("configmaps/owner", "Foreground")
        .await
        .expect("a deletion");
    cluster.pass(minutes(1)).await;
    assert!(
        exists(&cluster, "configmaps/owner").await,
        "one that blocks is still there"
    );
    change(&cluster, "configmaps/blocks", json!({"metadata": {"finalizers": null}})).await;
    gone(&cluster, "configmaps/owner", minutes(1)).await;
    let free = cluster.get("configmaps/free").await.expect("its finalizer keeps it");
    assert!(free["metadata"]["deletionTimestamp"].is_string(), "{free}");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_was_given_again_is_another_owner() {
    let cluster = cluster_of(1).await;
    let owner = map(&cluster, "owner", json!({})).await;
    remove(&cluster, "configmaps/owner").await;
    map(&cluster, "owner", json!({})).await;
    map(&cluster, "child", owned_by(&owner, json!({}))).await;
    gone(&cluster, "configmaps/child", minutes(2)).await;
    assert!(exists(&cluster, "configmaps/owner").await);
}

#[tokio::test(start_paused = true)]
async fn an_owner_in_another_namespace_is_none() {
    let cluster = cluster_of(1).await;
    let owner = map(&cluster, "owner", json!({})).await;
    cluster
        .create("namespaces", json!({"metadata": {"name": "far"}}))
        .await
        .expect("a namespace");
    let child = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": merged(json!({"name": "child"}), owned_by(&owner, json!({})))});
    let path = "/api/v1/namespaces/far/configmaps";
    cluster.request("POST", path, child).await.expect("a child");
    for _ in 0..200 {
        match cluster.request("GET", &format!("{path}/child"), Value::Null).await {
            Err(refused) => {
                assert_eq!(refused.code, 404);
                return;
            }
            Ok(_) => cluster.pass(std::time::Duration::from_secs(1)).await,
        }
    }
    panic!("the child stays");
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_the_whole_cluster_may_own_what_is_in_a_namespace() {
    let cluster = cluster_of(1).await;
    let class = json!({"metadata": {"name": "owner"}, "value": 5});
    let owner = cluster.create("priorityclasses", class).await.expect("an owner");
    let reference = json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "name": "owner",
        "uid": owner["metadata"]["uid"]});
    map(&cluster, "child", json!({"ownerReferences": [reference]})).await;
    cluster.pass(minutes(1)).await;
    assert!(exists(&cluster, "configmaps/child").await);
    remove(&cluster, "priorityclasses/owner").await;
    gone(&cluster, "configmaps/child", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_owner_of_a_kind_that_nobody_knows_is_taken_for_alive() {
    let cluster = cluster_of(1).await;
    let unknown = json!({"apiVersion": "example.com/v1", "kind": "Widget", "name": "w", "uid": "w-1"});
    map(&cluster, "child", json!({"ownerReferences": [unknown]})).await;
    cluster.pass(minutes(5)).await;
    assert!(exists(&cluster, "configmaps/child").await);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_goes_down_all_the_way() {
    let cluster = cluster_of(1).await;
    let mut last = map(&cluster, "a", json!({})).await;
    for name in ["b", "c", "d"] {
        last = map(&cluster, name, owned_by(&last, json!({"blockOwnerDeletion": true}))).await;
    }
    cluster.delete("configmaps/a", "Foreground").await.expect("a deletion");
    for name in ["d", "c", "b", "a"] {
        gone(&cluster, &format!("configmaps/{name}"), minutes(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_is_kept_by_one_owner_is_let_go_by_another_that_waits() {
    let cluster = cluster_of(1).await;
    let (going, staying) = (
        map(&cluster, "going", json!({})).await,
        map(&cluster, "staying", json!({})).await,
    );
    let mut owners = owned_by(&going, json!({"blockOwnerDeletion": true}));
    let second = owned_by(&staying, json!({}))["ownerReferences"][0].clone();
    owners["ownerReferences"].as_array_mut().expect("a list").push(second);
    map(&cluster, "child", owners).await;
    cluster
        .delete("configmaps/going", "Foreground")
        .await
        .expect("a deletion");
    gone(&cluster, "configmaps/going", minutes(1)).await;
    let child = cluster.get("configmaps/child").await.expect("it has another owner");
    let owners = child["metadata"]["ownerReferences"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    assert_eq!((owners.len(), &owners[0]["name"]), (1, &json!("staying")));
}

#[tokio::test(start_paused = true)]
async fn one_that_adds_its_owner_late_goes_with_it_all_the_same() {
    let cluster = cluster_of(1).await;
    let owner = map(&cluster, "owner", json!({})).await;
    map(&cluster, "child", json!({})).await;
    change(
        &cluster,
        "configmaps/child",
        json!({"metadata": owned_by(&owner, json!({}))}),
    )
    .await;
    remove(&cluster, "configmaps/owner").await;
    gone(&cluster, "configmaps/child", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn orphans_keep_nothing_of_their_owner_and_its_finalizer_is_gone() {
    let cluster = cluster_of(1).await;
    let owner = map(&cluster, "owner", json!({})).await;
    for name in ["x", "y"] {
        map(&cluster, name, owned_by(&owner, json!({}))).await;
    }
    cluster.delete("configmaps/owner", "Orphan").await.expect("a deletion");
    gone(&cluster, "configmaps/owner", minutes(1)).await;
    for name in ["x", "y"] {
        let left = cluster.get(&format!("configmaps/{name}")).await.expect("it stays");
        assert!(left["metadata"]["ownerReferences"].is_null(), "{left}");
    }
}

async fn namespace(cluster: &HollowCluster) {
    cluster
        .create("namespaces", json!({"metadata": {"name": "shop"}}))
        .await
        .expect("a namespace");
}

#[tokio::test(start_paused = true)]
async fn a_namespace_says_what_is_left_in_it() {
    let cluster = cluster_of(1).await;
    namespace(&cluster).await;
    let path = "/api/v1/namespaces/shop/configmaps";
    let held = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "held", "finalizers": ["example.com/hold"]}});
    cluster.request("POST", path, held).await.expect("a map");
    remove(&cluster, "namespaces/shop").await;
    let shop = until(&cluster, "namespaces/shop", minutes(1), |shop| {
        condition(shop, "NamespaceFinalizersRemaining", "True")
    })
    .await;
    assert_eq!(shop["status"]["phase"], "Terminating");
    assert_eq!(
        told(&shop, "NamespaceFinalizersRemaining")["message"],
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    assert_eq!(
        told(&shop, "NamespaceContentRemaining")["message"],
        "Some resources are remaining: configmaps has 1 resource instances"
    );
    assert!(condition(&shop, "NamespaceDeletionContentFailure", "False"));
    let late = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late"}});
    let refused = cluster.request("POST", path, late).await.unwrap_err();
    assert_eq!(refused.code, 403);
    assert!(refused.message.contains("because it is being terminated"), "{refused}");
    let free = json!({"metadata": {"finalizers": null}});
    cluster
        .request("PATCH", &format!("{path}/held"), free)
        .await
        .expect("it is let go");
    gone(&cluster, "namespaces/shop", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_was_emptied_may_be_made_again() {
    let cluster = cluster_of(1).await;
    for _ in 0..2 {
        namespace(&cluster).await;
        for what in ["serviceaccounts/default", "configmaps/kube-root-ca.crt"] {
            let path = format!("/api/v1/namespaces/shop/{what}");
            for _ in 0..100 {
                if cluster.request("GET", &path, Value::Null).await.is_ok() {
                    break;
                }
                cluster.pass(std::time::Duration::from_millis(100)).await;
            }
            cluster
                .request("GET", &path, Value::Null)
                .await
                .expect("every namespace has it");
        }
        remove(&cluster, "namespaces/shop").await;
        gone(&cluster, "namespaces/shop", minutes(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_of_somebody_else_keeps_an_empty_namespace() {
    let cluster = cluster_of(1).await;
    let held = json!({"metadata": {"name": "shop"}, "spec": {"finalizers": ["kubernetes", "example.com/audit"]}});
    cluster.create("namespaces", held).await.expect("a namespace");
    remove(&cluster, "namespaces/shop").await;
    let shop = until(&cluster, "namespaces/shop", minutes(1), |shop| {
        shop["spec"]["finalizers"] == json!(["example.com/audit"])
    })
    .await;
    let mut free = shop.clone();
    free["spec"]["finalizers"] = json!([]);
    cluster
        .request("PUT", "/api/v1/namespaces/shop/finalize", free)
        .await
        .expect("the audit is over");
    gone(&cluster, "namespaces/shop", SOON).await;
}
