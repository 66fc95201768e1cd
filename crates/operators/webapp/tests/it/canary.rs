//! Canaries: a new version on a part of the pods first.

use crate::world::World;
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;
use stead_apis::webapp::strategy::OnFailure;
use stead_webapp::requests::{Counted, Told};
use stead_webapp::resources::network_policy;

pub fn ready() -> World {
    World::ready(json!({
        "image": "nginx:1.25", "replicas": 10,
        "strategy": {"type": "Canary", "canary": {"steps": [
            {"percent": 10, "pauseSeconds": 60}, {"percent": 50, "pauseSeconds": 60}]}},
    }))
}

pub fn replicas(world: &World, name: &str) -> Option<i64> {
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
        (Some(10), Some(1)),
        "nothing makes way for what does not serve yet"
    );
    assert_eq!(world.image(), "nginx:1.25");
    world.pods_become_available();
    world.settle();
    assert_eq!(replicas(&world, "shop"), Some(9));
    world.pods_become_available();
    world.settle();
    world.pass(30);
    world.settle();
    assert_eq!(replicas(&world, "shop-canary"), Some(1), "the pause is not over");
    world.pass(30);
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(9), Some(5))
    );
    world.pods_become_available();
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
    world.pods_become_available();
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
    world.seen.requests = Some(told(49.0));
    world.settle();
    assert_eq!(replicas(&world, "shop-canary"), Some(1), "few failures are borne");
    let plan = world.plan().to_string();
    assert!(
        plan.ends_with("then check again in 5s"),
        "requests are counted often: {plan}"
    );
    world.seen.requests = Some(told(51.0));
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(10), None)
    );
    let ready = world.ready_condition();
    assert_eq!(ready.reason, "RolledBack");
    assert_eq!(
        ready.message,
        "revision 2 failed 5.1 % of the requests to it, where 5 % are borne; revision 1 runs until the spec changes"
    );
}

/// So many of a thousand requests failed.
fn told(failed: f64) -> Told {
    Told {
        counted: Counted { all: 1000.0, failed },
        silent: None,
    }
}

#[test]
fn a_trial_whose_requests_nobody_can_count_goes_no_further_and_says_so() {
    let mut world = World::ready(json!({
        "image": "nginx:1.25", "replicas": 10,
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 10, "pauseSeconds": 60}],
            "errorRate": {"metric": "http_requests_total", "maxPercent": 5}}},
    }));
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    world.pods_become_available();
    world.seen.requests = Some(Told {
        silent: Some("shop-canary-1: it answers 404 Not Found".to_string()),
        ..told(0.0)
    });
    world.settle();
    world.pods_become_available();
    world.pass(24 * 3600);
    world.settle();
    assert_eq!(world.image(), "nginx:1.25", "what nobody could see has not passed");
    let plan = world.plan().to_string();
    assert!(
        plan.ends_with("then check again in 5s"),
        "when it is to be counted: {plan}"
    );
    let ready = world.ready_condition();
    assert_eq!(ready.reason, "MetricsUnreadable");
    assert!(
        ready.message.ends_with("shop-canary-1: it answers 404 Not Found"),
        "{}",
        ready.message
    );
    world.seen.requests = Some(told(10.0));
    world.settle();
    assert_eq!(world.image(), "nginx:1.26");
}

#[test]
fn the_operator_lets_itself_in_where_it_is_to_count_requests() {
    let policy = |world: &World| world.child("NetworkPolicy", "shop").unwrap()["spec"]["ingress"].clone();
    let mut world = World::new(json!({"image": "nginx:1.25", "network": {},
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "metrics", "containerPort": 9090}],
        "monitoring": {"port": "metrics"}}));
    world.seen.home = Some("stead-system".to_string());
    world.settle();
    assert!(policy(&world).is_null(), "nobody may connect");
    world.edit(|spec| {
        let canary = json!({"type": "Canary", "canary": {"steps": [{"percent": 10}],
            "errorRate": {"metric": "http_requests_total", "maxPercent": 5}}});
        spec.strategy = serde_json::from_value(canary).unwrap();
    });
    world.settle();
    assert_eq!(
        policy(&world),
        json!([{
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "stead-system"}},
                "podSelector": {"matchLabels": {"app.kubernetes.io/name": "stead-operator"}}}],
            "ports": [{"port": 9090, "protocol": "TCP"}],
        }])
    );
    let made = serde_json::from_value(world.child("NetworkPolicy", "shop").unwrap().clone()).unwrap();
    assert_eq!(network_policy::home_of(&made).as_deref(), Some("stead-system"));
}

/// A pod on trial, as it is labelled now, that started anew so often.
pub fn pod_on_trial(world: &World, restarts: i32) -> Arc<Pod> {
    let labels = &world.child("Deployment", "shop-canary").unwrap()["spec"]["template"]["metadata"]["labels"];
    let pod = json!({"metadata": {"name": "shop-canary-1", "labels": labels}, "status": {
        "containerStatuses": [{"name": "app", "image": "x", "imageID": "", "ready": true, "restartCount": restarts}]}});
    Arc::new(serde_json::from_value(pod).unwrap())
}

#[test]
fn restarts_of_a_trial_pod_condemn_the_version() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    world.seen.pods = vec![pod_on_trial(&world, 3)];
    world.settle();
    let ready = world.ready_condition();
    assert_eq!(ready.reason, "RolledBack");
    assert!(
        ready
            .message
            .starts_with("revision 2 restarted 3 times on trial; revision 1 runs"),
        "{}",
        ready.message
    );
}

#[test]
fn what_a_superseded_trial_did_is_not_held_against_the_next_one() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:broken".to_string());
    world.settle();
    let old = pod_on_trial(&world, 9);
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    // The old pod is still there when the next trial begins.
    world.seen.pods = vec![old];
    world.settle();
    assert_eq!(replicas(&world, "shop-canary"), Some(1));
    assert_eq!(world.ready_condition().reason, "WaitingForPods");
}

#[test]
fn a_single_pod_makes_way_only_when_the_trial_is_over() {
    let mut world = World::ready(json!({
        "image": "nginx:1.25", "replicas": 1,
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 10, "pauseSeconds": 60}]}},
    }));
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(
        (world.image(), replicas(&world, "shop"), replicas(&world, "shop-canary")),
        ("nginx:1.25", Some(1), Some(1))
    );
}

#[test]
fn a_trial_that_nobody_could_see_is_not_passed() {
    let mut world = ready();
    world.edit(|spec| spec.image = "nginx:1.26".to_string());
    world.settle();
    world.edit(|spec| spec.suspend = true);
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(world.ready_condition().reason, "Suspended");
    world.pass(24 * 3600);
    world.settle();
    assert_eq!(world.image(), "nginx:1.25", "no pod has run the new version yet");
    world.edit(|spec| spec.suspend = false);
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(10), Some(1)),
        "the trial begins where it was"
    );
}

#[test]
fn a_failed_trial_goes_no_further_where_the_spec_says_to_stop() {
    let mut world = ready();
    world.edit(|spec| {
        spec.image = "nginx:broken".to_string();
        spec.strategy.on_failure = OnFailure::Stop;
    });
    world.settle();
    world.pods_become_available();
    world.settle();
    world.seen.pods = vec![pod_on_trial(&world, 3)];
    world.settle();
    let ready = world.ready_condition();
    assert_eq!(ready.reason, "RolloutFailed");
    assert!(
        ready.message.contains("it stays on 10 % of the pods"),
        "{}",
        ready.message
    );
    assert_eq!(
        (world.image(), replicas(&world, "shop"), replicas(&world, "shop-canary")),
        ("nginx:1.25", Some(9), Some(1))
    );
    world.pass(24 * 3600);
    let plan = world.plan().to_string();
    assert!(plan.ends_with("then check again in 30s"), "it is in no hurry: {plan}");
    world.edit(|spec| spec.strategy.on_failure = OnFailure::RollBack);
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(10), None)
    );
}

#[test]
fn what_a_trial_reads_does_not_touch_the_pods_beside_it() {
    let mut world = World::ready(json!({
        "image": "nginx:1.25", "replicas": 4, "files": [{"path": "/etc/a", "content": "old"}],
        "ports": [{"name": "http", "containerPort": 80}],
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 25, "pauseSeconds": 60}]}},
    }));
    let template = |world: &World| world.deployment()["spec"]["template"].clone();
    let before = template(&world);
    world.put_secret("db", "1");
    world.edit(|spec| {
        spec.files[0].content = "new".to_string();
        spec.ports[0].name = "web".to_string();
        spec.env_from = serde_json::from_value(json!([{"secretRef": {"name": "db"}}])).unwrap();
    });
    world.settle();
    assert_eq!(
        (world.file("shop").as_deref(), world.file("shop-canary").as_deref()),
        (Some("old"), Some("new"))
    );
    assert_eq!(template(&world), before, "no pod of the old version is replaced");
    let port = |world: &World| world.child("Service", "shop").unwrap()["spec"]["ports"][0].clone();
    assert_eq!(
        (port(&world)["name"].clone(), port(&world)["targetPort"].clone()),
        (json!("http"), json!(80)),
        "and all of them are still reached, by the number that both versions know"
    );
    world.pods_become_available();
    world.settle();
    world.pass(60);
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(world.file("shop").as_deref(), Some("new"));
    assert_eq!(port(&world)["targetPort"], "web");
    let maps = world.children.keys().filter(|(kind, _)| kind == "ConfigMap").count();
    assert_eq!(maps, 1, "the old files go with the last old pod");
}

#[test]
fn what_only_the_old_version_reads_may_be_gone() {
    let mut world = World::new(json!({
        "image": "nginx:1.25", "replicas": 2, "envFrom": [{"secretRef": {"name": "old"}}],
        "strategy": {"type": "Canary", "canary": {"steps": [{"percent": 50, "pauseSeconds": 60}]}},
    }));
    world.put_secret("old", "1");
    world.settle();
    world.pods_become_available();
    world.settle();
    let before = world.deployment()["spec"]["template"].clone();
    world.seen.digests.secrets.clear();
    world.put_secret("new", "1");
    world.edit(|spec| spec.env_from = serde_json::from_value(json!([{"secretRef": {"name": "new"}}])).unwrap());
    world.settle();
    assert_eq!(
        replicas(&world, "shop-canary"),
        Some(1),
        "{:?}",
        world.ready_condition()
    );
    assert_eq!(world.deployment()["spec"]["template"], before);
    // A version that fails goes all the same: what serves again has read the old one long ago.
    world.pods_become_available();
    world.settle();
    world.seen.pods = vec![pod_on_trial(&world, 3)];
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(world.ready_condition().reason, "RolledBack");
    assert_eq!(
        (replicas(&world, "shop"), replicas(&world, "shop-canary")),
        (Some(2), None)
    );
    assert_eq!(world.deployment()["spec"]["template"], before);
}
