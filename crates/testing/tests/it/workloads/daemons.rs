//! DaemonSets in detail: which nodes they are on, how they are renewed, and what they live through.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn daemon(cluster: &HollowCluster, script: Value, extra: Value) {
    let spec = json!({"selector": selector("agent"), "template": template("agent", script)});
    make(cluster, "daemonsets", "agent", merged(spec, extra)).await;
}

fn rolling(field: &str, limit: Value) -> Value {
    json!({"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {field: limit}}})
}

fn fresh(nodes: i64) -> impl FnMut(&Value) -> bool {
    move |set| {
        let status = &set["status"];
        let all = ["desiredNumberScheduled", "numberAvailable", "updatedNumberScheduled"];
        all.iter().all(|field| status[*field] == nodes) && status["observedGeneration"] == set["metadata"]["generation"]
    }
}

async fn up(cluster: &HollowCluster, nodes: i64) -> Value {
    until(cluster, "daemonsets/agent", minutes(2), fresh(nodes)).await
}

/// The fewest available daemons, and the most pods, while an update goes through.
async fn through_update(cluster: &HollowCluster) -> (i64, usize) {
    change(cluster, "daemonsets/agent", image("web:2")).await;
    let (mut least, mut most) = (i64::MAX, 0);
    loop {
        let set = cluster.get("daemonsets/agent").await.expect("it");
        least = least.min(set["status"]["numberAvailable"].as_i64().unwrap_or(0));
        most = most.max(pods(cluster, "agent").await.len());
        if fresh(3)(&set) {
            return (least, most);
        }
        cluster.pass(Duration::from_millis(500)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn with_surge_a_new_daemon_stands_beside_the_old_one() {
    let cluster = cluster().await;
    let surge = json!({"updateStrategy": {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}});
    daemon(&cluster, json!({"ready-after": "5s"}), surge).await;
    up(&cluster, 3).await;
    assert_eq!(through_update(&cluster).await, (3, 4), "none is ever missing");
    count(&cluster, "pods?labelSelector=app=agent", 3).await;
    assert_eq!(images(&cluster, "agent").await, ["web:2"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_share_of_the_nodes_may_be_without_their_daemon() {
    for (share, least) in [("50%", 1), ("100%", 0)] {
        let cluster = cluster().await;
        daemon(
            &cluster,
            json!({"ready-after": "5s"}),
            rolling("maxUnavailable", json!(share)),
        )
        .await;
        up(&cluster, 3).await;
        assert_eq!(through_update(&cluster).await.0, least, "{share} of three");
    }
}

#[tokio::test(start_paused = true)]
async fn a_broken_template_reaches_no_more_nodes_than_may_be_missing() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({})).await;
    up(&cluster, 3).await;
    change(
        &cluster,
        "daemonsets/agent",
        image_with("web:2", json!({"ready-after": "never"})),
    )
    .await;
    until(&cluster, "daemonsets/agent", minutes(1), |set| {
        set["status"]["updatedNumberScheduled"] == 1
    })
    .await;
    stays(&cluster, "daemonsets/agent", minutes(2), |set| {
        set["status"]["updatedNumberScheduled"] == 1 && set["status"]["numberUnavailable"].as_i64() <= Some(1)
    })
    .await;
    change(
        &cluster,
        "daemonsets/agent",
        image_with("web:1", json!({"ready-after": null})),
    )
    .await;
    up(&cluster, 3).await;
    assert_eq!(images(&cluster, "agent").await, ["web:1"; 3]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_comes_gets_a_daemon_and_takes_it_along() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({})).await;
    up(&cluster, 3).await;
    let capacity = json!({"cpu": "4", "memory": "8Gi", "pods": "110"});
    let node = json!({"metadata": {"name": "late"}, "status": {"capacity": capacity, "allocatable": capacity,
        "conditions": [{"type": "Ready", "status": "True"}]}});
    cluster.create("nodes", node.clone()).await.expect("a node");
    change(&cluster, "nodes/late/status", json!({"status": node["status"]})).await;
    let on_late = "pods?labelSelector=app=agent&fieldSelector=spec.nodeName=late";
    count(&cluster, on_late, 1).await;
    until(&cluster, "daemonsets/agent", SOON, |set| {
        set["status"]["desiredNumberScheduled"] == 4
    })
    .await;
    remove(&cluster, "nodes/late").await;
    count(&cluster, on_late, 0).await;
    up(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn daemons_endure_what_drives_others_away() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({})).await;
    up(&cluster, 3).await;
    let pod = &pods(&cluster, "agent").await[0];
    let tolerations = pod["spec"]["tolerations"].as_array().cloned().unwrap_or_default();
    for (key, effect) in [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ] {
        let found = tolerations
            .iter()
            .find(|one| one["key"] == format!("node.kubernetes.io/{key}") && one["effect"] == effect);
        let found = found.unwrap_or_else(|| panic!("{key} is endured: {tolerations:?}"));
        assert!(found["tolerationSeconds"].is_null(), "for as long as it takes: {found}");
    }
    let before = names(&pods(&cluster, "agent").await);
    set_power(&cluster, "node-1", json!("stopped")).await;
    cluster.pass(minutes(8)).await;
    assert_eq!(
        names(&pods(&cluster, "agent").await),
        before,
        "they wait for their node"
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_may_not_be_started_any_more_stays_and_is_told_as_misplaced() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({})).await;
    up(&cluster, 3).await;
    change(
        &cluster,
        "nodes/node-0",
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    )
    .await;
    until(&cluster, "daemonsets/agent", SOON, |set| {
        set["status"]["numberMisscheduled"] == 1 && set["status"]["desiredNumberScheduled"] == 2
    })
    .await;
    cluster.pass(minutes(1)).await;
    assert_eq!(pods(&cluster, "agent").await.len(), 3);
    change(
        &cluster,
        "nodes/node-0",
        json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}}),
    )
    .await;
    count(&cluster, "pods?labelSelector=app=agent", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_daemon_that_has_failed_is_replaced_on_its_node() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({})).await;
    up(&cluster, 3).await;
    let victim = pods(&cluster, "agent").await.remove(0);
    change(
        &cluster,
        &format!("pods/{}/status", name(&victim)),
        json!({"status": {"phase": "Failed"}}),
    )
    .await;
    gone(&cluster, &format!("pods/{}", name(&victim)), minutes(1)).await;
    up(&cluster, 3).await;
    assert_eq!(nodes_of(&cluster, "agent").await, ["node-0", "node-1", "node-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_daemon_without_room_waits_for_its_own_node_alone() {
    let cluster = cluster().await;
    let mut greedy = template("agent", json!({}));
    greedy["spec"]["containers"][0]["resources"] = json!({"requests": {"memory": "9999Gi"}});
    daemon(&cluster, json!({}), json!({"template": greedy})).await;
    count(&cluster, "pods?labelSelector=app=agent", 3).await;
    let first = name(&pods(&cluster, "agent").await[0]);
    let pod = until(&cluster, &format!("pods/{first}"), SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    let why = told(&pod, "PodScheduled")["message"]
        .as_str()
        .unwrap_or_default()
        .to_string();
    assert!(
        why.starts_with("0/3 nodes are available: 1 Insufficient memory, 2 node(s) didn't match Pod's node affinity"),
        "{why}"
    );
    let set = cluster.get("daemonsets/agent").await.expect("it");
    assert_eq!(
        (
            &set["status"]["currentNumberScheduled"],
            &set["status"]["numberUnavailable"]
        ),
        (&json!(3), &json!(3))
    );
}

#[tokio::test(start_paused = true)]
async fn a_daemon_has_to_prove_itself_before_the_next_is_renewed() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({"minReadySeconds": 20})).await;
    up(&cluster, 3).await;
    change(&cluster, "daemonsets/agent", image("web:2")).await;
    cluster.pass(Duration::from_secs(15)).await;
    let early = cluster.get("daemonsets/agent").await.expect("it");
    assert_eq!(early["status"]["updatedNumberScheduled"], 1, "{early}");
    up(&cluster, 3).await;
}

#[tokio::test(start_paused = true)]
async fn going_back_makes_the_old_revision_the_newest() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({"revisionHistoryLimit": 2})).await;
    up(&cluster, 3).await;
    for tag in ["web:2", "web:1"] {
        change(&cluster, "daemonsets/agent", image(tag)).await;
        up(&cluster, 3).await;
    }
    let revisions = cluster.list("controllerrevisions").await.expect("revisions");
    let newest = revisions
        .iter()
        .max_by_key(|one| one["revision"].as_i64())
        .expect("a revision");
    assert_eq!((revisions.len(), &newest["revision"]), (2, &json!(3)));
    assert_eq!(
        newest["data"]["spec"]["template"]["spec"]["containers"][0]["image"],
        "web:1"
    );
}

#[tokio::test(start_paused = true)]
async fn daemons_that_were_left_behind_are_adopted() {
    let cluster = cluster().await;
    daemon(&cluster, json!({}), json!({})).await;
    up(&cluster, 3).await;
    let before = names(&pods(&cluster, "agent").await);
    cluster.delete("daemonsets/agent", "Orphan").await.expect("a deletion");
    gone(&cluster, "daemonsets/agent", SOON).await;
    daemon(&cluster, json!({}), json!({})).await;
    up(&cluster, 3).await;
    assert_eq!(names(&pods(&cluster, "agent").await), before);
}

#[tokio::test(start_paused = true)]
async fn an_affinity_of_the_template_chooses_the_nodes() {
    let cluster = cluster().await;
    change(
        &cluster,
        "nodes/node-2",
        json!({"metadata": {"labels": {"disk": "ssd"}}}),
    )
    .await;
    let mut choosy = template("agent", json!({}));
    choosy["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}}});
    daemon(&cluster, json!({}), json!({"template": choosy})).await;
    up(&cluster, 1).await;
    assert_eq!(pods(&cluster, "agent").await[0]["spec"]["nodeName"], "node-2");
    change(
        &cluster,
        "nodes/node-0",
        json!({"metadata": {"labels": {"disk": "hdd"}}}),
    )
    .await;
    up(&cluster, 2).await;
}
