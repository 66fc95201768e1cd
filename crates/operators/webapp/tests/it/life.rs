//! The life of a WebApp: every legal move from phase to phase.

use crate::world::World;
use serde_json::json;
use stead_apis::webapp::Phase;

fn nginx() -> serde_json::Value {
    json!({"image": "nginx:1.25", "replicas": 3})
}

#[test]
fn created_then_reconciling_then_waiting_for_pods_then_ready() {
    let mut world = World::new(nginx());
    world.look();
    assert_eq!(world.phase(), Phase::Created);
    assert!(
        world.children.is_empty(),
        "nothing is made before it is said that it was seen"
    );
    world.look();
    assert_eq!(world.phase(), Phase::Reconciling);
    assert!(world.child("Deployment", "shop").is_some() && world.child("Service", "shop").is_some());
    world.look();
    assert_eq!(world.phase(), Phase::WaitingForPods);
    world.pods_become_available();
    world.look();
    assert_eq!(world.phase(), Phase::Ready);
    assert_eq!(world.ready_condition().reason, "Available");
}

#[test]
fn ready_then_scaling_then_ready() {
    let mut world = World::ready(nginx());
    world.edit(|spec| spec.replicas = 5);
    world.look();
    assert_eq!(world.phase(), Phase::Scaling);
    assert_eq!(world.deployment()["spec"]["replicas"], 5);
    world.look();
    assert_eq!(world.phase(), Phase::Scaling, "until all five are there");
    world.pods_become_available();
    world.look();
    assert_eq!(world.phase(), Phase::Ready);
    assert_eq!(world.app.status.as_ref().unwrap().summary.as_deref(), Some("5/5"));
}

#[test]
fn ready_then_waiting_for_pods_when_pods_are_lost() {
    let mut world = World::ready(nginx());
    world.pods_are_lost(1);
    world.look();
    assert_eq!(world.phase(), Phase::WaitingForPods);
    assert_eq!(world.ready_condition().message, "2/3 pods are available");
    world.pods_become_available();
    world.look();
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn ready_then_deleting_while_the_deletion_waits() {
    let mut world = World::ready(nginx());
    world.app.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(world.now));
    world.app.metadata.finalizers = Some(vec!["example.com/hold".to_string()]);
    let children = world.children.clone();
    world.look();
    assert_eq!(world.phase(), Phase::Deleting);
    assert_eq!(
        world.ready_condition().message,
        "its deletion waits for example.com/hold"
    );
    assert_eq!(
        world.children, children,
        "garbage collection removes the children, not the operator"
    );
}

#[test]
fn an_autoscaler_scales_and_lost_pods_are_waited_for() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "replicas": 3,
        "autoscaling": {"minReplicas": 2, "maxReplicas": 10}}));
    world.is_scaled_to(3);
    world.pods_are_lost(1);
    world.look();
    assert_eq!(world.phase(), Phase::WaitingForPods);
    world.is_scaled_to(3);
    world.pods_become_available();
    world.look();
    assert_eq!(world.phase(), Phase::Ready);
    for available in [3, 5] {
        world.is_scaled_to(6);
        world.pods_available(available);
        world.look();
        assert_eq!(world.phase(), Phase::Scaling);
    }
    world.is_scaled_to(6);
    world.pods_become_available();
    world.look();
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn a_settled_app_is_looked_at_again_in_30_s_and_nothing_is_written() {
    let mut world = World::ready(nginx());
    let writes = world.writes;
    for _ in 0..10 {
        world.pass(30);
        let plan = world.look();
        assert!(plan.to_string().ends_with("then check again in 30s"), "{plan}");
    }
    assert_eq!(world.writes, writes, "doing it ten times equals doing it once");
}

#[test]
fn an_invalid_spec_is_refused_and_its_revert_recovers() {
    let mut world = World::ready(nginx());
    world.edit(|spec| spec.image = "not an image".to_string());
    let children = world.children.clone();
    world.look();
    assert_eq!(world.ready_condition().reason, "InvalidSpec");
    assert_eq!(world.children, children, "what runs stays");
    for _ in 0..3 {
        world.pass(30);
        world.look();
    }
    assert_eq!(world.events, ["RolledOut", "InvalidSpec"], "people are told once");
    world.edit(|spec| spec.image = "nginx:1.25".to_string());
    world.settle();
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn an_application_can_be_stopped_and_scaled_while_something_that_it_reads_is_missing() {
    let mut world =
        World::new(json!({"image": "nginx:1.25", "replicas": 3, "envFrom": [{"secretRef": {"name": "db"}}]}));
    world.put_secret("db", "1");
    world.settle();
    world.pods_become_available();
    world.settle();
    let template = world.deployment()["spec"]["template"].clone();
    world.seen.digests.secrets.clear();
    world.edit(|spec| {
        spec.replicas = 5;
        spec.image = "nginx:1.26".to_string();
    });
    world.settle();
    assert_eq!(world.ready_condition().reason, "ReferenceMissing");
    assert_eq!(world.deployment()["spec"]["replicas"], 5);
    world.edit(|spec| spec.suspend = true);
    world.settle();
    assert_eq!(world.deployment()["spec"]["replicas"], 0);
    assert_eq!(
        world.deployment()["spec"]["template"],
        template,
        "no new version starts"
    );
    world.put_secret("db", "1");
    world.edit(|spec| spec.suspend = false);
    world.settle();
    assert_eq!(
        (world.image(), &world.deployment()["spec"]["replicas"]),
        ("nginx:1.26", &json!(5))
    );
}
