//! How long a new version may take, and what becomes of it when it takes longer.

use crate::world::World;
use serde_json::json;
use std::sync::Arc;
use stead_apis::webapp::strategy::OnFailure;

const DEADLINE: i64 = 600;

fn canary(replicas: i32) -> World {
    World::ready(json!({
        "image": "nginx:1.25", "replicas": replicas,
        "strategy": {"type": "Canary", "canary": {"steps": [
            {"percent": 10, "pauseSeconds": 60}, {"percent": 50, "pauseSeconds": 60}]}},
    }))
}

fn trial_pods(world: &World) -> Option<i64> {
    world
        .child("Deployment", "shop-canary")
        .and_then(|found| found["spec"]["replicas"].as_i64())
}

/// A trial in its first step, whose pod serves.
fn first_step() -> World {
    let mut world = canary(10);
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    for _ in 0..2 {
        world.settle();
        world.pods_become_available();
    }
    world.settle();
    world
}

/// A trial in its second step.
fn second_step() -> World {
    let mut world = first_step();
    world.pass(60);
    world.settle();
    assert_eq!(trial_pods(&world), Some(5));
    world
}

#[test]
fn f28_what_comes_up_after_its_deadline_is_good_after_all() {
    let mut world = World::new(json!({"image": "nginx:1.25", "replicas": 3}));
    world.settle();
    world.pods_available(0);
    world.settle();
    world.pass(DEADLINE);
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolloutFailed");
    // The quota, or the registry, is there again.
    world.pods_become_available();
    world.settle();
    assert_eq!(world.ready_condition().reason, "Available");
    assert_eq!(world.app.status.as_ref().unwrap().last_good_revision, Some(1));
    assert_eq!(world.events, ["RolloutFailed", "RolledOut"]);
}

#[test]
fn a_version_that_moves_has_all_the_time_it_needs_and_pods_that_come_and_go_do_not_move_it() {
    let mut world = World::new(json!({"image": "nginx:1.25", "replicas": 5}));
    world.settle();
    for available in 0..4 {
        world.pods_available(available);
        world.settle();
        world.pass(DEADLINE - 1);
        world.settle();
        assert_eq!(world.ready_condition().reason, "WaitingForPods");
    }
    for available in [2, 3, 1, 3] {
        world.pods_available(available);
        world.settle();
    }
    world.pass(1);
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolloutFailed");
}

/// What the Deployment's controller says of its pods: all, those of the newest template, and those available.
fn counted(world: &mut World, [replicas, updated, available]: [i32; 3]) {
    let stable = Arc::make_mut(world.seen.stable.as_mut().unwrap());
    let status = stable.status.as_mut().unwrap();
    status.observed_generation = stable.metadata.generation;
    status.replicas = Some(replicas);
    status.updated_replicas = Some(updated);
    status.available_replicas = Some(available);
}

/// One look at which the cache shows what was set by hand.
fn look(world: &mut World) {
    let stable = world.seen.stable.clone();
    world.look();
    world.seen.stable = stable;
}

/// A version of which one pod was made and does not come up.
fn stuck_and_autoscaled() -> World {
    let mut world = World::ready(json!({"image": "nginx:1.25", "replicas": 10,
        "autoscaling": {"minReplicas": 2, "maxReplicas": 40}}));
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.no_pod_comes_up();
    world.settle();
    world
}

#[test]
fn an_autoscaler_that_changes_its_mind_gives_a_version_no_more_time() {
    let mut world = stuck_and_autoscaled();
    let mut before = 10;
    for replicas in [12, 10, 12, 10, 12] {
        world.pass(DEADLINE / 5);
        // Just written; then looked at by the Deployment's controller; and then done.
        world.is_scaled_to(replicas);
        look(&mut world);
        counted(&mut world, [before + 1, 1, before]);
        look(&mut world);
        counted(&mut world, [replicas + 1, 1, replicas]);
        look(&mut world);
        before = replicas;
    }
    assert_eq!(world.ready_condition().reason, "RolledBack");
}

#[test]
fn a_version_that_moves_has_its_time_also_when_it_is_to_have_fewer_pods() {
    let mut world = stuck_and_autoscaled();
    world.is_scaled_to(10);
    counted(&mut world, [10, 8, 9]);
    look(&mut world);
    world.pass(DEADLINE - 1);
    world.is_scaled_to(4);
    counted(&mut world, [5, 2, 4]);
    look(&mut world);
    counted(&mut world, [5, 3, 4]);
    look(&mut world);
    world.pass(DEADLINE - 1);
    look(&mut world);
    assert_eq!(world.ready_condition().reason, "WaitingForPods");
    world.pass(1);
    look(&mut world);
    assert_eq!(world.ready_condition().reason, "RolledBack");
}

#[test]
fn the_next_look_is_when_the_time_is_over() {
    let mut world = World::new(json!({"image": "nginx:1.25", "strategy": {"progressDeadlineSeconds": 7}}));
    world.settle();
    world.pods_available(0);
    world.settle();
    let plan = world.plan().to_string();
    assert!(plan.ends_with("then check again in 7s"), "{plan}");
}

#[test]
fn a_step_whose_further_pods_do_not_start_fails_in_time() {
    let mut world = second_step();
    // Kubernetes counts no deadline for a Deployment that was complete and is only scaled.
    world.pods_available(1);
    world.settle();
    world.pass(DEADLINE - 1);
    world.settle();
    assert_eq!(world.ready_condition().reason, "WaitingForPods");
    world.pass(1);
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolledBack");
    world.pods_become_available();
    world.settle();
    assert_eq!(trial_pods(&world), None);
}

#[test]
fn trial_pods_that_turn_unready_in_a_pause_and_stay_so_condemn_the_version() {
    let mut world = first_step();
    world.pass(30);
    world.pods_available(0);
    world.settle();
    world.pass(DEADLINE);
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolledBack");
}

#[test]
fn a_version_set_while_the_application_was_suspended_is_judged_when_it_wakes_up() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "replicas": 3}));
    world.edit(|spec| spec.suspend = true);
    world.settle();
    world.pods_become_available();
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.pods_become_available();
    world.settle();
    world.pass(24 * 3600);
    world.settle();
    world.edit(|spec| spec.suspend = false);
    world.settle();
    world.pods_available(0);
    world.settle();
    assert_eq!(world.ready_condition().reason, "Scaling", "the night does not count");
    world.pass(DEADLINE);
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolledBack");
    assert_eq!(world.image(), "nginx:1.25");
}

#[test]
fn time_in_which_a_secret_is_missing_does_not_count() {
    let mut world = World::new(json!({"image": "nginx:1.25", "envFrom": [{"secretRef": {"name": "db"}}]}));
    world.put_secret("db", "1");
    world.settle();
    world.pods_available(0);
    world.settle();
    world.seen.digests.secrets.clear();
    world.settle();
    world.pass(24 * 3600);
    world.settle();
    assert_eq!(world.ready_condition().reason, "ReferenceMissing");
    world.put_secret("db", "1");
    world.settle();
    assert_eq!(world.ready_condition().reason, "WaitingForPods");
}

#[test]
fn what_a_deployment_said_of_one_version_is_not_held_against_the_one_before() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "replicas": 1,
        "strategy": {"type": "Recreate", "onFailure": "Stop"}}));
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.pods_available(0);
    world.settle();
    world.pass(DEADLINE);
    world.deployments_are_late();
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolloutFailed");
    world.edit(|spec| spec.image = "nginx:1.25".to_string());
    world.settle();
    world.pods_available(0);
    world.settle();
    assert_eq!(world.ready_condition().reason, "WaitingForPods");
    world.pods_available(1);
    world.settle();
    assert_eq!(world.ready_condition().reason, "Available");
}

#[test]
fn a_failed_version_is_tried_again_when_it_is_given_more_time() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "replicas": 3}));
    world.edit(|spec| spec.image = "nginx:slow".to_string());
    world.settle();
    world.rollout_is_stuck();
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolledBack");
    world.edit(|spec| spec.strategy.on_failure = OnFailure::Stop);
    world.look();
    world.edit(|spec| spec.strategy.on_failure = OnFailure::RollBack);
    world.settle();
    assert_eq!(
        world.ready_condition().reason,
        "RolledBack",
        "this says only what a failure means"
    );
    world.edit(|spec| spec.strategy.progress_deadline_seconds = 3600);
    world.settle();
    assert_eq!(world.image(), "nginx:slow");
    world.no_pod_comes_up();
    world.settle();
    world.pass(3599);
    world.settle();
    assert_eq!(world.image(), "nginx:slow", "it has the time that it was given");
    world.pods_become_available();
    world.settle();
    assert_eq!(world.ready_condition().reason, "Available");
}

#[test]
fn a_step_of_which_the_deployment_was_never_told_has_not_passed() {
    let mut world = second_step();
    // The status was written, and the Deployment refused: it still has the pod of the first step, and that is well.
    let refused = |world: &mut World| {
        let place = ("Deployment".to_string(), "shop-canary".to_string());
        world.children.get_mut(&place).unwrap()["spec"]["replicas"] = json!(1);
        world.see();
        world.pods_become_available();
    };
    for _ in 0..3 {
        refused(&mut world);
        world.look();
        world.pass(60);
    }
    refused(&mut world);
    world.look();
    assert_eq!(world.app.status.as_ref().unwrap().canary.as_ref().unwrap().step, 2);
    assert_eq!(world.image(), "nginx:1.25");
}

#[test]
fn an_autoscaler_that_changes_its_mind_keeps_no_step_from_passing() {
    let mut world = World::ready(json!({
        "image": "nginx:1.25", "replicas": 10, "autoscaling": {"minReplicas": 5, "maxReplicas": 40},
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 20, "pauseSeconds": 60}]}},
    }));
    let scale = |world: &mut World, replicas: i32| {
        let mut stable = (**world.seen.stable.as_ref().unwrap()).clone();
        stable.spec.as_mut().unwrap().replicas = Some(replicas);
        world.seen.stable = Some(Arc::new(stable));
    };
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    assert_eq!(trial_pods(&world), Some(2));
    world.pods_become_available();
    for replicas in [20, 12, 30, 8] {
        scale(&mut world, replicas);
        world.look();
        assert_eq!(trial_pods(&world), Some(2), "the step keeps its size");
        world.pods_become_available();
        world.pass(15);
    }
    world.look();
    assert_eq!(
        world.image(),
        "nginx:1.26",
        "the step has passed: {:?}",
        world.app.status
    );
}
