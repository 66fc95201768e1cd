//! Where pods go, who makes room, and what those say that wait.

use super::story::*;
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

async fn pod(cluster: &HollowCluster, name: &str, extra: Value) {
    let mut pod = template("p", json!({}));
    pod["metadata"]["name"] = json!(name);
    for (key, value) in extra.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    cluster.create("pods", pod).await.expect("a pod");
}

fn asks(cpu: &str) -> Value {
    json!([{"name": "main", "image": "web:1", "resources": {"requests": {"cpu": cpu}}}])
}

fn message(pod: &Value) -> &str {
    let conditions = pod["status"]["conditions"].as_array();
    let scheduled = conditions
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "PodScheduled");
    scheduled.and_then(|one| one["message"].as_str()).unwrap_or_default()
}

fn running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

#[tokio::test(start_paused = true)]
async fn an_important_pod_takes_the_place_of_a_lesser_one() {
    let cluster = cluster_of(1).await;
    let node = cluster.get("nodes/node-0").await.expect("a node");
    let cpu = node["status"]["allocatable"]["cpu"]
        .as_str()
        .expect("processors")
        .to_string();
    let class = json!({"metadata": {"name": "vip"}, "value": 1000});
    cluster.create("priorityclasses", class).await.expect("a class");
    pod(
        &cluster,
        "small",
        json!({"containers": asks(&cpu), "terminationGracePeriodSeconds": 5}),
    )
    .await;
    until(&cluster, "pods/small", SOON, running).await;
    pod(&cluster, "other", json!({"containers": asks(&cpu)})).await;
    let waits = until(&cluster, "pods/other", SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    assert_eq!(
        message(&waits),
        "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 No preemption victims \
         found for incoming pod."
    );
    pod(
        &cluster,
        "king",
        json!({"containers": asks(&cpu), "priorityClassName": "vip"}),
    )
    .await;
    let king = until(&cluster, "pods/king", minutes(1), running).await;
    assert_eq!(king["spec"]["nodeName"], "node-0");
    assert_eq!(cluster.get("pods/small").await.expect_err("it went").code, 404);
    let waits = cluster.get("pods/other").await.expect("it waits");
    assert!(waits["spec"]["nodeName"].is_null(), "the room was not made for it");
    cluster.delete("pods/king", "Background").await.expect("a deletion");
    until(&cluster, "pods/other", minutes(1), running).await;
}

#[tokio::test(start_paused = true)]
async fn a_gated_pod_waits_for_its_gates() {
    let cluster = cluster().await;
    pod(
        &cluster,
        "gated",
        json!({"schedulingGates": [{"name": "example.com/ready"}]}),
    )
    .await;
    let gated = until(&cluster, "pods/gated", SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    assert_eq!(reason(&gated, "PodScheduled"), "SchedulingGated");
    cluster
        .patch("pods/gated", json!({"spec": {"schedulingGates": []}}))
        .await
        .expect("the gate opens");
    until(&cluster, "pods/gated", SOON, running).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_waits_takes_the_volume_of_its_pods_node() {
    let cluster = cluster().await;
    let class = json!({"metadata": {"name": "local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    cluster.create("storageclasses", class).await.expect("a class");
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "local",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create("persistentvolumeclaims", claim).await.expect("a claim");
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    pod(&cluster, "user", json!({"volumes": volumes})).await;
    let waits = until(&cluster, "pods/user", SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    assert!(
        message(&waits)
            .starts_with("0/3 nodes are available: 3 node(s) didn't find available persistent volumes to bind."),
        "{}",
        message(&waits)
    );
    let term = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node-2"]}]});
    let spec = json!({"storageClassName": "local", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"},
        "local": {"path": "/tmp/disk"}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}});
    let volume = json!({"metadata": {"name": "disk"}, "spec": spec});
    cluster.create("persistentvolumes", volume).await.expect("a volume");
    let user = until(&cluster, "pods/user", minutes(1), running).await;
    assert_eq!(user["spec"]["nodeName"], "node-2");
}

#[tokio::test(start_paused = true)]
async fn a_pod_says_what_its_claims_lack() {
    let cluster = cluster().await;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "missing"}}]);
    pod(&cluster, "user", json!({"volumes": volumes})).await;
    let waits = until(&cluster, "pods/user", SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    assert_eq!(
        message(&waits),
        "0/3 nodes are available: persistentvolumeclaim \"missing\" not found. preemption: 0/3 nodes are available: 3 \
         Preemption is not helpful for scheduling."
    );
    let claim = json!({"metadata": {"name": "missing"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    cluster.create("persistentvolumeclaims", claim).await.expect("a claim");
    until(&cluster, "pods/user", SOON, running).await;
}
