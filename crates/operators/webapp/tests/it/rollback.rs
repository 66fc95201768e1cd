//! New versions: good ones stay, failed ones give way to the last good one.

use crate::world::World;
use serde_json::json;
use stead_apis::webapp::strategy::OnFailure;

fn ready() -> World {
    World::ready(json!({"image": "nginx:1.25", "replicas": 3}))
}

#[test]
fn a_failed_rollout_goes_back_to_the_last_good_revision_and_says_so() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    assert_eq!(world.image(), "nginx:broken");
    world.rollout_is_stuck();
    world.look();
    assert_eq!(world.image(), "nginx:1.25");
    world.pods_become_available();
    world.settle();
    let ready = world.ready_condition();
    assert_eq!(
        (ready.status, ready.reason.as_str()),
        (stead_machinery::conditions::Status::False, "RolledBack")
    );
    assert!(
        ready.message.contains("revision 2 did not come up; revision 1 runs"),
        "{}",
        ready.message
    );
    assert_eq!(world.events, ["RolledOut", "RolledBack"]);
}

#[test]
fn a_verdict_is_told_though_what_follows_it_could_not_be_done_at_first() {
    let mut world = ready();
    for (image, verdict) in [("nginx:broken", "RolledBack"), ("nginx:1.26", "RolledOut")] {
        world.edit(|spec| spec.image = image.to_string());
        world.settle();
        match verdict {
            "RolledBack" => world.rollout_is_stuck(),
            _ => world.pods_become_available(),
        }
        // Of the plan nothing is done but that the verdict is noted; then the operator dies, or is refused.
        for child in world.plan().children {
            let place = (child.kind.to_string(), child.key.name().to_string());
            if place.0 == "ControllerRevision" {
                world.children.insert(place, child.object);
            }
        }
        world.see();
        world.events.clear();
        world.settle();
        world.pods_become_available();
        world.settle();
        assert_eq!(world.events, [verdict]);
    }
}

#[test]
fn going_back_brings_back_the_files_and_the_ports_of_the_good_version() {
    let mut world = World::ready(
        json!({"image": "nginx:1.25", "files": [{"path": "/etc/a", "content": "good"}],
        "ports": [{"name": "http", "containerPort": 80}]}),
    );
    let (template, service) = (
        world.deployment()["spec"]["template"].clone(),
        world.child("Service", "shop").cloned(),
    );
    world.edit(|spec| {
        spec.files[0].content = "bad".to_string();
        spec.ports[0].name = "web".to_string();
    });
    world.settle();
    assert_eq!(world.file("shop").as_deref(), Some("bad"));
    world.rollout_is_stuck();
    world.settle();
    assert_eq!(world.file("shop").as_deref(), Some("good"));
    assert_eq!(world.deployment()["spec"]["template"], template);
    assert_eq!(world.child("Service", "shop").cloned(), service);
    let maps = world.children.keys().filter(|(kind, _)| kind == "ConfigMap").count();
    assert_eq!(maps, 1, "nobody mounts the bad ones any more");
}

#[test]
fn pods_whose_port_has_another_name_or_number_are_reached_until_they_are_replaced() {
    let mut world = World::ready(json!({"image": "nginx:1.25", "replicas": 3,
        "network": {"fromNamespaces": [{}]}, "ports": [{"name": "http", "containerPort": 80}]}));
    let target = |world: &World| world.child("Service", "shop").unwrap()["spec"]["ports"][0]["targetPort"].clone();
    let open = |world: &World| {
        let ports = world.child("NetworkPolicy", "shop").unwrap()["spec"]["ingress"][0]["ports"].clone();
        let ports = ports
            .as_array()
            .unwrap()
            .iter()
            .map(|port| port["port"].as_i64().unwrap());
        ports.collect::<Vec<_>>()
    };
    world.edit(|spec| spec.ports[0].name = "web".to_string());
    world.look();
    assert_eq!(target(&world), json!(80), "old pods know the number and not the name");
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(target(&world), json!("web"));
    world.edit(|spec| spec.ports[0].container_port = 8080);
    world.look();
    assert_eq!((target(&world), open(&world)), (json!("web"), vec![8080, 80]));
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(open(&world), [8080]);
}

#[test]
fn scaling_does_not_try_the_failed_revision_again() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.rollout_is_stuck();
    world.settle();
    world.edit(|spec| spec.replicas = 4);
    world.settle();
    assert_eq!(world.image(), "nginx:1.25");
    assert_eq!(world.deployment()["spec"]["replicas"], 4);
}

#[test]
fn w1_a_new_spec_supersedes_a_stuck_rollout() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    world.rollout_is_stuck();
    world.settle();
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    assert_eq!(world.image(), "nginx:1.26");
    world.pods_become_available();
    world.settle();
    assert_eq!(world.ready_condition().reason, "Available");
}

#[test]
fn going_back_by_hand_gives_the_old_revision_a_new_number() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    world.pods_become_available();
    world.settle();
    world.edit(|spec| spec.image = "nginx:1.25".to_string());
    world.settle();
    world.pods_become_available();
    world.settle();
    let status = world.app.status.as_ref().unwrap();
    assert_eq!((status.revision, status.last_good_revision), (Some(3), Some(3)));
    assert_eq!(world.seen.revisions.len(), 2, "the same wish is the same revision");
}

#[test]
fn a_failure_is_left_alone_where_the_spec_says_so() {
    let mut world = ready();
    world.edit(|spec| {
        spec.image = "nginx:broken".to_string();
        spec.strategy.on_failure = OnFailure::Stop;
    });
    world.settle();
    world.rollout_is_stuck();
    world.settle();
    assert_eq!(world.image(), "nginx:broken");
    assert_eq!(world.ready_condition().reason, "RolloutFailed");
}

#[test]
fn only_so_many_revisions_are_kept_and_the_good_one_always() {
    let mut world = ready();
    world.edit(|spec| spec.revision_history_limit = 2);
    for minor in 30..36 {
        world.edit(|spec| spec.image = format!("nginx:1.{minor}"));
        world.settle();
    }
    let good = world
        .seen
        .revisions
        .iter()
        .filter(|revision| revision.number == 1)
        .count();
    assert_eq!(
        (world.seen.revisions.len(), good),
        (4, 1),
        "three by the limit, and the way back"
    );
}

#[test]
fn an_upgrade_of_the_operator_never_restarts_apps() {
    let mut world = ready();
    // An operator of another version rendered this template: what it stored is what goes on running.
    let place = world
        .children
        .keys()
        .find(|(kind, _)| kind == "ControllerRevision")
        .unwrap()
        .clone();
    let stored = world.children.get_mut(&place).unwrap();
    stored["data"]["template"]["spec"]["containers"][0]["readinessProbe"]["periodSeconds"] = json!(7);
    world.see();
    world.settle();
    let template = &world.deployment()["spec"]["template"]["spec"];
    assert_eq!(template["containers"][0]["readinessProbe"]["periodSeconds"], 7);
}
