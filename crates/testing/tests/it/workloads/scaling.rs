//! Autoscalers in detail: several metrics, missing ones, both directions, and the pace of each.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

const SCALER: &str = "horizontalpodautoscalers/web";

/// A Deployment whose pods ask for 100m and 100Mi and use so much.
async fn app(replicas: i32, cpu: &str, memory: &str) -> HollowCluster {
    let cluster = cluster_of(1).await;
    let mut template = template("web", json!({"cpu": cpu, "memory": memory}));
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m", "memory": "100Mi"}});
    deployment(&cluster, replicas, json!({}), json!({"template": template})).await;
    until(&cluster, "deployments/web", minutes(1), rolled_out(replicas.into())).await;
    cluster
}

fn resource(name: &str, target: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": name, "target": target}})
}

fn share(percent: i32) -> Value {
    json!({"type": "Utilization", "averageUtilization": percent})
}

async fn scaler(cluster: &HollowCluster, extra: Value) {
    let spec = json!({"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "maxReplicas": 10, "metrics": [resource("cpu", share(50))]});
    make(cluster, "horizontalpodautoscalers", "web", merged(spec, extra)).await;
}

async fn grows_to(cluster: &HollowCluster, replicas: i64) {
    until(cluster, "deployments/web", minutes(10), |web| {
        web["spec"]["replicas"] == replicas
    })
    .await;
}

async fn size_is(cluster: &HollowCluster, replicas: i64, time: Duration) {
    stays(cluster, "deployments/web", time, |web| {
        web["spec"]["replicas"] == replicas
    })
    .await;
}

fn now() -> Value {
    json!({"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}})
}

#[tokio::test(start_paused = true)]
async fn of_several_metrics_the_one_that_wants_most_counts() {
    let cluster = app(2, "50m", "90Mi").await;
    scaler(
        &cluster,
        json!({"maxReplicas": 6, "metrics": [resource("cpu", share(50)), resource("memory", share(30))]}),
    )
    .await;
    grows_to(&cluster, 6).await;
    let scaler = until(&cluster, SCALER, minutes(1), |one| {
        one["status"]["currentMetrics"].as_array().map(Vec::len) == Some(2)
    })
    .await;
    assert!(
        told(&scaler, "ScalingActive")["message"]
            .as_str()
            .unwrap_or_default()
            .contains("memory"),
        "{scaler}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_target_may_be_an_amount_for_each_pod() {
    let cluster = app(2, "100m", "10Mi").await;
    scaler(
        &cluster,
        json!({"metrics": [resource("cpu", json!({"type": "AverageValue", "averageValue": "50m"}))]}),
    )
    .await;
    grows_to(&cluster, 4).await;
    let scaler = until(&cluster, SCALER, minutes(1), |one| {
        one["status"]["currentMetrics"].is_array()
    })
    .await;
    let current = &scaler["status"]["currentMetrics"][0]["resource"]["current"];
    assert_eq!(current["averageValue"], "100m");
}

#[tokio::test(start_paused = true)]
async fn a_metric_of_one_container_counts_that_container_alone() {
    let cluster = app(2, "100m", "10Mi").await;
    let metric = |container: &str| {
        json!([{"type": "ContainerResource", "containerResource": {"name": "cpu", "container": container,
            "target": share(50)}}])
    };
    scaler(&cluster, json!({"metrics": metric("main")})).await;
    grows_to(&cluster, 4).await;
    change(&cluster, SCALER, json!({"spec": {"metrics": metric("nobody")}})).await;
    let scaler = until(&cluster, SCALER, minutes(2), |one| {
        condition(one, "ScalingActive", "False")
    })
    .await;
    assert_eq!(reason(&scaler, "ScalingActive"), "FailedGetContainerResourceMetric");
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_measured_keeps_pods_but_does_not_hold_up_growth() {
    let missing = json!({"type": "Pods", "pods": {"metric": {"name": "requests"},
        "target": {"type": "AverageValue", "averageValue": "10"}}});
    let cluster = app(2, "1m", "10Mi").await;
    let both = json!({"metrics": [missing, resource("cpu", share(50))]});
    scaler(&cluster, merged(both, now())).await;
    let scaler = until(&cluster, SCALER, minutes(2), |one| {
        condition(one, "ScalingActive", "False")
    })
    .await;
    assert_eq!(reason(&scaler, "ScalingActive"), "FailedGetPodsMetric");
    size_is(&cluster, 2, minutes(2)).await;
    for pod in pods(&cluster, "web").await {
        let load = json!({"metadata": {"annotations": {"hollow.stead.dev/cpu": "100m"}}});
        change(&cluster, &format!("pods/{}", name(&pod)), load).await;
    }
    grows_to(&cluster, 4).await;
}

#[tokio::test(start_paused = true)]
async fn a_size_outside_the_limits_is_brought_within() {
    for (replicas, limits, expected) in [
        (1, json!({"minReplicas": 3}), 3),
        (6, json!({"minReplicas": 1, "maxReplicas": 4}), 4),
    ] {
        let cluster = app(replicas, "50m", "10Mi").await;
        scaler(&cluster, limits).await;
        until(&cluster, "deployments/web", minutes(1), |web| {
            web["spec"]["replicas"] == expected
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_fewest_pods_are_kept_and_that_is_told() {
    let cluster = app(4, "1m", "10Mi").await;
    scaler(&cluster, merged(json!({"minReplicas": 2}), now())).await;
    grows_to(&cluster, 2).await;
    let scaler = until(&cluster, SCALER, minutes(2), |one| {
        condition(one, "ScalingLimited", "True")
    })
    .await;
    assert_eq!(reason(&scaler, "ScalingLimited"), "TooFewReplicas");
    assert_eq!(
        (
            &scaler["status"]["currentReplicas"],
            &scaler["status"]["desiredReplicas"]
        ),
        (&json!(2), &json!(2))
    );
}

#[tokio::test(start_paused = true)]
async fn growth_may_have_to_prove_itself_too() {
    let cluster = app(2, "100m", "10Mi").await;
    scaler(
        &cluster,
        json!({"behavior": {"scaleUp": {"stabilizationWindowSeconds": 120}}}),
    )
    .await;
    let scaler = until(&cluster, SCALER, minutes(1), |one| {
        reason(one, "AbleToScale") == "ScaleUpStabilized"
    })
    .await;
    assert!(condition(&scaler, "AbleToScale", "True"));
    size_is(&cluster, 2, Duration::from_secs(80)).await;
    grows_to(&cluster, 4).await;
}

#[tokio::test(start_paused = true)]
async fn growth_may_be_forbidden() {
    let cluster = app(2, "100m", "10Mi").await;
    scaler(&cluster, json!({"behavior": {"scaleUp": {"selectPolicy": "Disabled"}}})).await;
    until(&cluster, SCALER, minutes(1), |one| {
        condition(one, "ScalingActive", "True")
    })
    .await;
    size_is(&cluster, 2, minutes(3)).await;
}

#[tokio::test(start_paused = true)]
async fn of_several_policies_the_one_that_changes_most_counts_unless_said_otherwise() {
    for (select, expected) in [("Max", 6), ("Min", 3)] {
        let cluster = app(2, "500m", "10Mi").await;
        let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 600},
            {"type": "Percent", "value": 50, "periodSeconds": 600}]);
        scaler(
            &cluster,
            json!({"behavior": {"scaleUp": {"selectPolicy": select, "policies": policies}}}),
        )
        .await;
        grows_to(&cluster, expected).await;
        size_is(&cluster, expected, minutes(1)).await;
        let scaler = cluster.get(SCALER).await.expect("it");
        assert_eq!(reason(&scaler, "ScalingLimited"), "ScaleUpLimit", "{select}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tolerance_of_its_own_makes_a_scaler_more_or_less_patient() {
    for (tolerance, expected) in [("0.5", 4), ("0.01", 5)] {
        let cluster = app(4, "60m", "10Mi").await;
        scaler(
            &cluster,
            json!({"maxReplicas": 5, "behavior": {"scaleUp": {"tolerance": tolerance}}}),
        )
        .await;
        until(&cluster, SCALER, minutes(1), |one| {
            condition(one, "ScalingActive", "True")
        })
        .await;
        cluster.pass(minutes(1)).await;
        let web = cluster.get("deployments/web").await.expect("it");
        assert_eq!(web["spec"]["replicas"], expected, "{tolerance}");
    }
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_ready_yet_do_not_make_it_grow_further() {
    let cluster = app(2, "200m", "10Mi").await;
    let script = json!({"hollow.stead.dev/ready-after": "never"});
    let annotations = json!({"spec": {"template": {"metadata": {"annotations": script}}, "paused": true}});
    change(&cluster, "deployments/web", annotations).await;
    scaler(&cluster, json!({"maxReplicas": 4})).await;
    grows_to(&cluster, 4).await;
    let scaler = until(&cluster, SCALER, minutes(1), |one| {
        one["status"]["currentReplicas"] == 4
    })
    .await;
    assert!(scaler["status"]["lastScaleTime"].is_string());
    let note = event(&cluster, "SuccessfulRescale").await;
    assert!(
        note.starts_with("New size: 4; reason: cpu resource utilization (percentage of request) above target"),
        "{note}"
    );
}

#[tokio::test(start_paused = true)]
async fn stateful_sets_are_scaled_as_well() {
    let cluster = cluster_of(1).await;
    let mut template = template("web", json!({"cpu": "100m"}));
    template["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m"}});
    let spec = json!({"replicas": 1, "selector": selector("web"), "serviceName": "web", "template": template});
    make(&cluster, "statefulsets", "web", spec).await;
    until(&cluster, "statefulsets/web", SOON, all_ready(1)).await;
    let target = json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"});
    scaler(&cluster, json!({"scaleTargetRef": target, "maxReplicas": 2})).await;
    until(&cluster, "statefulsets/web", minutes(5), all_ready(2)).await;
}
