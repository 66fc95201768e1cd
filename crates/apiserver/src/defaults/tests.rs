use super::*;
use crate::catalogue::Catalogue;
use serde_json::json;

fn defaulted(group: &str, plural: &str, mut object: Value) -> Value {
    let catalogue = Catalogue::built_in();
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    let resource = catalogue.get(group, version, plural).expect("served");
    apply(resource, &mut object);
    object
}

#[test]
fn every_type_with_defaults_exists_in_the_schemas() {
    let count: usize = TYPES.iter().map(|types| types.len()).sum();
    assert_eq!(BY_TYPE.len(), count);
}

#[test]
fn a_pod_gets_what_kubernetes_gives_it() {
    let pod = defaulted(
        "",
        "pods",
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"},
            "spec": {
                "containers": [{
                    "name": "c", "image": "nginx", "resources": {"limits": {"cpu": "1"}},
                    "ports": [{"containerPort": 80}],
                    "livenessProbe": {"httpGet": {"port": 80}},
                    "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                }],
                "volumes": [{"name": "v"}, {"name": "s", "secret": {"secretName": "x"}}],
            },
        }),
    );
    assert_eq!(
        pod["spec"],
        json!({
            "containers": [{
                "name": "c", "image": "nginx", "imagePullPolicy": "Always",
                "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}},
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3,
                },
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}],
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "s", "secret": {"secretName": "x", "defaultMode": 420}}],
            "dnsPolicy": "ClusterFirst", "restartPolicy": "Always", "securityContext": {},
            "terminationGracePeriodSeconds": 30, "schedulerName": "default-scheduler", "enableServiceLinks": true,
        })
    );
}

#[test]
fn the_pods_of_a_deployment_have_the_same_defaults_but_no_service_links() {
    let deployment = defaulted(
        "apps",
        "deployments",
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "c", "image": "nginx:1.29"}]}}},
        }),
    );
    let spec = &deployment["spec"];
    assert_eq!(spec["replicas"], 1);
    assert_eq!(
        spec["strategy"]["rollingUpdate"],
        json!({"maxSurge": "25%", "maxUnavailable": "25%"})
    );
    assert_eq!(
        spec["template"]["spec"]["containers"][0]["imagePullPolicy"],
        "IfNotPresent"
    );
    assert_eq!(spec["template"]["spec"].get("enableServiceLinks"), None);
    assert_eq!(spec["template"]["spec"]["restartPolicy"], "Always");
}

#[test]
fn a_second_run_changes_nothing() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "sessionAffinity": "ClientIP"},
    });
    let once = defaulted("", "services", service);
    assert_eq!(
        once["spec"]["ports"][0],
        json!({"port": 80, "protocol": "TCP", "targetPort": 80})
    );
    assert_eq!(once["spec"]["allocateLoadBalancerNodePorts"], true);
    assert_eq!(defaulted("", "services", once.clone()), once);
}

#[test]
fn images_are_pulled_by_their_tags() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("localhost:5000/nginx", "Always"),
        ("localhost:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        let container = json!({"name": "c", "image": image});
        let pod = defaulted("", "pods", json!({"metadata": {}, "spec": {"containers": [container]}}));
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], policy, "{image}");
    }
}

#[test]
fn nonsense_in_the_place_of_objects_is_left_alone() {
    for nonsense in [
        json!(null),
        json!("x"),
        json!([1]),
        json!({"spec": "x"}),
        json!({"spec": {"containers": 3}}),
    ] {
        for (group, plural) in [
            ("", "pods"),
            ("apps", "deployments"),
            ("", "services"),
            ("batch", "jobs"),
        ] {
            defaulted(group, plural, nonsense.clone());
        }
    }
}
