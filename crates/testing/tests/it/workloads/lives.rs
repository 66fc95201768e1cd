//! The life of single pods on nodes: restarts, deadlines, ends.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn pod(cluster: &HollowCluster, script: Value, extra: Value) {
    let mut pod = template("p", script);
    pod["metadata"]["name"] = json!("p");
    for (key, value) in extra.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    cluster.create("pods", pod).await.expect("a pod");
}

fn phase(wanted: &'static str) -> impl FnMut(&Value) -> bool {
    move |pod| pod["status"]["phase"] == wanted
}

fn container(pod: &Value) -> &Value {
    &pod["status"]["containerStatuses"][0]
}

#[tokio::test(start_paused = true)]
async fn who_must_always_run_is_started_again_ever_more_slowly() {
    let cluster = cluster_of(1).await;
    pod(&cluster, json!({"exit-after": "1s", "exit-code": "3"}), json!({})).await;
    let looping = until(&cluster, "pods/p", minutes(1), |pod| {
        container(pod)["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    })
    .await;
    assert_eq!(container(&looping)["lastState"]["terminated"]["exitCode"], 3);
    assert_eq!(looping["status"]["phase"], "Running");
    cluster.pass(minutes(30)).await;
    let later = cluster.get("pods/p").await.expect("it");
    let restarts = container(&later)["restartCount"].as_i64().unwrap_or_default();
    // 0, 10, 20, 40, 80, 160 seconds, then every five minutes.
    assert!((8..=12).contains(&restarts), "{restarts} restarts in half an hour");
}

#[tokio::test(start_paused = true)]
async fn who_runs_until_success_ends_with_it() {
    let cluster = cluster_of(1).await;
    pod(
        &cluster,
        json!({"exit-after": "5s"}),
        json!({"restartPolicy": "OnFailure"}),
    )
    .await;
    let ended = until(&cluster, "pods/p", minutes(1), phase("Succeeded")).await;
    assert_eq!(container(&ended)["state"]["terminated"]["reason"], "Completed");
    assert_eq!(container(&ended)["restartCount"], 0);
    assert_eq!(reason(&ended, "Ready"), "PodCompleted");
}

#[tokio::test(start_paused = true)]
async fn who_never_restarts_fails_for_good() {
    let cluster = cluster_of(1).await;
    pod(
        &cluster,
        json!({"exit-after": "5s", "exit-code": "2"}),
        json!({"restartPolicy": "Never"}),
    )
    .await;
    let ended = until(&cluster, "pods/p", minutes(1), phase("Failed")).await;
    assert_eq!(container(&ended)["state"]["terminated"]["exitCode"], 2);
    cluster.pass(minutes(10)).await;
    let later = cluster.get("pods/p").await.expect("it stays");
    assert_eq!(container(&later)["restartCount"], 0);
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_no_more_time_than_its_deadline() {
    let cluster = cluster_of(1).await;
    pod(&cluster, json!({}), json!({"activeDeadlineSeconds": 60})).await;
    until(&cluster, "pods/p", SOON, phase("Running")).await;
    let ended = until(&cluster, "pods/p", minutes(3), phase("Failed")).await;
    assert_eq!(ended["status"]["reason"], "DeadlineExceeded");
}

#[tokio::test(start_paused = true)]
async fn init_containers_run_one_after_another_before_the_others() {
    let cluster = cluster_of(1).await;
    let inits = json!([{"name": "one", "image": "i"}, {"name": "two", "image": "i"}]);
    pod(
        &cluster,
        json!({"exit-after": "10s"}),
        json!({"initContainers": inits, "restartPolicy": "Never"}),
    )
    .await;
    let mut orders = Vec::new();
    let ended = until(&cluster, "pods/p", minutes(2), |pod| {
        let inits = pod["status"]["initContainerStatuses"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let all = inits
            .iter()
            .chain(pod["status"]["containerStatuses"].as_array().into_iter().flatten());
        let running: Vec<String> = all
            .filter(|status| status["state"]["running"].is_object())
            .map(|status| status["name"].as_str().unwrap_or_default().to_string())
            .collect();
        assert!(running.len() <= 1, "one at a time: {running:?}");
        if let Some(name) = running.first().filter(|name| orders.last() != Some(*name)) {
            orders.push(name.clone());
        }
        pod["status"]["phase"] == "Succeeded"
    })
    .await;
    assert_eq!(orders, ["one", "two", "main"]);
    assert!(condition(&ended, "Initialized", "True"));
}

#[tokio::test(start_paused = true)]
async fn a_sidecar_runs_beside_the_others_and_does_not_keep_the_pod_alive() {
    let cluster = cluster_of(1).await;
    let sidecar = json!([{"name": "side", "image": "i", "restartPolicy": "Always"}]);
    pod(
        &cluster,
        json!({"exit-after": "30s"}),
        json!({"initContainers": sidecar, "restartPolicy": "Never"}),
    )
    .await;
    until(&cluster, "pods/p", SOON, |pod| {
        pod["status"]["initContainerStatuses"][0]["state"]["running"].is_object()
            && container(pod)["state"]["running"].is_object()
    })
    .await;
    until(&cluster, "pods/p", minutes(2), phase("Succeeded")).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_takes_too_long_to_end_is_ended() {
    let cluster = cluster_of(1).await;
    pod(
        &cluster,
        json!({"stop-after": "10m"}),
        json!({"terminationGracePeriodSeconds": 20}),
    )
    .await;
    until(&cluster, "pods/p", SOON, phase("Running")).await;
    cluster.delete("pods/p", "Background").await.expect("a deletion");
    cluster.pass(Duration::from_secs(15)).await;
    let ending = cluster.get("pods/p").await.expect("it has time");
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 20);
    gone(&cluster, "pods/p", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn a_second_deletion_may_shorten_the_first() {
    let cluster = cluster_of(1).await;
    pod(
        &cluster,
        json!({"stop-after": "10m"}),
        json!({"terminationGracePeriodSeconds": 300}),
    )
    .await;
    until(&cluster, "pods/p", SOON, phase("Running")).await;
    let delete = async |seconds: u32| {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": seconds});
        let path = "/api/v1/namespaces/default/pods/p";
        cluster.request("DELETE", path, options).await.expect("a deletion");
    };
    delete(300).await;
    cluster.pass(Duration::from_secs(5)).await;
    delete(2).await;
    gone(&cluster, "pods/p", Duration::from_secs(30)).await;
}

#[tokio::test(start_paused = true)]
async fn an_image_that_cannot_be_had_is_tried_less_and_less_often() {
    let cluster = cluster_of(1).await;
    pod(&cluster, json!({"fail": "image"}), json!({})).await;
    until(&cluster, "pods/p", minutes(1), |pod| {
        container(pod)["state"]["waiting"]["reason"] == "ErrImagePull"
    })
    .await;
    until(&cluster, "pods/p", minutes(1), |pod| {
        container(pod)["state"]["waiting"]["reason"] == "ImagePullBackOff"
    })
    .await;
    let waiting = cluster.get("pods/p").await.expect("it");
    assert_eq!(waiting["status"]["phase"], "Pending");
}

#[tokio::test(start_paused = true)]
async fn readiness_gates_of_others_count_too() {
    let cluster = cluster_of(1).await;
    pod(
        &cluster,
        json!({}),
        json!({"readinessGates": [{"conditionType": "example.com/open"}]}),
    )
    .await;
    let closed = until(&cluster, "pods/p", SOON, |pod| {
        condition(pod, "ContainersReady", "True") && condition(pod, "Ready", "False")
    })
    .await;
    assert_eq!(reason(&closed, "Ready"), "ReadinessGatesNotReady");
    let mut conditions = closed["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.push(json!({"type": "example.com/open", "status": "True"}));
    let patch = json!({"status": {"conditions": conditions}});
    cluster.patch("pods/p/status", patch).await.expect("an opening");
    until(&cluster, "pods/p", SOON, |pod| condition(pod, "Ready", "True")).await;
}
