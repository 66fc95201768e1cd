//! Canaries: a new version on a part of the pods first.

use crate::world::World;
use serde_json::json;

fn ready() -> World {
    World::ready(json!({
        "image": "nginx:1.25", "replicas": 10,
        "strategy": {"type": "Canary", "canary": {"steps": [
            {"percent": 10, "pauseSeconds": 60}, {"percent": 50, "pauseSeconds": 60}]}},
    }))
}

fn replicas(world: &World, name: &str) -> Option<i64> {
    world
        .child("Deployment", name)
        .and_then(|found| found["spec"]["replicas"].as_i64())
}

#[test]
fn the_first_version_is_installed_whole() {
    let world = ready();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(10), None)
    );
}

#[test]
fn a_good_version_takes_over_step_by_step() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(9), Some(1))
    );
    assert_eq!(world.image(), "nginx:1.25");
    world.pods_become_available();
    world.settle();
    world.pass(30);
    world.settle();
    assert_eq!(replicas(&world, "shop-canary"), Some(1), "the pause is not over");
    world.pass(30);
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(5), Some(5))
    );
    world.pods_become_available();
    world.settle();
    world.pass(60);
    world.settle();
    assert_eq!((world.image(), replicas(&world, "shop")), ("nginx:1.26", Some(10)));
    assert_eq!(
        replicas(&world, "shop-canary"),
        Some(5),
        "trial pods help until the new ones are there"
    );
    world.pods_become_available();
    world.settle();
    assert_eq!(replicas(&world, "shop-canary"), None);
    assert_eq!(world.ready_condition().reason, "Available");
}

#[test]
fn a_bad_version_never_leaves_the_trial() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.rollout_is_stuck();
    world.settle();
    assert_eq!((world.image(), replicas(&world, "shop")), ("nginx:1.25", Some(10)));
    assert_eq!(replicas(&world, "shop-canary"), None);
    assert_eq!(world.ready_condition().reason, "RolledBack");
}

#[test]
fn too_many_failed_requests_condemn_a_version_that_looks_well() {
    let mut world = World::ready(json!({
        "image": "nginx:1.25", "replicas": 10,
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 10, "pauseSeconds": 600}],
            "errorRate": {"metric": "http_requests_total", "maxPercent": 5}}},
    }));
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    world.pods_become_available();
    world.seen.failed_requests = Some(4.9);
    world.settle();
    assert_eq!(replicas(&world, "shop-canary"), Some(1), "few failures are borne");
    let plan = world.plan().to_string();
    assert!(
        plan.ends_with("then check again in 5s"),
        "requests are counted often: {plan}"
    );
    world.seen.failed_requests = Some(5.1);
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(10), None)
    );
    assert_eq!(world.ready_condition().reason, "RolledBack");
}

#[test]
fn restarts_of_a_trial_pod_condemn_the_version() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    let restless = json!({"metadata": {"name": "shop-canary-1", "labels": {"stead.dev/track": "canary"}}, "status": {
        "containerStatuses": [{"name": "app", "image": "x", "imageID": "", "ready": true, "restartCount": 3}]}});
    world.seen.pods = vec![std::sync::Arc::new(serde_json::from_value(restless).unwrap())];
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolledBack");
}
