//! Changes of the spec, and what becomes of the children.

use crate::world::World;
use serde_json::{Value, json};
use stead_apis::webapp::Phase;
use stead_webapp::seen::References;

fn with(extra: Value) -> Value {
    let mut spec = json!({"image": "nginx:1.25", "replicas": 2});
    for (name, value) in extra.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec
}

#[test]
fn the_drawn_sample_gives_a_deployment_and_a_service_on_port_80() {
    let world = World::ready(json!({"image": "nginx:1.25", "replicas": 3}));
    let deployment = world.deployment();
    assert_eq!(deployment["spec"]["replicas"], 3);
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        "nginx:1.25"
    );
    let service = world.child("Service", "shop").unwrap();
    assert_eq!(service["spec"]["ports"][0]["port"], 80);
    assert_eq!(service["spec"]["selector"]["app.kubernetes.io/instance"], "shop");
}

#[test]
fn w4_a_label_or_variable_that_is_removed_is_removed_from_the_pods() {
    let mut world = World::ready(with(
        json!({"podLabels": {"team": "a"}, "env": [{"name": "A", "value": "1"}]}),
    ));
    let template = |world: &World| world.deployment()["spec"]["template"].clone();
    assert_eq!(template(&world)["metadata"]["labels"]["team"], "a");
    world.edit(|spec| {
        spec.pod_labels.clear();
        spec.env.clear();
    });
    world.settle();
    assert_eq!(template(&world)["metadata"]["labels"]["team"], Value::Null);
    assert_eq!(template(&world)["spec"]["containers"][0]["env"], Value::Null);
}

#[test]
fn w5_a_feature_that_is_turned_off_takes_its_child_along() {
    let mut world = World::ready(with(json!({
        "ingress": {"host": "shop.example.com"}, "network": {}, "autoscaling": {"minReplicas": 2, "maxReplicas": 4},
        "files": [{"path": "/etc/a", "content": "1"}],
    })));
    for (kind, name) in [
        ("Ingress", "shop"),
        ("NetworkPolicy", "shop"),
        ("HorizontalPodAutoscaler", "shop"),
        ("ConfigMap", "shop-files"),
        ("PodDisruptionBudget", "shop"),
    ] {
        assert!(world.child(kind, name).is_some(), "{kind}");
    }
    world.edit(|spec| {
        spec.ingress = None;
        spec.network = None;
        spec.autoscaling = None;
        spec.files.clear();
        spec.replicas = 1;
    });
    world.settle();
    let left: Vec<&str> = world.children.keys().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(
        left,
        ["ControllerRevision", "ControllerRevision", "Deployment", "Service"]
    );
}

#[test]
fn w6_an_autoscaler_that_has_decided_is_not_fought() {
    let mut world = World::ready(with(json!({"autoscaling": {"minReplicas": 2, "maxReplicas": 10}})));
    let mut scaled = (**world.seen.stable.as_ref().unwrap()).clone();
    scaled.spec.as_mut().unwrap().replicas = Some(7);
    scaled.metadata.managed_fields = serde_json::from_value(json!([{
        "manager": "kube-controller-manager", "subresource": "scale", "fieldsV1": {"f:spec": {"f:replicas": {}}}}]))
    .unwrap();
    world.seen.stable = Some(scaled.into());
    let plan = world.plan();
    let deployment = plan
        .children
        .iter()
        .find(|child| child.kind.to_string() == "Deployment")
        .unwrap();
    assert_eq!(deployment.object["spec"]["replicas"], Value::Null);
}

#[test]
fn w8_a_missing_secret_is_waited_for_and_then_it_proceeds() {
    let mut world = World::new(with(json!({"envFrom": [{"secretRef": {"name": "db"}}]})));
    world.seen.references = References {
        hash: None,
        missing: vec!["Secret db".to_string()],
    };
    world.settle();
    assert_eq!(world.child("Deployment", "shop"), None);
    assert_eq!(world.ready_condition().reason, "ReferenceMissing");
    assert_eq!(world.ready_condition().message, "waiting for Secret db to be created");
    world.seen.references = References {
        hash: Some("1".to_string()),
        missing: Vec::new(),
    };
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn w9_a_rotated_secret_rolls_the_pods_exactly_once() {
    let mut world = World::new(with(json!({"envFrom": [{"secretRef": {"name": "db"}}]})));
    world.seen.references = References {
        hash: Some("1".to_string()),
        missing: Vec::new(),
    };
    world.settle();
    world.pods_become_available();
    world.settle();
    let before = world.seen.stable.as_ref().unwrap().metadata.generation;
    world.seen.references.hash = Some("2".to_string());
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(
        world.seen.stable.as_ref().unwrap().metadata.generation,
        before.map(|before| before + 1)
    );
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn suspend_stops_all_pods_and_resume_brings_them_back() {
    let mut world = World::ready(with(json!({})));
    world.edit(|spec| spec.suspend = true);
    world.settle();
    assert_eq!(world.deployment()["spec"]["replicas"], 0);
    world.pods_become_available();
    world.settle();
    assert_eq!(world.ready_condition().reason, "Suspended");
    world.edit(|spec| spec.suspend = false);
    world.settle();
    assert_eq!(world.deployment()["spec"]["replicas"], 2);
}

#[test]
fn it_sleeps_on_schedule_and_is_woken_in_time() {
    // It is midnight at the start of the world.
    let mut world = World::ready(with(json!({"sleep": [{"from": "0 20 * * *", "until": "0 6 * * *"}]})));
    assert_eq!(world.deployment()["spec"]["replicas"], 0);
    assert_eq!(world.ready_condition().message, "asleep until 2026-01-01T06:00:00Z");
    world.pass(6 * 3600);
    world.settle();
    assert_eq!(world.deployment()["spec"]["replicas"], 2);
}

#[test]
fn files_are_mounted_where_they_are_wanted() {
    let world = World::ready(with(
        json!({"files": [{"path": "/etc/app/config.yaml", "content": "a: 1"}]}),
    ));
    let mount = &world.deployment()["spec"]["template"]["spec"]["containers"][0]["volumeMounts"][0];
    assert_eq!(
        (mount["mountPath"].as_str(), mount["subPath"].as_str()),
        (Some("/etc/app/config.yaml"), Some("file-0"))
    );
    assert_eq!(world.files().unwrap().data.unwrap()["file-0"], "a: 1");
}

#[test]
fn the_restricted_profile_is_one_field() {
    let world = World::ready(with(json!({"security": {"profile": "Restricted"}})));
    let spec = &world.deployment()["spec"]["template"]["spec"];
    assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &spec["containers"][0]["securityContext"];
    assert_eq!(container["capabilities"]["drop"][0], "ALL");
    assert_eq!(container["allowPrivilegeEscalation"], false);
}
