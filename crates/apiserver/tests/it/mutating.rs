//! What webhooks and policies change is read like what a client sends.

use super::api::Api;
use super::webhooks::{Hook, patch};
use serde_json::{Value, json};

const BASE: &str = "/apis/admissionregistration.k8s.io/v1";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const PODS: &str = "/api/v1/namespaces/default/pods";

fn deployment(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
        "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}}}})
}

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

fn rules(group: &str, resource: &str) -> Value {
    json!([{"apiGroups": [group], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": [resource]}])
}

fn mutating_policy(resource: &str, group: &str, mutation: Value) -> Value {
    json!({"metadata": {"name": "p"}, "spec": {
        "matchConstraints": {"resourceRules": rules(group, resource)},
        "failurePolicy": "Ignore", "reinvocationPolicy": "Never", "mutations": [mutation],
    }})
}

async fn policy(api: &Api, resource: &str, group: &str, mutation: Value) {
    bound(api, mutating_policy(resource, group, mutation)).await;
}

async fn bound(api: &Api, policy: Value) {
    let binding = json!({"metadata": {"name": "b"}, "spec": {"policyName": "p"}});
    for (path, object) in [
        ("mutatingadmissionpolicies", policy),
        ("mutatingadmissionpolicybindings", binding),
    ] {
        api.post(&format!("{BASE}/{path}"), object).await.ok();
    }
}

/// The example of Kubernetes' documentation.
#[tokio::test]
async fn a_sidecar_that_a_policy_adds_gets_its_defaults() {
    let api = Api::start().await;
    let expression = "Object{spec: Object.spec{initContainers: [Object.spec.initContainers{name: 'mesh-proxy', \
        image: 'mesh/proxy:v1.0.0', args: ['proxy', 'sidecar'], restartPolicy: 'Always'}]}}";
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    policy(&api, "pods", "", mutation).await;
    let made = api.post(PODS, pod("a")).await.ok();
    let sidecar = &made["spec"]["initContainers"][0];
    assert_eq!(sidecar["name"], "mesh-proxy");
    assert_eq!(sidecar["imagePullPolicy"], "IfNotPresent");
    assert_eq!(sidecar["terminationMessagePolicy"], "File");
}

#[tokio::test]
async fn a_policy_cannot_store_what_its_kind_does_not_have() {
    let api = Api::start().await;
    let expression = "object.metadata.name == 'typed' \
        ? [JSONPatch{op: 'replace', path: '/spec/replicas', value: 'many'}] \
        : object.metadata.name == 'tested' \
        ? [JSONPatch{op: 'test', path: '/spec/replicas', value: 9}, JSONPatch{op: 'remove', path: '/spec'}] \
        : [JSONPatch{op: 'add', path: '/spec/unheardOf', value: 'x'}]";
    let mutation = json!({"patchType": "JSONPatch", "jsonPatch": {"expression": expression}});
    policy(&api, "deployments", "apps", mutation).await;
    api.post(DEPLOYMENTS, deployment("typed")).await.fails(
        500,
        "InternalError",
        "Internal error occurred: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    api.post(DEPLOYMENTS, deployment("unheard")).await.fails(
        500,
        "InternalError",
        "Internal error occurred: strict decoding error: unknown field \"spec.unheardOf\"",
    );
    // A patch whose test fails is not meant.
    let made = api.post(DEPLOYMENTS, deployment("tested")).await.ok();
    assert_eq!(made["spec"]["replicas"], 1);
}

#[tokio::test]
async fn a_policy_that_applies_no_object_is_refused_and_not_a_panic() {
    let api = Api::start().await;
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "variables.none"}});
    let mut policy = mutating_policy("pods", "", mutation);
    policy["spec"]["failurePolicy"] = "Fail".into();
    policy["spec"]["variables"] = json!([{"name": "none", "expression": "dyn(object.spec.containers)"}]);
    bound(&api, policy).await;
    let refused = api.post(PODS, pod("a")).await;
    assert!(refused.code >= 400, "{:?}", refused.body);
}

#[tokio::test]
async fn a_policy_merges_what_it_applies_as_an_apply_does() {
    let api = Api::start().await;
    let expression = "object.metadata.name == 'typed' \
        ? Object{spec: Object.spec{replicas: 'many'}} \
        : object.metadata.name == 'whole' \
        ? Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {'c': 'd'}}}} \
        : Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{ \
            containers: [Object.spec.template.spec.containers{name: 'c', imagePullPolicy: 'Always'}]}}}}";
    let mutation = json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}});
    let mut fails = mutating_policy("deployments", "apps", mutation);
    fails["spec"]["failurePolicy"] = "Fail".into();
    bound(&api, fails).await;
    api.post(DEPLOYMENTS, deployment("typed")).await.fails(
        403,
        "Invalid",
        "policy 'p' with binding 'b' denied request: error applying patch: failed to convert patch object to typed object: \
         .spec.replicas: expected numeric (int or float), got string",
    );
    api.post(DEPLOYMENTS, deployment("whole")).await.fails(
        403,
        "Invalid",
        "policy 'p' with binding 'b' denied request: error applying patch: invalid ApplyConfiguration: may not mutate atomic \
         arrays, maps or structs: .spec.selector",
    );
    let made = api.post(DEPLOYMENTS, deployment("merged")).await.ok();
    let containers = &made["spec"]["template"]["spec"]["containers"];
    assert_eq!(containers.as_array().unwrap().len(), 1, "{made}");
    assert_eq!(
        (&containers[0]["image"], &containers[0]["imagePullPolicy"]),
        (&json!("i:1"), &json!("Always"))
    );
    let owners = made["metadata"]["managedFields"].as_array().unwrap();
    assert_eq!(owners.len(), 1, "{made}");
}

#[tokio::test]
async fn a_webhook_cannot_store_what_its_kind_does_not_have() {
    let api = Api::start().await;
    let hook = Hook::serve(|request| {
        let operations = match request["name"] == "typed" {
            true => json!([{"op": "replace", "path": "/spec/replicas", "value": "many"}]),
            false => json!([
                {"op": "add", "path": "/spec/unheardOf", "value": 1},
                {"op": "add", "path": "/spec/template/spec/containers/-", "value": {"name": "d", "image": "j:1"}},
            ]),
        };
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(operations)})
    })
    .await;
    let mut configuration = hook.configuration("a");
    configuration["webhooks"][0]["rules"] = rules("apps", "deployments");
    api.post(&format!("{BASE}/mutatingwebhookconfigurations"), configuration)
        .await
        .ok();
    api.post(DEPLOYMENTS, deployment("typed")).await.fails(
        500,
        "InternalError",
        "Internal error occurred: json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
    );
    let made = api.post(DEPLOYMENTS, deployment("pruned")).await.ok();
    assert!(made["spec"].get("unheardOf").is_none(), "{made}");
    let added = &made["spec"]["template"]["spec"]["containers"][1];
    assert_eq!(added["imagePullPolicy"], "IfNotPresent", "{made}");
}

#[tokio::test]
async fn a_webhook_that_is_asked_about_a_status_changes_nothing_else() {
    let api = Api::start().await;
    let hook = Hook::serve(|_| {
        let operations = json!([
            {"op": "replace", "path": "/spec/replicas", "value": 7},
            {"op": "add", "path": "/status/replicas", "value": 3},
        ]);
        json!({"allowed": true, "patchType": "JSONPatch", "patch": patch(operations)})
    })
    .await;
    api.post(DEPLOYMENTS, deployment("d")).await.ok();
    let mut configuration = hook.configuration("a");
    configuration["webhooks"][0]["rules"] = rules("apps", "deployments/status");
    api.post(&format!("{BASE}/mutatingwebhookconfigurations"), configuration)
        .await
        .ok();
    let status = json!({"status": {"observedGeneration": 1}});
    let told = api.merge(&format!("{DEPLOYMENTS}/d/status"), status).await.ok();
    assert_eq!(told["spec"]["replicas"], 1);
    assert_eq!(told["status"]["replicas"], 3);
}
