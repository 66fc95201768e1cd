//! HorizontalPodAutoscalers: how many pods a load deserves, and how fast that may change.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

/// A Deployment whose pods each ask for 100m of processor time and use so much.
async fn app(cluster: &HollowCluster, replicas: i32, uses: &str) {
    let mut template = template("web", json!({"cpu": uses}));
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let spec = json!({"replicas": replicas, "selector": selector("web"), "template": template});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster.create("deployments", object).await.expect("a deployment");
    replicas_are(cluster, replicas.into()).await;
}

async fn autoscaler(cluster: &HollowCluster, most: i32, extra: Value) {
    let spec = merged(
        json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 1, "maxReplicas": most,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization",
                "averageUtilization": 50}}}],
        }),
        extra,
    );
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster
        .create("horizontalpodautoscalers", object)
        .await
        .expect("an autoscaler");
}

/// Changes what every pod uses from now on.
async fn load(cluster: &HollowCluster, uses: &str) {
    for pod in pods(cluster, "web").await {
        let patch = json!({"metadata": {"annotations": {"hollow.stead.dev/cpu": uses}}});
        cluster
            .patch(&format!("pods/{}", name(&pod)), patch)
            .await
            .expect("a load");
    }
}

async fn replicas_are(cluster: &HollowCluster, count: i64) {
    until(cluster, "deployments/web", minutes(10), |deployment| {
        deployment["spec"]["replicas"] == count && deployment["status"]["readyReplicas"] == count
    })
    .await;
}

async fn wanted(cluster: &HollowCluster) -> i64 {
    let deployment = cluster.get("deployments/web").await.expect("a deployment");
    deployment["spec"]["replicas"].as_i64().unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_load_gets_the_pods_that_it_needs_and_no_more_than_the_most() {
    let cluster = cluster_of(1).await;
    app(&cluster, 2, "100m").await;
    autoscaler(&cluster, 3, json!({})).await;
    replicas_are(&cluster, 3).await;
    let scaler = until(&cluster, "horizontalpodautoscalers/web", minutes(2), |scaler| {
        condition(scaler, "ScalingLimited", "True")
    })
    .await;
    assert_eq!(reason(&scaler, "ScalingLimited"), "TooManyReplicas");
    assert!(condition(&scaler, "AbleToScale", "True") && condition(&scaler, "ScalingActive", "True"));
    assert_eq!(
        scaler["status"]["currentMetrics"][0]["resource"]["current"]["averageUtilization"],
        100
    );
}

#[tokio::test(start_paused = true)]
async fn a_load_near_enough_to_its_target_changes_nothing() {
    let cluster = cluster_of(1).await;
    app(&cluster, 4, "54m").await;
    autoscaler(&cluster, 10, json!({})).await;
    cluster.pass(minutes(10)).await;
    assert_eq!(wanted(&cluster).await, 4, "within a tenth of the target");
}

#[tokio::test(start_paused = true)]
async fn a_load_that_falls_keeps_its_pods_until_the_window_has_passed() {
    let cluster = cluster_of(1).await;
    app(&cluster, 4, "50m").await;
    autoscaler(&cluster, 10, json!({})).await;
    until(&cluster, "horizontalpodautoscalers/web", minutes(2), |scaler| {
        condition(scaler, "ScalingActive", "True")
    })
    .await;
    load(&cluster, "1m").await;
    cluster.pass(Duration::from_secs(240)).await;
    assert_eq!(wanted(&cluster).await, 4, "five minutes are not over");
    replicas_are(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn without_a_window_pods_go_at_once_and_disabled_they_never_do() {
    for (behaviour, expected) in [
        (json!({"scaleDown": {"stabilizationWindowSeconds": 0}}), 1),
        (
            json!({"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Disabled"}}),
            4,
        ),
    ] {
        let cluster = cluster_of(1).await;
        app(&cluster, 4, "1m").await;
        autoscaler(&cluster, 10, json!({"behavior": behaviour})).await;
        cluster.pass(minutes(2)).await;
        assert_eq!(wanted(&cluster).await, expected, "{behaviour}");
    }
}

#[tokio::test(start_paused = true)]
async fn policies_limit_how_many_pods_come_in_their_period() {
    let cluster = cluster_of(1).await;
    app(&cluster, 1, "400m").await;
    let slowly = json!({"scaleUp": {"policies": [{"type": "Pods", "value": 1, "periodSeconds": 60}]}});
    autoscaler(&cluster, 10, json!({"behavior": slowly})).await;
    until(&cluster, "deployments/web", minutes(2), |deployment| {
        deployment["spec"]["replicas"] == 2
    })
    .await;
    cluster.pass(Duration::from_secs(30)).await;
    assert_eq!(wanted(&cluster).await, 2, "one a minute");
    until(&cluster, "deployments/web", minutes(2), |deployment| {
        deployment["spec"]["replicas"] == 3
    })
    .await;
    until(&cluster, "deployments/web", minutes(20), |deployment| {
        deployment["spec"]["replicas"] == 10
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_go_down_by_the_policy_that_changes_least() {
    let cluster = cluster_of(1).await;
    app(&cluster, 10, "1m").await;
    let down = json!({"scaleDown": {"stabilizationWindowSeconds": 0, "selectPolicy": "Min", "policies": [
        {"type": "Pods", "value": 1, "periodSeconds": 60}, {"type": "Percent", "value": 50, "periodSeconds": 60}]}});
    autoscaler(&cluster, 10, json!({"behavior": down})).await;
    until(&cluster, "deployments/web", minutes(2), |deployment| {
        deployment["spec"]["replicas"] == 9
    })
    .await;
    cluster.pass(Duration::from_secs(30)).await;
    assert_eq!(wanted(&cluster).await, 9);
}

#[tokio::test(start_paused = true)]
async fn a_deployment_at_zero_is_left_alone() {
    let cluster = cluster_of(1).await;
    app(&cluster, 1, "400m").await;
    cluster
        .patch("deployments/web", json!({"spec": {"replicas": 0}}))
        .await
        .expect("a scale");
    autoscaler(&cluster, 10, json!({})).await;
    let scaler = until(&cluster, "horizontalpodautoscalers/web", minutes(2), |scaler| {
        condition(scaler, "ScalingActive", "False")
    })
    .await;
    assert_eq!(reason(&scaler, "ScalingActive"), "ScalingDisabled");
    assert_eq!(wanted(&cluster).await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_target_without_requests_says_what_is_missing() {
    let cluster = cluster_of(1).await;
    let spec = json!({"replicas": 2, "selector": selector("web"), "template": template("web", json!({}))});
    let object = json!({"metadata": {"name": "web"}, "spec": spec});
    cluster.create("deployments", object).await.expect("a deployment");
    replicas_are(&cluster, 2).await;
    autoscaler(&cluster, 10, json!({})).await;
    let scaler = until(&cluster, "horizontalpodautoscalers/web", minutes(3), |scaler| {
        condition(scaler, "ScalingActive", "False")
    })
    .await;
    assert_eq!(reason(&scaler, "ScalingActive"), "FailedGetResourceMetric");
    assert_eq!(wanted(&cluster).await, 2);
}

#[tokio::test(start_paused = true)]
async fn an_autoscaler_without_its_target_says_so() {
    let cluster = cluster_of(1).await;
    autoscaler(&cluster, 10, json!({})).await;
    let scaler = until(&cluster, "horizontalpodautoscalers/web", minutes(2), |scaler| {
        condition(scaler, "AbleToScale", "False")
    })
    .await;
    assert_eq!(reason(&scaler, "AbleToScale"), "FailedGetScale");
}
