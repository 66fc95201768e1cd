//! Room on nodes: what pods ask for, who makes room for whom, and what is kept for those that wait.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

async fn put(cluster: &HollowCluster, name: &str, spec: Value) {
    pod(cluster, name, name.split('-').next().unwrap_or(name), json!({}), spec).await;
}

/// A container that asks for this.
fn asks(requests: Value) -> Value {
    json!([{"name": "main", "image": "web:1", "resources": {"requests": requests}}])
}

/// Pods ask for parts of a node: this gives all of its processors times so many percent.
async fn cpu(cluster: &HollowCluster, percent: i64) -> String {
    let node = cluster.get("nodes/node-0").await.expect("a node");
    let text = node["status"]["allocatable"]["cpu"]
        .as_str()
        .expect("processors")
        .to_string();
    let milli = match text.strip_suffix('m') {
        Some(milli) => milli.parse::<i64>().expect("a number"),
        None => text.parse::<i64>().expect("a number") * 1000,
    };
    format!("{}m", milli * percent / 100)
}

async fn class(cluster: &HollowCluster, name: &str, value: i32, extra: Value) {
    let object = merged(json!({"metadata": {"name": name}, "value": value}), extra);
    cluster.create("priorityclasses", object).await.expect("a class");
}

async fn waits(cluster: &HollowCluster, name: &str) -> String {
    let pod = until(cluster, &format!("pods/{name}"), SOON, |pod| {
        condition(pod, "PodScheduled", "False")
    })
    .await;
    told(&pod, "PodScheduled")["message"]
        .as_str()
        .unwrap_or_default()
        .to_string()
}

#[tokio::test(start_paused = true)]
async fn what_init_containers_and_sidecars_ask_for_counts_as_it_is_used() {
    let cluster = cluster_of(1).await;
    let (large, small) = (cpu(&cluster, 80).await, cpu(&cluster, 30).await);
    let init = |cpu: &str, policy: Value| {
        json!([{"name": "first", "image": "web:1", "restartPolicy": policy,
            "resources": {"requests": {"cpu": cpu}}}])
    };
    // The larger of both counts where one runs after the other.
    put(
        &cluster,
        "in-turn",
        json!({"initContainers": init(&large, Value::Null), "containers": asks(json!({"cpu": small}))}),
    )
    .await;
    runs(&cluster, "in-turn").await;
    remove(&cluster, "pods/in-turn").await;
    gone(&cluster, "pods/in-turn", minutes(1)).await;
    put(
        &cluster,
        "beside",
        json!({"initContainers": init(&large, json!("Always")), "containers": asks(json!({"cpu": small}))}),
    )
    .await;
    assert!(waits(&cluster, "beside").await.contains("1 Insufficient cpu"));
}

#[tokio::test(start_paused = true)]
async fn a_node_takes_no_more_pods_than_it_says() {
    let cluster = cluster_of(1).await;
    let node = cluster.get("nodes/node-0").await.expect("it");
    let mut allocatable = node["status"]["allocatable"].clone();
    allocatable["pods"] = json!("1");
    set_power(&cluster, "node-0", json!("partitioned")).await;
    change(
        &cluster,
        "nodes/node-0/status",
        json!({"status": {"allocatable": allocatable}}),
    )
    .await;
    put(&cluster, "first", json!({})).await;
    until(&cluster, "pods/first", SOON, |pod| pod["spec"]["nodeName"] == "node-0").await;
    put(&cluster, "second", json!({})).await;
    assert!(waits(&cluster, "second").await.contains("1 Too many pods"));
}

#[tokio::test(start_paused = true)]
async fn resources_of_other_kinds_are_counted_too() {
    let cluster = cluster_of(1).await;
    let gpu = |count: &str| asks(json!({"example.com/gpu": count}));
    let limits = |count: &str| {
        let mut containers = gpu(count);
        containers[0]["resources"]["limits"] = json!({"example.com/gpu": count});
        json!({"containers": containers})
    };
    put(&cluster, "p", limits("1")).await;
    let why = waits(&cluster, "p").await;
    assert!(why.contains("1 Insufficient example.com/gpu"), "{why}");
}

#[tokio::test(start_paused = true)]
async fn pods_go_where_more_is_left() {
    let cluster = cluster_of(2).await;
    let half = cpu(&cluster, 50).await;
    put(
        &cluster,
        "big",
        json!({"nodeName": "node-0", "containers": asks(json!({"cpu": half}))}),
    )
    .await;
    runs(&cluster, "big").await;
    let small = cpu(&cluster, 10).await;
    put(&cluster, "small", json!({"containers": asks(json!({"cpu": small}))})).await;
    assert_eq!(runs(&cluster, "small").await["spec"]["nodeName"], "node-1");
}

#[tokio::test(start_paused = true)]
async fn the_least_important_make_room_and_no_more_of_them_than_needed() {
    let cluster = cluster_of(1).await;
    for (name, value) in [("low", 10), ("middle", 20), ("high", 30)] {
        class(&cluster, name, value, json!({})).await;
    }
    let third = cpu(&cluster, 30).await;
    for (name, class) in [("low-a", "low"), ("middle-a", "middle"), ("low-b", "low")] {
        put(
            &cluster,
            name,
            json!({"containers": asks(json!({"cpu": third})), "priorityClassName": class}),
        )
        .await;
        runs(&cluster, name).await;
        cluster.pass(Duration::from_secs(2)).await;
    }
    put(
        &cluster,
        "king",
        json!({"containers": asks(json!({"cpu": third})), "priorityClassName": "high"}),
    )
    .await;
    runs(&cluster, "king").await;
    let left = names(&cluster.list("pods").await.expect("pods"));
    assert_eq!(
        left,
        ["king", "low-a", "middle-a"],
        "the younger of the two lowest went"
    );
}

#[tokio::test(start_paused = true)]
async fn who_may_not_take_room_from_others_waits_at_the_head_of_the_line() {
    let cluster = cluster_of(1).await;
    class(&cluster, "polite", 1000, json!({"preemptionPolicy": "Never"})).await;
    let all = cpu(&cluster, 90).await;
    put(&cluster, "small", json!({"containers": asks(json!({"cpu": all}))})).await;
    runs(&cluster, "small").await;
    put(
        &cluster,
        "polite",
        json!({"containers": asks(json!({"cpu": all})), "priorityClassName": "polite"}),
    )
    .await;
    let why = waits(&cluster, "polite").await;
    assert!(
        why.ends_with("preemption: not eligible due to preemptionPolicy=Never."),
        "{why}"
    );
    stays(&cluster, "pods/small", minutes(1), |pod| {
        pod["metadata"]["deletionTimestamp"].is_null()
    })
    .await;
    remove(&cluster, "pods/small").await;
    runs(&cluster, "polite").await;
}

#[tokio::test(start_paused = true)]
async fn pods_under_a_budget_are_the_last_to_make_room() {
    let cluster = cluster_of(2).await;
    class(&cluster, "vip", 1000, json!({})).await;
    let most = cpu(&cluster, 80).await;
    for (name, node) in [("guarded", "node-0"), ("free", "node-1")] {
        put(
            &cluster,
            name,
            json!({"containers": asks(json!({"cpu": most})), "nodeName": node}),
        )
        .await;
        runs(&cluster, name).await;
    }
    make(
        &cluster,
        "poddisruptionbudgets",
        "guard",
        json!({"minAvailable": 1, "selector": selector("guarded")}),
    )
    .await;
    until(&cluster, "poddisruptionbudgets/guard", SOON, |budget| {
        budget["status"]["currentHealthy"] == 1
    })
    .await;
    put(
        &cluster,
        "king",
        json!({"containers": asks(json!({"cpu": most})), "priorityClassName": "vip"}),
    )
    .await;
    assert_eq!(runs(&cluster, "king").await["spec"]["nodeName"], "node-1");
    cluster.get("pods/guarded").await.expect("it stays");
    put(
        &cluster,
        "queen",
        json!({"containers": asks(json!({"cpu": most})), "priorityClassName": "vip"}),
    )
    .await;
    runs(&cluster, "queen").await;
    assert_eq!(
        cluster.get("pods/guarded").await.expect_err("a budget is no wall").code,
        404
    );
}

#[tokio::test(start_paused = true)]
async fn room_that_is_being_made_is_kept() {
    let cluster = cluster_of(1).await;
    class(&cluster, "vip", 1000, json!({})).await;
    let all = cpu(&cluster, 80).await;
    pod(
        &cluster,
        "slow",
        "slow",
        json!({"stop-after": "20s"}),
        json!({"containers": asks(json!({"cpu": all}))}),
    )
    .await;
    runs(&cluster, "slow").await;
    put(
        &cluster,
        "king",
        json!({"containers": asks(json!({"cpu": all})), "priorityClassName": "vip"}),
    )
    .await;
    until(&cluster, "pods/king", SOON, |pod| {
        pod["status"]["nominatedNodeName"] == "node-0"
    })
    .await;
    let victim = cluster.get("pods/slow").await.expect("it takes its time");
    assert_eq!(reason(&victim, "DisruptionTarget"), "PreemptionByScheduler");
    put(&cluster, "thief", json!({"containers": asks(json!({"cpu": all}))})).await;
    runs(&cluster, "king").await;
    let thief = cluster.get("pods/thief").await.expect("it");
    assert!(thief["spec"]["nodeName"].is_null(), "the room was not for it");
    assert_eq!(event(&cluster, "Preempted").await.rsplit(' ').next(), Some("node-0"));
}

#[tokio::test(start_paused = true)]
async fn where_nobody_less_important_is_room_is_not_made() {
    let cluster = cluster_of(2).await;
    let all = cpu(&cluster, 80).await;
    class(&cluster, "vip", 1000, json!({})).await;
    let vip = json!({"containers": asks(json!({"cpu": all})), "priorityClassName": "vip"});
    put(&cluster, "vip-0", vip.clone()).await;
    put(&cluster, "vip-1", vip.clone()).await;
    runs(&cluster, "vip-1").await;
    change(&cluster, "nodes/node-1", json!({"spec": {"unschedulable": true}})).await;
    put(&cluster, "vip-2", vip).await;
    let why = waits(&cluster, "vip-2").await;
    assert_eq!(
        why,
        "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable. preemption: 0/2 nodes are \
         available: 1 No preemption victims found for incoming pod, 1 Preemption is not helpful for scheduling."
    );
}

#[tokio::test(start_paused = true)]
async fn host_ports_clash_by_address_and_protocol() {
    let cluster = cluster_of(1).await;
    let door = |ip: &str, protocol: &str| {
        let port = json!({"containerPort": 80, "hostPort": 8080, "hostIP": ip, "protocol": protocol});
        json!({"containers": [{"name": "main", "image": "web:1", "ports": [port]}]})
    };
    put(&cluster, "a", door("127.0.0.1", "TCP")).await;
    runs(&cluster, "a").await;
    for (name, ip, protocol, fits) in [
        ("b", "127.0.0.1", "UDP", true),
        ("c", "127.0.0.2", "TCP", true),
        ("d", "127.0.0.1", "TCP", false),
        ("e", "0.0.0.0", "TCP", false),
    ] {
        put(&cluster, name, door(ip, protocol)).await;
        match fits {
            true => drop(runs(&cluster, name).await),
            false => assert!(waits(&cluster, name).await.contains("free ports"), "{name}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_of_several_gates_opens_the_way() {
    let cluster = cluster_of(1).await;
    put(
        &cluster,
        "p",
        json!({"schedulingGates": [{"name": "example.com/a"}, {"name": "example.com/b"}]}),
    )
    .await;
    assert_eq!(
        waits(&cluster, "p").await,
        "Scheduling is blocked due to non-empty scheduling gates"
    );
    change(
        &cluster,
        "pods/p",
        json!({"spec": {"schedulingGates": [{"name": "example.com/b"}]}}),
    )
    .await;
    stays(&cluster, "pods/p", Duration::from_secs(30), |pod| {
        pod["spec"]["nodeName"].is_null()
    })
    .await;
    change(&cluster, "pods/p", json!({"spec": {"schedulingGates": []}})).await;
    runs(&cluster, "p").await;
}

#[tokio::test(start_paused = true)]
async fn every_event_that_could_help_wakes_those_who_wait() {
    let cluster = cluster_of(1).await;
    change(
        &cluster,
        "nodes/node-0",
        json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    )
    .await;
    put(&cluster, "taint", json!({})).await;
    assert!(waits(&cluster, "taint").await.contains("untolerated taint"));
    change(&cluster, "nodes/node-0", json!({"spec": {"taints": null}})).await;
    runs(&cluster, "taint").await;
    let all = cpu(&cluster, 90).await;
    put(&cluster, "big", json!({"containers": asks(json!({"cpu": all}))})).await;
    runs(&cluster, "big").await;
    put(&cluster, "late", json!({"containers": asks(json!({"cpu": all}))})).await;
    waits(&cluster, "late").await;
    // One that has ended needs nothing any more, though it is still there.
    change(&cluster, "pods/big/status", json!({"status": {"phase": "Succeeded"}})).await;
    runs(&cluster, "late").await;
}

#[tokio::test(start_paused = true)]
async fn a_toleration_fits_by_key_value_and_effect() {
    let cluster = cluster_of(1).await;
    let taint = json!({"key": "only", "value": "gpu", "effect": "NoSchedule"});
    change(&cluster, "nodes/node-0", json!({"spec": {"taints": [taint]}})).await;
    for (name, toleration, fits) in [
        (
            "equal",
            json!({"key": "only", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"}),
            true,
        ),
        ("every-effect", json!({"key": "only", "operator": "Exists"}), true),
        ("everything", json!({"operator": "Exists"}), true),
        (
            "other-value",
            json!({"key": "only", "value": "tpu", "effect": "NoSchedule"}),
            false,
        ),
        (
            "other-effect",
            json!({"key": "only", "operator": "Exists", "effect": "NoExecute"}),
            false,
        ),
        ("other-key", json!({"key": "also", "operator": "Exists"}), false),
    ] {
        put(&cluster, name, json!({"tolerations": [toleration]})).await;
        match fits {
            true => drop(runs(&cluster, name).await),
            false => assert!(waits(&cluster, name).await.contains("untolerated taint"), "{name}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_volume_for_one_pod_alone_is_not_shared() {
    let cluster = cluster().await;
    let claim = json!({"accessModes": ["ReadWriteOncePod"], "resources": {"requests": {"storage": "1Gi"}}});
    make(&cluster, "persistentvolumeclaims", "data", claim).await;
    let user = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    put(&cluster, "first", user.clone()).await;
    runs(&cluster, "first").await;
    put(&cluster, "second", user).await;
    let why = waits(&cluster, "second").await;
    assert!(
        why.contains("3 node has pod using PersistentVolumeClaim with the same name and ReadWriteOncePod access mode"),
        "{why}"
    );
    remove(&cluster, "pods/first").await;
    runs(&cluster, "second").await;
}

#[tokio::test(start_paused = true)]
async fn a_volume_of_a_zone_is_used_there() {
    let cluster = cluster().await;
    let zone =
        cluster.get("nodes/node-2").await.expect("a node")["metadata"]["labels"]["topology.kubernetes.io/zone"].clone();
    let spec = json!({"accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Gi"}, "storageClassName": "",
        "hostPath": {"path": "/tmp/disk"}});
    let volume = json!({"metadata": {"name": "disk", "labels": {"topology.kubernetes.io/zone": zone}}, "spec": spec});
    cluster.create("persistentvolumes", volume).await.expect("a volume");
    let claim = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
        "storageClassName": ""});
    make(&cluster, "persistentvolumeclaims", "data", claim).await;
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]);
    put(&cluster, "p", json!({"volumes": volumes})).await;
    assert_eq!(runs(&cluster, "p").await["spec"]["nodeName"], "node-2");
    put(
        &cluster,
        "q",
        json!({"volumes": volumes, "nodeSelector": {"kubernetes.io/hostname": "node-0"}}),
    )
    .await;
    let why = waits(&cluster, "q").await;
    assert!(why.contains("1 node(s) had no available volume zone"), "{why}");
}
