//! Budgets, quotas and evictions: what may be taken away, and what may be asked for.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn budget(cluster: &HollowCluster, name: &str, limit: Value) {
    let spec = merged(json!({"selector": selector("web")}), limit);
    make(cluster, "poddisruptionbudgets", name, spec).await;
}

/// Waits until a budget says: expected, desired, healthy, allowed.
async fn says(cluster: &HollowCluster, wanted: [i64; 4]) -> Value {
    until(cluster, "poddisruptionbudgets/web", minutes(1), |budget| {
        let fields = ["expectedPods", "desiredHealthy", "currentHealthy", "disruptionsAllowed"];
        fields.map(|field| budget["status"][field].as_i64().unwrap_or(0)) == wanted
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn each_form_of_a_budget_is_reckoned_in_its_way() {
    for (limit, wanted) in [
        (json!({"minAvailable": 2}), [5, 2, 5, 3]),
        (json!({"minAvailable": "50%"}), [5, 3, 5, 2]),
        (json!({"minAvailable": "100%"}), [5, 5, 5, 0]),
        (json!({"maxUnavailable": 1}), [5, 4, 5, 1]),
        (json!({"maxUnavailable": "30%"}), [5, 3, 5, 2]),
        (json!({"maxUnavailable": 0}), [5, 5, 5, 0]),
    ] {
        let cluster = cluster_of(1).await;
        replica_set(&cluster, 5, json!({})).await;
        until(&cluster, "replicasets/web", SOON, all_ready(5)).await;
        budget(&cluster, "web", limit).await;
        says(&cluster, wanted).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_of_several_owners_is_a_share_of_all_their_pods() {
    let cluster = cluster_of(1).await;
    deployment(&cluster, 4, json!({}), json!({})).await;
    let spec = json!({"replicas": 2, "selector": selector("web"), "serviceName": "web",
        "template": template("web", json!({}))});
    make(&cluster, "statefulsets", "web", spec).await;
    budget(&cluster, "web", json!({"maxUnavailable": "50%"})).await;
    says(&cluster, [6, 3, 6, 3]).await;
    scale(&cluster, "deployments/web", 2).await;
    says(&cluster, [4, 2, 4, 2]).await;
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_a_budget_says_whether_anything_may_go() {
    let cluster = cluster_of(1).await;
    replica_set(&cluster, 2, json!({})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(2)).await;
    budget(&cluster, "web", json!({"minAvailable": 2})).await;
    let tight = says(&cluster, [2, 2, 2, 0]).await;
    assert_eq!(reason(&tight, "DisruptionAllowed"), "InsufficientPods");
    scale(&cluster, "replicasets/web", 3).await;
    let loose = says(&cluster, [3, 2, 3, 1]).await;
    assert_eq!(reason(&loose, "DisruptionAllowed"), "SufficientPods");
}

#[tokio::test(start_paused = true)]
async fn a_pod_under_two_budgets_cannot_be_evicted() {
    let cluster = cluster_of(1).await;
    replica_set(&cluster, 3, json!({})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(3)).await;
    for name in ["web", "twin"] {
        budget(&cluster, name, json!({"minAvailable": 1})).await;
        until(&cluster, &format!("poddisruptionbudgets/{name}"), SOON, |one| {
            one["status"]["disruptionsAllowed"] == 2
        })
        .await;
    }
    let pod = name(&pods(&cluster, "web").await[0]);
    let refused = evict(&cluster, &pod).await.unwrap_err();
    assert_eq!(refused.code, 500, "{refused}");
    assert!(
        refused
            .message
            .contains("more than one PodDisruptionBudget, which the eviction subresource does not support"),
        "{refused}"
    );
    remove(&cluster, "poddisruptionbudgets/twin").await;
    evict(&cluster, &pod).await.expect("one is left");
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_is_told_which_budget_stands_in_the_way() {
    let cluster = cluster_of(1).await;
    replica_set(&cluster, 1, json!({})).await;
    until(&cluster, "replicasets/web", SOON, all_ready(1)).await;
    budget(&cluster, "web", json!({"maxUnavailable": 0})).await;
    says(&cluster, [1, 1, 1, 0]).await;
    let refused = evict(&cluster, &name(&pods(&cluster, "web").await[0]))
        .await
        .unwrap_err();
    assert_eq!(refused.code, 429);
    assert!(
        refused
            .message
            .contains("Cannot evict pod as it would violate the pod's disruption budget."),
        "{refused}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_eviction_says_in_the_pod_that_it_is_one() {
    let cluster = cluster_of(1).await;
    pod(&cluster, "a", "web", json!({"stop-after": "20s"}), json!({})).await;
    runs(&cluster, "a").await;
    evict(&cluster, "a").await.expect("nothing stands in the way");
    let going = until(&cluster, "pods/a", SOON, |pod| {
        pod["metadata"]["deletionTimestamp"].is_string()
    })
    .await;
    assert_eq!(reason(&going, "DisruptionTarget"), "EvictionByEvictionAPI");
    assert_eq!(told(&going, "DisruptionTarget")["message"], "Eviction API: evicting");
}

#[tokio::test(start_paused = true)]
async fn what_does_not_run_is_evicted_whatever_the_budget_says() {
    let cluster = cluster_of(1).await;
    ended_pod(&cluster, "done", "web").await;
    pod(
        &cluster,
        "waits",
        "web",
        json!({}),
        json!({"nodeSelector": {"no": "where"}}),
    )
    .await;
    budget(&cluster, "web", json!({"minAvailable": 2})).await;
    until(&cluster, "poddisruptionbudgets/web", SOON, |one| {
        one["status"]["observedGeneration"] == 1
    })
    .await;
    for pod in ["done", "waits"] {
        evict(&cluster, pod).await.expect("it serves nobody");
    }
}

#[tokio::test(start_paused = true)]
async fn a_budget_without_pods_allows_nothing_and_means_nobody_else() {
    let cluster = cluster_of(1).await;
    budget(&cluster, "web", json!({"minAvailable": 0})).await;
    says(&cluster, [0, 0, 0, 0]).await;
    pod(&cluster, "other", "other", json!({}), json!({})).await;
    runs(&cluster, "other").await;
    evict(&cluster, "other").await.expect("it is not meant");
}

async fn quota(cluster: &HollowCluster, spec: Value) {
    make(cluster, "resourcequotas", "q", spec).await;
    until(cluster, "resourcequotas/q", SOON, |quota| {
        quota["status"]["used"].is_object()
    })
    .await;
}

async fn used(cluster: &HollowCluster, name: &str, amount: &str) {
    until(cluster, "resourcequotas/q", minutes(1), |quota| {
        quota["status"]["used"][name] == amount
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn services_and_claims_are_counted_by_kind_and_class() {
    let cluster = cluster_of(1).await;
    let hard = json!({"services": "9", "services.nodeports": "9", "services.loadbalancers": "9",
        "persistentvolumeclaims": "9", "requests.storage": "90Gi",
        "standard.storageclass.storage.k8s.io/requests.storage": "90Gi"});
    quota(&cluster, json!({"hard": hard})).await;
    for (name, kind, ports) in [("a", "ClusterIP", 1), ("b", "NodePort", 2), ("c", "LoadBalancer", 1)] {
        let ports: Vec<Value> = (0..ports)
            .map(|n| json!({"name": format!("p{n}"), "port": 80 + n}))
            .collect();
        make(&cluster, "services", name, json!({"type": kind, "ports": ports})).await;
    }
    for (name, class, size) in [("x", "standard", "2Gi"), ("y", "other", "3Gi")] {
        let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}},
            "storageClassName": class});
        make(&cluster, "persistentvolumeclaims", name, claim).await;
    }
    for (name, amount) in [
        // The one of the API server is among them.
        ("services", "4"),
        ("services.nodeports", "3"),
        ("services.loadbalancers", "1"),
        ("persistentvolumeclaims", "2"),
        ("requests.storage", "5Gi"),
        ("standard.storageclass.storage.k8s.io/requests.storage", "2Gi"),
    ] {
        used(&cluster, name, amount).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_have_ended_give_back_what_they_asked_for() {
    let cluster = cluster_of(1).await;
    quota(
        &cluster,
        json!({"hard": {"pods": "1", "count/pods": "9", "limits.memory": "1Gi"}}),
    )
    .await;
    let resources = json!({"limits": {"memory": "700Mi"}});
    let container = json!([{"name": "main", "image": "web:1", "resources": resources}]);
    pod(
        &cluster,
        "a",
        "web",
        json!({"exit-after": "5s"}),
        json!({"restartPolicy": "Never", "containers": container}),
    )
    .await;
    used(&cluster, "limits.memory", "700Mi").await;
    until(&cluster, "pods/a", SOON, |pod| pod["status"]["phase"] == "Succeeded").await;
    used(&cluster, "limits.memory", "0").await;
    used(&cluster, "count/pods", "1").await;
    pod(&cluster, "b", "web", json!({}), json!({"containers": container})).await;
}

#[tokio::test(start_paused = true)]
async fn a_quota_for_a_priority_counts_pods_of_it_alone() {
    let cluster = cluster_of(1).await;
    cluster
        .create("priorityclasses", json!({"metadata": {"name": "vip"}, "value": 9}))
        .await
        .expect("a class");
    let scope = json!({"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["vip"]}]});
    quota(&cluster, json!({"hard": {"pods": "1"}, "scopeSelector": scope})).await;
    pod(&cluster, "plain", "web", json!({}), json!({})).await;
    pod(&cluster, "first", "web", json!({}), json!({"priorityClassName": "vip"})).await;
    used(&cluster, "pods", "1").await;
    let mut second = template("web", json!({}));
    second["metadata"]["name"] = json!("second");
    second["spec"]["priorityClassName"] = json!("vip");
    assert_eq!(cluster.create("pods", second).await.unwrap_err().code, 403);
}

#[tokio::test(start_paused = true)]
async fn a_quota_for_pods_with_an_end_counts_those_alone() {
    let cluster = cluster_of(1).await;
    quota(&cluster, json!({"hard": {"pods": "9"}, "scopes": ["Terminating"]})).await;
    pod(&cluster, "endless", "web", json!({}), json!({})).await;
    pod(
        &cluster,
        "short",
        "web",
        json!({}),
        json!({"activeDeadlineSeconds": 500}),
    )
    .await;
    used(&cluster, "pods", "1").await;
    stays(&cluster, "resourcequotas/q", minutes(1), |quota| {
        quota["status"]["used"]["pods"] == "1"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn who_says_nothing_where_a_quota_counts_is_refused() {
    let cluster = cluster_of(1).await;
    quota(&cluster, json!({"hard": {"limits.cpu": "4"}})).await;
    let mut silent = template("web", json!({}));
    silent["metadata"]["name"] = json!("silent");
    let refused = cluster.create("pods", silent).await.unwrap_err();
    assert!(
        refused
            .message
            .contains("failed quota: q: must specify limits.cpu for: main"),
        "{refused}"
    );
}
