//! Changes of the spec, and what becomes of the children.

use crate::world::World;
use serde_json::{Value, json};
use stead_apis::webapp::Phase;

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
        ("PodDisruptionBudget", "shop"),
    ] {
        assert!(world.child(kind, name).is_some(), "{kind}");
    }
    assert_eq!(world.file("shop").as_deref(), Some("1"));
    world.edit(|spec| {
        spec.ingress = None;
        spec.network = None;
        spec.autoscaling = None;
        spec.files.clear();
        spec.replicas = 1;
    });
    world.settle();
    world.pods_become_available();
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
    world.settle();
    assert_eq!(world.child("Deployment", "shop"), None);
    assert_eq!(world.ready_condition().reason, "ReferenceMissing");
    assert_eq!(world.ready_condition().message, "waiting for Secret db to be created");
    world.put_secret("db", "1");
    world.settle();
    world.pods_become_available();
    world.settle();
    assert_eq!(world.phase(), Phase::Ready);
}

#[test]
fn w9_a_rotated_secret_rolls_the_pods_exactly_once() {
    let mut world = World::new(with(json!({"envFrom": [{"secretRef": {"name": "db"}}]})));
    world.put_secret("db", "1");
    world.settle();
    world.pods_become_available();
    world.settle();
    let before = world.seen.stable.as_ref().unwrap().metadata.generation;
    world.put_secret("db", "2");
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
    assert_eq!(world.file("shop").as_deref(), Some("a: 1"));
}

#[test]
fn nothing_of_the_spec_reaches_a_shell() {
    let nasty = "; $(rm -rf /) `id` 'x' \"y\"";
    let world = World::ready(with(json!({"command": [nasty], "args": [nasty, "-c"],
        "env": [{"name": "A", "value": nasty}], "files": [{"path": "/etc/$(id)", "content": nasty}]})));
    let template = &world.deployment()["spec"]["template"]["spec"];
    let container = &template["containers"][0];
    assert_eq!(container["command"], json!([nasty]), "word by word, nothing around it");
    assert_eq!(container["args"], json!([nasty, "-c"]));
    assert_eq!(container["env"][0]["value"], nasty);
    assert_eq!(container["volumeMounts"][0]["mountPath"], "/etc/$(id)");
    assert_eq!(world.file("shop").as_deref(), Some(nasty));
    assert_eq!(
        (&container["lifecycle"], &template["initContainers"]),
        (&Value::Null, &Value::Null)
    );
}

/// Found by W12: what the server fills in belongs to nobody, and stayed beside the source that the volume got later.
#[test]
fn a_volume_without_a_source_is_an_empty_directory_by_our_own_word() {
    let world = World::ready(with(json!({"volumes": [{"name": "data"}]})));
    let volumes = &world.deployment()["spec"]["template"]["spec"]["volumes"];
    assert_eq!(*volumes, json!([{"name": "data", "emptyDir": {}}]));
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

#[test]
fn what_the_spec_does_not_say_has_good_defaults() {
    let world = World::ready(with(json!({})));
    let spec = &world.deployment()["spec"]["template"]["spec"];
    let container = &spec["containers"][0];
    assert_eq!(
        container["readinessProbe"]["tcpSocket"]["port"], "http",
        "ready when it takes connections"
    );
    assert_eq!(
        container["livenessProbe"],
        Value::Null,
        "a bad one does more harm than good"
    );
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(
        container["securityContext"]["runAsNonRoot"],
        Value::Null,
        "no common image breaks"
    );
    assert_eq!(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    assert_eq!(spec["automountServiceAccountToken"], false);
    let spread = spec["topologySpreadConstraints"].as_array().unwrap();
    let keys: Vec<&str> = spread.iter().filter_map(|over| over["topologyKey"].as_str()).collect();
    assert_eq!(keys, ["topology.kubernetes.io/zone", "kubernetes.io/hostname"]);
    assert!(spread.iter().all(|over| over["whenUnsatisfiable"] == "ScheduleAnyway"));
    let budget = world.child("PodDisruptionBudget", "shop").unwrap();
    assert_eq!(budget["spec"]["maxUnavailable"], 1);
}

#[test]
fn an_ingress_or_a_route_leads_to_the_service_with_tls() {
    let world = World::ready(with(
        json!({"ingress": {"host": "shop.example.com", "tlsSecretName": "shop-tls", "className": "front"}}),
    ));
    let ingress = world.child("Ingress", "shop").unwrap();
    assert_eq!(
        ingress["spec"]["tls"][0],
        json!({"hosts": ["shop.example.com"], "secretName": "shop-tls"})
    );
    let backend = &ingress["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"];
    assert_eq!(*backend, json!({"name": "shop", "port": {"number": 80}}));
    let status = world.app.status.as_ref().unwrap();
    assert_eq!(status.url.as_deref(), Some("https://shop.example.com/"));

    let mut world = World::new(with(json!({"route": {"hostnames": ["shop.example.com"],
        "gateway": {"name": "door", "namespace": "edge", "sectionName": "https"}}})));
    world.seen.optional.gateway = true;
    world.settle();
    let route = world.child("HTTPRoute", "shop").unwrap();
    assert_eq!(
        route["spec"]["parentRefs"][0],
        json!({"name": "door", "namespace": "edge", "sectionName": "https"})
    );
    assert_eq!(
        route["spec"]["rules"][0]["backendRefs"][0],
        json!({"name": "shop", "port": 80})
    );
}

#[test]
fn pods_are_replaced_as_the_strategy_says() {
    let strategy = |kind: Value| {
        let world = World::ready(with(json!({"strategy": kind})));
        world.deployment()["spec"]["strategy"].clone()
    };
    assert_eq!(strategy(json!({"type": "Recreate"})), json!({"type": "Recreate"}));
    let limits = json!({"type": "RollingUpdate", "maxSurge": 2, "maxUnavailable": "10%"});
    assert_eq!(
        strategy(limits),
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 2, "maxUnavailable": "10%"}})
    );
}

#[test]
fn the_image_that_really_runs_is_in_the_status_with_its_digest() {
    let mut world = World::ready(with(json!({})));
    let digest = format!("docker.io/library/nginx@sha256:{}", "a".repeat(64));
    let pod = json!({"metadata": {"name": "shop-1", "namespace": "default"},
        "spec": {"containers": [{"name": "app", "image": "nginx:1.25"}]},
        "status": {"phase": "Running", "containerStatuses": [{"name": "app", "image": "nginx:1.25", "imageID": digest,
            "ready": true, "restartCount": 0}]}});
    world.seen.pods = vec![std::sync::Arc::new(serde_json::from_value(pod).unwrap())];
    world.settle();
    let status = world.app.status.as_ref().unwrap();
    assert_eq!(status.resolved_image.as_deref(), Some(digest.as_str()));
}
