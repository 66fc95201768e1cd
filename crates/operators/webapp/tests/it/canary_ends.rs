//! How a canary ends that does not take over: its pods go, and those before them serve again.

use crate::canary::{pod_on_trial, ready, replicas};
use crate::world::World;
use serde_json::json;
use std::sync::Arc;
use stead_apis::webapp::strategy::StrategyType;

/// A trial on all pods, the last of which have just become available; nobody else serves.
fn on_all_pods() -> World {
    let mut world = World::ready(json!({
        "image": "nginx:1.25", "replicas": 4, "revisionHistoryLimit": 0,
        "ports": [{"name": "http", "containerPort": 80}],
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 100, "pauseSeconds": 600}]}},
    }));
    world.edit(|spec| {
        spec.image = "nginx:1.26".to_string();
        spec.ports[0].container_port = 8080;
    });
    for _ in 0..2 {
        world.settle();
        world.pods_become_available();
    }
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(0), Some(4))
    );
    world
}

/// So many stable pods are available, and all that are wanted of the trial.
fn stable_available(world: &mut World, available: i32) {
    let trial = replicas(world, "shop-canary").unwrap_or(0);
    world.pods_available(available);
    if let Some(canary) = &mut world.seen.canary {
        let status = Arc::make_mut(canary).status.as_mut().unwrap();
        status.available_replicas = i32::try_from(trial).ok();
    }
    world.settle();
}

/// The pods of the trial go one by one, as those of the good version become available, until there are enough of these.
fn leaves_one_by_one(mut world: World, enough: i32, reason: &str) {
    let canary = world.child("Deployment", "shop-canary").unwrap();
    let template = canary["spec"]["template"].clone();
    world.settle();
    assert_eq!(replicas(&world, "shop"), Some(4));
    for there in 0..enough {
        stable_available(&mut world, there);
        assert_eq!(
            replicas(&world, "shop-canary"),
            Some(i64::from(3 - there)),
            "one makes room"
        );
        assert_eq!(
            world.child("Deployment", "shop-canary").unwrap()["spec"]["template"],
            template,
            "no pod is replaced on its way out"
        );
        let target = &world.child("Service", "shop").unwrap()["spec"]["ports"][0]["targetPort"];
        assert_eq!(target, "http", "and all of them are reached");
    }
    stable_available(&mut world, enough);
    assert_eq!(replicas(&world, "shop-canary"), None);
    stable_available(&mut world, 4);
    assert_eq!(world.ready_condition().reason, reason);
    stable_available(&mut world, 2);
    assert_eq!(replicas(&world, "shop-canary"), None, "what is over does not come back");
}

#[test]
fn a_failed_version_that_served_alone_goes_when_half_of_the_good_one_is_back() {
    let mut world = on_all_pods();
    world.seen.pods = vec![pod_on_trial(&world, 3)];
    world.settle();
    world.seen.pods.clear();
    leaves_one_by_one(world, 2, "RolledBack");
}

#[test]
fn a_version_that_is_taken_back_in_mid_trial_goes_as_the_one_before_comes_back() {
    let mut world = on_all_pods();
    world.edit(|spec| {
        spec.image = "nginx:1.25".to_string();
        spec.ports[0].container_port = 80;
    });
    leaves_one_by_one(world, 3, "Available");
}

#[test]
fn pods_of_a_failed_version_that_do_not_serve_go_at_once() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.pods_available(0);
    world.settle();
    world.seen.pods = vec![pod_on_trial(&world, 3)];
    world.settle();
    assert_eq!(replicas(&world, "shop-canary"), None);
}

#[test]
fn a_canary_that_is_over_sleeps_with_its_application_though_something_is_missing() {
    let mut world = on_all_pods();
    world.edit(|spec| {
        spec.image = "nginx:1.25".to_string();
        spec.ports[0].container_port = 80;
        spec.env_from = serde_json::from_value(json!([{"secretRef": {"name": "db"}}])).unwrap();
        spec.strategy.canary = None;
        spec.strategy.kind = StrategyType::RollingUpdate;
    });
    world.settle();
    assert_eq!(world.ready_condition().reason, "ReferenceMissing");
    assert_eq!(replicas(&world, "shop-canary"), Some(3), "nobody else serves");
    world.edit(|spec| spec.suspend = true);
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(0), Some(0))
    );
}

#[test]
fn taking_back_a_failed_version_changes_no_pod() {
    let mut world = World::ready(json!({
        "image": "nginx:1.24", "replicas": 3,
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 50, "pauseSeconds": 0}]}},
    }));
    world.edit(|spec| spec.image = "nginx:1.25".to_string());
    for _ in 0..4 {
        world.settle();
        world.pods_become_available();
    }
    world.settle();
    assert_eq!(
        (world.image(), world.ready_condition().reason.as_str()),
        ("nginx:1.25", "Available")
    );
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.seen.pods = vec![pod_on_trial(&world, 3)];
    world.settle();
    world.seen.pods.clear();
    assert_eq!(world.ready_condition().reason, "RolledBack");
    world.pods_become_available();
    world.settle();
    let before = world.deployment().clone();
    world.edit(|spec| spec.image = "nginx:1.25".to_string());
    world.settle();
    assert_eq!(world.deployment(), &before, "what runs is what is wanted");
    assert_eq!(replicas(&world, "shop-canary"), None);
    assert_eq!(world.ready_condition().reason, "Available");
}
