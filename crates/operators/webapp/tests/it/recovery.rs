//! What is done about pods that are up but failing, bad nodes, observed use, and images that cannot be confined.

use crate::world::World;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::Arc;
use stead_webapp::seen::Usage;

fn pod(name: &str, node: &str, ready_since: Option<&str>) -> Arc<Pod> {
    let condition = match ready_since {
        None => json!({"type": "Ready", "status": "True", "lastTransitionTime": "2025-12-31T23:00:05Z"}),
        Some(time) => json!({"type": "Ready", "status": "False", "lastTransitionTime": time}),
    };
    let value = json!({"metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {"nodeName": node, "containers": []},
        "status": {"phase": "Running", "startTime": "2025-12-31T23:00:00Z", "conditions": [condition]}});
    Arc::new(serde_json::from_value(value).unwrap())
}

fn ready(recovery: Value) -> World {
    World::ready(json!({"image": "nginx:1.25", "replicas": 3, "recovery": recovery}))
}

fn deleted(world: &World) -> Vec<String> {
    let plan = world.plan();
    plan.deletions
        .iter()
        .map(|gone| format!("{}: {}", gone.key.name(), gone.why))
        .collect()
}

#[test]
fn a_pod_that_is_up_but_failing_is_replaced_one_at_a_time() {
    let mut world = ready(json!({"restartAfterSeconds": 300}));
    world.seen.pods = vec![
        pod("well", "a", None),
        pod("sick-1", "a", Some("2025-12-31T23:50:00Z")),
        pod("sick-2", "a", Some("2025-12-31T23:50:00Z")),
        pod("hiccup", "a", Some("2025-12-31T23:59:50Z")),
    ];
    assert_eq!(deleted(&world), ["sick-1: up and not ready for 300 s"]);
    let mut going = Pod::clone(&world.seen.pods[1]);
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.seen.pods[1] = Arc::new(going);
    assert!(deleted(&world).is_empty(), "the next one waits for the first");
    world.seen.pods[1] = pod("sick-1", "a", None);
    assert_eq!(deleted(&world).len(), 1);
}

#[test]
fn the_next_failing_pod_is_replaced_only_when_the_first_replacement_serves() {
    let mut world = ready(json!({"restartAfterSeconds": 300}));
    let fresh = |made: &str| {
        let value = json!({"metadata": {"name": "fresh", "creationTimestamp": made},
            "spec": {"nodeName": "a", "containers": []},
            "status": {"phase": "Running", "startTime": made,
                "conditions": [{"type": "Ready", "status": "False", "lastTransitionTime": made}]}});
        Arc::new(serde_json::from_value(value).unwrap())
    };
    world.seen.pods = vec![
        fresh("2025-12-31T23:59:00Z"),
        pod("sick-1", "a", Some("2025-12-31T23:50:00Z")),
        pod("sick-2", "a", Some("2025-12-31T23:50:00Z")),
    ];
    assert!(deleted(&world).is_empty(), "the replacement is on its way");
    world.seen.pods[0] = pod("fresh", "a", None);
    assert_eq!(deleted(&world), ["sick-1: up and not ready for 300 s"]);
    world.seen.pods[0] = fresh("2025-12-31T23:00:00Z");
    assert_eq!(
        deleted(&world).len(),
        1,
        "one that never comes up does not keep the others sick"
    );
}

#[test]
fn a_pod_that_cannot_end_holds_nobody_up_for_ever_even_where_nodes_cannot_be_seen() {
    let mut world = ready(json!({"restartAfterSeconds": 300}));
    let mut stuck = Pod::clone(&pod("stuck", "dead", None));
    stuck.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.seen.pods = vec![Arc::new(stuck), pod("sick", "a", Some("2025-12-31T23:50:00Z"))];
    assert!(deleted(&world).is_empty());
    world.pass(60);
    assert_eq!(deleted(&world), ["sick: up and not ready for 300 s"]);
}

#[test]
fn pods_leave_a_bad_node_even_when_one_of_them_cannot_end() {
    let mut world = ready(json!({"restartAfterSeconds": 0, "badNodes": "Leave"}));
    let lost = "2025-12-31T23:59:59Z";
    world.seen.pods = vec![
        pod("stays", "good", None),
        pod("one", "bad", Some(lost)),
        pod("two", "bad", Some(lost)),
    ];
    assert!(deleted(&world).is_empty(), "no node is known to be bad");
    world.seen.bad_nodes = vec!["bad".to_string()];
    assert_eq!(deleted(&world), ["one: its node is not well"]);
    let mut stuck = Pod::clone(&world.seen.pods[1]);
    stuck.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.seen.pods[1] = Arc::new(stuck);
    assert_eq!(
        deleted(&world),
        ["two: its node is not well"],
        "a dead node never confirms the first"
    );
}

#[test]
fn a_node_is_bad_when_it_is_not_ready_or_under_pressure() {
    let node = |kind: &str, status: &str| {
        let value = json!({"status": {"conditions": [{"type": kind, "status": status}]}});
        stead_webapp::observe::is_unwell(&serde_json::from_value(value).unwrap())
    };
    assert!(node("Ready", "Unknown") && node("DiskPressure", "True"));
    assert!(!node("Ready", "True") && !node("DiskPressure", "False") && !node("VendorLicensed", "True"));
}

#[test]
fn advice_follows_observed_use_and_is_applied_where_the_spec_allows() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "replicas": 2, "advice": "Apply",
        "resources": {"limits": {"memory": "64Mi"}}}));
    let used = |cpu_millis, memory_bytes| Usage {
        cpu_millis,
        memory_bytes,
    };
    world.seen.usage = vec![used(100, 50 << 20), used(200, 90 << 20)];
    world.settle();
    let advice = world.app.status.as_ref().unwrap().advice.clone().unwrap();
    assert_eq!((advice.cpu.as_str(), advice.memory.as_str()), ("240m", "109Mi"));
    let requests = |world: &World| {
        world.deployment()["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"].clone()
    };
    assert_eq!(requests(&world), Value::Null, "advice alone restarts nobody");
    let writes = world.writes;
    world.seen.usage = vec![used(190, 88 << 20)];
    world.settle();
    assert_eq!(world.writes, writes, "a little more or less is the same advice");
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    assert_eq!(
        requests(&world),
        json!({"cpu": "240m", "memory": "64Mi"}),
        "never above the limit"
    );
}

#[test]
fn without_leave_of_the_spec_advice_is_only_told() {
    let mut world = World::ready(json!({"image": "nginx:1.25"}));
    world.seen.usage = vec![Usage {
        cpu_millis: 100,
        memory_bytes: 50 << 20,
    }];
    world.settle();
    assert!(world.app.status.as_ref().unwrap().advice.is_some());
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    let container = &world.deployment()["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["resources"], Value::Null);
}

#[test]
fn an_image_that_cannot_run_restricted_gets_a_condition_naming_the_field_to_relax() {
    let mut world = World::new(json!({"image": "nginx:1.25", "security": {"profile": "Restricted"}}));
    let waiting = |reason: &str, message: &str| {
        let value = json!({"metadata": {"name": "shop-1", "namespace": "default"}, "status": {"phase": "Pending",
            "containerStatuses": [{"name": "app", "image": "x", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": reason, "message": message}}}]}});
        Arc::new(serde_json::from_value::<Pod>(value).unwrap())
    };
    world.seen.pods = vec![waiting(
        "CreateContainerConfigError",
        "container has runAsNonRoot and image will run as root",
    )];
    world.settle();
    let message = world.ready_condition().message;
    assert!(message.contains("relax spec.security.profile to Default"), "{message}");
    world.seen.pods = vec![waiting("CrashLoopBackOff", "back-off 10s restarting failed container")];
    world.settle();
    let message = world.ready_condition().message;
    assert!(message.contains("relax spec.security.profile to Default"), "{message}");
}

#[test]
fn a_namespace_that_asks_for_more_is_named_with_the_field_to_set() {
    let mut world = World::new(json!({"image": "nginx:1.25"}));
    world.settle();
    let mut refused = (**world.seen.stable.as_ref().unwrap()).clone();
    refused.status = serde_json::from_value(
        json!({"observedGeneration": 1, "conditions": [{"type": "ReplicaFailure",
        "status": "True", "reason": "FailedCreate",
        "message": "pods \"shop-1\" is forbidden: violates PodSecurity \"restricted:latest\""}]}),
    )
    .unwrap();
    world.seen.stable = Some(Arc::new(refused));
    world.look();
    let message = world.ready_condition().message;
    assert!(message.contains("set spec.security.profile to Restricted"), "{message}");
}

#[test]
fn a_name_that_an_older_application_has_is_told_until_it_is_free() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "ingress": {"host": "shop.example.com"}}));
    let exposed = |world: &World| {
        let conditions = &world.app.status.as_ref().unwrap().conditions;
        stead_machinery::conditions::get(conditions, "Exposed").map(|found| found.reason.clone())
    };
    assert_eq!(exposed(&world), None);
    world.seen.taken_by = Some("other/shop".to_string());
    let told = |plan: &stead::Plan| plan.to_string().contains("HostTaken: webapp other/shop is older");
    assert!(told(&world.look()));
    assert_eq!(exposed(&world).as_deref(), Some("HostTaken"));
    assert!(!told(&world.look()), "it was told already");
    world.seen.taken_by = None;
    world.look();
    assert_eq!(exposed(&world), None);
}

#[test]
fn a_kind_that_the_cluster_does_not_have_is_named_and_made_when_it_comes() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "monitoring": {},
        "route": {"gateway": {"name": "door"}, "hostnames": ["shop.example.com"]}}));
    let reason = |world: &World, kind: &str| {
        let conditions = &world.app.status.as_ref().unwrap().conditions;
        stead_machinery::conditions::get(conditions, kind).map(|found| found.reason.clone())
    };
    assert_eq!(reason(&world, "Exposed").as_deref(), Some("GatewayMissing"));
    assert_eq!(reason(&world, "Monitored").as_deref(), Some("PrometheusMissing"));
    assert!(world.child("HTTPRoute", "shop").is_none());
    world.seen.optional.gateway = true;
    world.seen.optional.monitoring = true;
    world.settle();
    for kind in ["HTTPRoute", "ServiceMonitor", "PrometheusRule"] {
        assert!(world.child(kind, "shop").is_some(), "{kind}");
    }
    assert_eq!((reason(&world, "Exposed"), reason(&world, "Monitored")), (None, None));
}
