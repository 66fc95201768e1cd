//! Nodes that are lost, drained and full.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn web(cluster: &HollowCluster, replicas: i32) {
    // Who takes another one's place is not ready at once.
    let template = template("web", json!({"ready-after": "1s"}));
    let spec = json!({"replicas": replicas, "selector": selector("web"), "template": template});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster.create("deployments", object).await.expect("a deployment");
    until(cluster, "deployments/web", SOON, move |web| {
        web["status"]["availableReplicas"] == replicas
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_of_a_lost_node_move_after_their_patience() {
    let cluster = cluster().await;
    web(&cluster, 6).await;
    set_power(&cluster, "node-1", json!("stopped")).await;
    let lost = until(&cluster, "nodes/node-1", minutes(2), |node| {
        condition(node, "Ready", "Unknown")
    })
    .await;
    let taints = lost["spec"]["taints"].as_array().cloned().unwrap_or_default();
    assert!(
        taints
            .iter()
            .any(|taint| taint["key"] == "node.kubernetes.io/unreachable"),
        "{taints:?}"
    );
    let on_lost = |pods: &[Value]| pods.iter().filter(|pod| pod["spec"]["nodeName"] == "node-1").count();
    cluster.pass(minutes(4)).await;
    assert!(on_lost(&pods(&cluster, "web").await) > 0, "they are given five minutes");
    cluster.pass(minutes(2)).await;
    let left = pods(&cluster, "web").await;
    assert_eq!((left.len(), on_lost(&left)), (6, 0));
    until(&cluster, "deployments/web", SOON, |web| {
        web["status"]["availableReplicas"] == 6
    })
    .await;
    set_power(&cluster, "node-1", Value::Null).await;
    until(&cluster, "nodes/node-1", minutes(1), |node| {
        condition(node, "Ready", "True") && node["spec"]["taints"].as_array().is_none_or(Vec::is_empty)
    })
    .await;
    // What was deleted while it was away ends when it is back.
    until(&cluster, "pods?labelSelector=app=web", minutes(2), |list| {
        list["items"].as_array().is_some_and(|pods| pods.len() == 6)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_taken_for_lost_only_when_its_node_stays_away() {
    let cluster = cluster().await;
    for (name, node) in [("early", "late"), ("lost", "never")] {
        let mut pod = template(name, json!({}));
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["nodeName"] = json!(node);
        cluster.create("pods", pod).await.expect("a pod");
    }
    cluster.pass(Duration::from_secs(30)).await;
    for name in ["early", "lost"] {
        let pod = cluster
            .get(&format!("pods/{name}"))
            .await
            .expect("nodes may be seen later");
        assert_eq!(pod["status"]["phase"], "Pending");
    }
    let node = json!({"metadata": {"name": "late"}});
    cluster.create("nodes", node).await.expect("a node");
    gone(&cluster, "pods/lost", minutes(1)).await;
    let early = cluster.get("pods/early").await.expect("its node is there");
    assert_eq!(early["status"]["phase"], "Pending");
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_moves_nothing() {
    let cluster = cluster().await;
    web(&cluster, 6).await;
    let before = names(&pods(&cluster, "web").await);
    set_power(&cluster, "node-2", json!("partitioned")).await;
    until(&cluster, "nodes/node-2", minutes(2), |node| {
        condition(node, "Ready", "Unknown")
    })
    .await;
    cluster.pass(minutes(1)).await;
    set_power(&cluster, "node-2", Value::Null).await;
    until(&cluster, "nodes/node-2", minutes(1), |node| {
        condition(node, "Ready", "True")
    })
    .await;
    cluster.pass(minutes(10)).await;
    assert_eq!(names(&pods(&cluster, "web").await), before);
}

#[tokio::test(start_paused = true)]
async fn evictions_spend_a_budget_and_wait_for_it_to_refill() {
    let cluster = cluster().await;
    web(&cluster, 3).await;
    let budget = json!({"metadata": {"name": "web"}, "spec": {"minAvailable": 2, "selector": selector("web")}});
    cluster.create("poddisruptionbudgets", budget).await.expect("a budget");
    until(&cluster, "poddisruptionbudgets/web", SOON, |budget| {
        budget["status"]["disruptionsAllowed"] == 1
    })
    .await;
    let all = names(&pods(&cluster, "web").await);
    let evict = async |name: &str| {
        let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        cluster.request("POST", &path, body).await
    };
    evict(&all[0]).await.expect("the first is granted");
    let refused = evict(&all[1]).await.expect_err("the second is not");
    assert_eq!(refused.code, 429, "{refused}");
    until(&cluster, "poddisruptionbudgets/web", minutes(1), |budget| {
        budget["status"]["disruptionsAllowed"] == 1
    })
    .await;
    evict(&all[1]).await.expect("a new pod took the first one's place");
}

#[tokio::test(start_paused = true)]
async fn a_quota_counts_what_is_there_and_gives_back_what_goes() {
    let cluster = cluster().await;
    let hard = json!({"pods": "2", "requests.cpu": "1", "count/configmaps": "10", "services": "1"});
    let quota = json!({"metadata": {"name": "small"}, "spec": {"hard": hard}});
    cluster.create("resourcequotas", quota).await.expect("a quota");
    let used = async |field: &str, amount: &str| {
        until(&cluster, "resourcequotas/small", minutes(1), |quota| {
            quota["status"]["used"][field] == amount
        })
        .await
    };
    used("pods", "0").await;
    let pod = |name: &str, cpu: &str| {
        let mut pod = template("web", json!({}));
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": cpu}});
        pod
    };
    cluster.create("pods", pod("a", "600m")).await.expect("it fits");
    used("requests.cpu", "600m").await;
    let over = cluster.create("pods", pod("b", "500m")).await.expect_err("too much");
    assert!(
        over.message.contains(
            "exceeded quota: small, requested: requests.cpu=500m, used: requests.cpu=600m, limited: requests.cpu=1"
        ),
        "{over}"
    );
    cluster.delete("pods/a", "Background").await.expect("a deletion");
    used("pods", "0").await;
    cluster
        .create("pods", pod("b", "500m"))
        .await
        .expect("there is room again");
    cluster.pass(Duration::from_secs(15)).await;
    let quota = cluster.get("resourcequotas/small").await.expect("it");
    let maps = quota["status"]["used"]["count/configmaps"].as_str().unwrap_or_default();
    assert_eq!(maps, "1", "the root certificates' map is counted: {quota}");
}

#[tokio::test(start_paused = true)]
async fn an_unready_pod_may_be_evicted_where_the_budget_says_so() {
    for (policy, code) in [("IfHealthyBudget", 429), ("AlwaysAllow", 0)] {
        let cluster = cluster().await;
        let mut pod = template("web", json!({"ready-after": "never"}));
        pod["metadata"]["name"] = json!("lame");
        cluster.create("pods", pod).await.expect("a pod");
        until(&cluster, "pods/lame", SOON, |pod| pod["status"]["phase"] == "Running").await;
        let spec = json!({"minAvailable": 1, "selector": selector("web"), "unhealthyPodEvictionPolicy": policy});
        let budget = json!({"metadata": {"name": "web"}, "spec": spec});
        cluster.create("poddisruptionbudgets", budget).await.expect("a budget");
        until(&cluster, "poddisruptionbudgets/web", SOON, |budget| {
            budget["status"]["observedGeneration"] == 1
        })
        .await;
        let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "lame"}});
        let path = "/api/v1/namespaces/default/pods/lame/eviction";
        let answer = cluster.request("POST", path, body).await;
        assert_eq!(answer.map_or_else(|refused| refused.code, |_| 0), code, "{policy}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_a_scope_counts_only_what_is_in_it() {
    let cluster = cluster().await;
    let quota = json!({"metadata": {"name": "lazy"}, "spec": {"hard": {"pods": "1"}, "scopes": ["BestEffort"]}});
    cluster.create("resourcequotas", quota).await.expect("a quota");
    until(&cluster, "resourcequotas/lazy", SOON, |quota| {
        quota["status"]["used"]["pods"] == "0"
    })
    .await;
    let pod = |name: &str, requests: Value| {
        let mut pod = template("web", json!({}));
        pod["metadata"]["name"] = json!(name);
        pod["spec"]["containers"][0]["resources"] = json!({"requests": requests});
        pod
    };
    for name in ["a", "b"] {
        cluster
            .create("pods", pod(name, json!({"cpu": "10m"})))
            .await
            .expect("not in the scope");
    }
    cluster
        .create("pods", pod("c", json!({})))
        .await
        .expect("the first in it");
    until(&cluster, "resourcequotas/lazy", SOON, |quota| {
        quota["status"]["used"]["pods"] == "1"
    })
    .await;
    let refused = cluster.create("pods", pod("d", json!({}))).await.unwrap_err();
    assert_eq!(refused.code, 403, "{refused}");
}
