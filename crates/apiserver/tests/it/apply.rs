//! Server-side apply and the ownership of fields, through requests.

use super::api::{Answer, Api};
use serde_json::{Value, json};

const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/default/deployments/web";

async fn apply(api: &Api, path: &str, manager: &str, config: &str) -> Answer {
    let path = format!("{path}?fieldManager={manager}");
    api.call("PATCH", &path, "application/apply-patch+yaml", config.to_string())
        .await
}

fn owners(object: &Value) -> Vec<String> {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let shown = |e: &Value| {
        format!(
            "{} {}{}",
            e["manager"].as_str().unwrap(),
            e["operation"].as_str().unwrap(),
            match e["subresource"].as_str() {
                Some(subresource) => format!(" {subresource}"),
                None => String::new(),
            }
        )
    };
    entries.iter().map(shown).collect()
}

const WEB: &str = "
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web:1
        ports: [{containerPort: 80}]
";

#[tokio::test]
async fn an_apply_creates_and_an_equal_apply_changes_nothing() {
    let api = Api::start().await;
    let created = apply(&api, DEPLOYMENT, "one", WEB).await;
    assert_eq!(created.code, 201, "{}", created.json());
    let created = created.json();
    assert_eq!(owners(&created), ["one Apply"]);
    let fields = &created["metadata"]["managedFields"][0]["fieldsV1"];
    assert!(
        fields["f:spec"]["f:template"]["f:spec"]["f:containers"]["k:{\"name\":\"web\"}"]["f:image"].is_object(),
        "{fields}"
    );
    assert!(fields["f:metadata"].is_null(), "{fields}");
    api.clock.advance(60);
    let again = apply(&api, DEPLOYMENT, "one", WEB).await;
    assert_eq!(again.code, 200);
    assert_eq!(again.json(), created);
}

#[tokio::test]
async fn two_appliers_conflict_share_and_let_go() {
    let api = Api::start().await;
    apply(&api, DEPLOYMENT, "one", WEB).await.ok();
    let scale = "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 3}}";
    let refused = apply(&api, DEPLOYMENT, "two", scale).await;
    refused.fails(
        409,
        "Conflict",
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas",
    );
    assert_eq!(
        refused.json()["details"]["causes"],
        json!([{"reason": "FieldManagerConflict", "message": "conflict with \"one\"", "field": ".spec.replicas"}])
    );
    let forced = apply(&api, DEPLOYMENT, "two&force=true", scale).await.ok();
    assert_eq!(forced["spec"]["replicas"], 3);
    assert_eq!(owners(&forced), ["one Apply", "two Apply"]);
    let without = WEB
        .replace("  replicas: 2\n", "")
        .replace("        ports: [{containerPort: 80}]\n", "");
    let applied = apply(&api, DEPLOYMENT, "one", &without).await.ok();
    assert_eq!(applied["spec"]["replicas"], 3, "the other applier still wants it");
    assert!(
        applied["spec"]["template"]["spec"]["containers"][0]["ports"].is_null(),
        "{applied}"
    );
}

#[tokio::test]
async fn updates_and_status_have_entries_of_their_own() {
    let api = Api::start().await;
    apply(&api, DEPLOYMENT, "one", WEB).await.ok();
    let patch = json!({"metadata": {"labels": {"a": "b"}}}).to_string();
    let patched = api
        .call("PATCH", DEPLOYMENT, "application/merge-patch+json", patch)
        .await
        .ok();
    assert_eq!(owners(&patched), ["one Apply", "story Update"]);
    let labels = &patched["metadata"]["managedFields"][1]["fieldsV1"]["f:metadata"]["f:labels"];
    assert_eq!(*labels, json!({".": {}, "f:a": {}}));
    let status = json!({"status": {"replicas": 1, "observedGeneration": 1}}).to_string();
    let path = format!("{DEPLOYMENT}/status");
    let answered = api
        .call("PATCH", &path, "application/merge-patch+json", status)
        .await
        .ok();
    assert_eq!(owners(&answered), ["one Apply", "story Update", "story Update status"]);
}

#[tokio::test]
async fn what_cannot_be_applied_is_refused_in_kubernetes_words() {
    let api = Api::start().await;
    let path = "/api/v1/namespaces/default/configmaps/a";
    apply(&api, path, "one", "{apiVersion: v1, kind: Secret, metadata: {name: a}}")
        .await
        .fails(400, "BadRequest", "invalid object type: /v1, Kind=Secret");
    let unknown = apply(
        &api,
        path,
        "one",
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, nope: 1}",
    )
    .await;
    assert_eq!(unknown.code, 500);
    assert_eq!(
        unknown.json()["message"],
        "failed to create typed patch object (/a; /v1, Kind=ConfigMap): .nope: field not declared in schema"
    );
    let nameless = api.call("PATCH", path, "application/apply-patch+yaml", "{}").await;
    nameless.fails(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
}

/// Objects, and the field sets that the real kube-apiserver 1.36.4 gives to who creates and who applies them.
const RECORDED: &str = include_str!("recorded/managed_fields.json");

#[tokio::test]
async fn the_field_sets_of_built_in_kinds_are_those_of_the_real_server() {
    let api = Api::start().await;
    let recorded: Vec<Value> = serde_json::from_str(RECORDED).unwrap();
    for case in recorded {
        let (path, object) = (case["path"].as_str().unwrap(), case["object"].to_string());
        let created = api.call("POST", path, "application/json", object.clone()).await.ok();
        assert_eq!(
            created["metadata"]["managedFields"][0]["fieldsV1"], case["created"],
            "created at {path}"
        );
        let path = format!("{path}/{}?force=true", created["metadata"]["name"].as_str().unwrap());
        let path = format!("{path}&fieldManager=m");
        let applied = api
            .call("PATCH", &path, "application/apply-patch+yaml", object)
            .await
            .ok();
        assert_eq!(
            applied["metadata"]["managedFields"][0]["fieldsV1"], case["applied"],
            "applied at {path}"
        );
    }
}

#[tokio::test]
async fn an_apply_that_names_a_version_creates_where_nothing_is_and_conflicts_with_what_is_there() {
    let api = Api::start().await;
    let note = "
apiVersion: v1
kind: ConfigMap
metadata: {name: note, resourceVersion: '1'}
data: {a: b}
";
    let path = "/api/v1/namespaces/default/configmaps/note";
    assert_eq!(apply(&api, path, "one", note).await.code, 201);
    let (code, reason, _) = apply(&api, path, "one", note).await.failure();
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
}

/// Applies once more and tries the same without effect: what is answered at a glance must be what the long way says.
async fn alike(api: &Api, path: &str, config: &str) -> Answer {
    let tried = apply(api, path, "one&dryRun=All", config).await;
    let applied = apply(api, path, "one", config).await;
    assert_eq!((applied.code, applied.warnings()), (tried.code, tried.warnings()));
    if applied.code == 200 {
        let (mut applied, mut tried) = (applied.json(), tried.json());
        for object in [&mut applied, &mut tried] {
            object["metadata"]["resourceVersion"] = Value::Null;
        }
        assert_eq!(applied, tried);
    }
    applied
}

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const WIDGET: &str = "/apis/example.com/v1/namespaces/default/widgets/w";

fn widgets(spec: Value) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}}],
        },
    })
}

fn widget(spec: Value) -> String {
    json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": spec}).to_string()
}

#[tokio::test]
async fn a_default_below_an_applied_empty_object_stays() {
    let api = Api::start().await;
    let spec = json!({"type": "object", "properties": {"seq": {"type": "integer"},
        "foo": {"type": "object", "properties": {"x": {"type": "integer", "default": 1}}}}});
    api.post(DEFINITIONS, widgets(spec)).await.ok();
    let config = widget(json!({"seq": 1, "foo": {}}));
    let first = apply(&api, WIDGET, "one", &config).await.ok();
    assert_eq!(first["spec"], json!({"seq": 1, "foo": {"x": 1}}));
    assert_eq!(alike(&api, WIDGET, &config).await.ok(), first);
    // Where somebody steers admission every apply goes the long way.
    let hook = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "elsewhere"}, "webhooks": [{"name": "a.example.com", "sideEffects": "None",
            "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["other"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["*"]}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    api.post(hooks, hook).await.ok();
    for _ in 0..3 {
        assert_eq!(alike(&api, WIDGET, &config).await.ok(), first);
    }
}

#[tokio::test]
async fn an_apply_that_changed_nothing_is_looked_at_again_when_the_object_or_the_rules_change() {
    let api = Api::start().await;
    apply(&api, DEPLOYMENT, "one", WEB).await.ok();
    let settled = apply(&api, DEPLOYMENT, "one", WEB).await.ok();
    assert_eq!(apply(&api, DEPLOYMENT, "one", WEB).await.ok(), settled);

    // Another one takes the field: the same words are a conflict now, and the other's own are not those of the first.
    let theirs = json!({"spec": {"replicas": 5}});
    api.merge(&format!("{DEPLOYMENT}?fieldManager=two"), theirs).await.ok();
    assert_eq!(apply(&api, DEPLOYMENT, "one", WEB).await.failure().0, 409);
    api.merge(
        &format!("{DEPLOYMENT}?fieldManager=two"),
        json!({"spec": {"replicas": 2}}),
    )
    .await
    .ok();
    let other = apply(&api, DEPLOYMENT, "three", WEB).await.ok();
    assert!(owners(&other).contains(&"three Apply".to_string()));

    // Whoever has a say is asked, although nothing changes.
    let again = apply(&api, DEPLOYMENT, "three", WEB).await.ok();
    assert_eq!(apply(&api, DEPLOYMENT, "three", WEB).await.ok(), again);
    let policies = "/apis/admissionregistration.k8s.io/v1";
    let policy = json!({"metadata": {"name": "no"}, "spec": {
        "matchConstraints": {"resourceRules": [{"apiGroups": ["apps"], "apiVersions": ["v1"],
            "operations": ["UPDATE"], "resources": ["deployments"]}]},
        "validations": [{"expression": "false", "message": "not today"}]}});
    api.post(&format!("{policies}/validatingadmissionpolicies"), policy)
        .await
        .ok();
    let binding = json!({"metadata": {"name": "no"}, "spec": {"policyName": "no", "validationActions": ["Deny"]}});
    api.post(&format!("{policies}/validatingadmissionpolicybindings"), binding)
        .await
        .ok();
    let (code, _, message) = apply(&api, DEPLOYMENT, "three", WEB).await.failure();
    assert!(code == 422 && message.contains("not today"), "{code} {message}");
}

#[tokio::test]
async fn rules_about_the_past_are_asked_of_an_apply_that_changes_nothing() {
    let api = Api::start().await;
    let spec = json!({"type": "object", "properties": {"seq": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self > oldSelf", "message": "must grow"}]}}});
    api.post(DEFINITIONS, widgets(spec)).await.ok();
    let config = widget(json!({"seq": 1}));
    apply(&api, WIDGET, "one", &config).await.ok();
    assert_eq!(alike(&api, WIDGET, &config).await.code, 422);
}

#[tokio::test]
async fn a_schema_that_changed_is_asked_of_an_apply_that_changes_nothing() {
    let api = Api::start().await;
    let kind = |name: &str| json!({"type": "object", "properties": {"size": {"type": name}}});
    api.post(DEFINITIONS, widgets(kind("string"))).await.ok();
    let config = widget(json!({"size": "big"}));
    apply(&api, WIDGET, "one", &config).await.ok();
    assert_eq!(alike(&api, WIDGET, &config).await.code, 200);
    let path = format!("{DEFINITIONS}/widgets.example.com");
    api.merge(&path, json!({"spec": widgets(kind("integer"))["spec"]}))
        .await
        .ok();
    assert_eq!(alike(&api, WIDGET, &config).await.code, 500);
}

#[tokio::test]
async fn warnings_of_pod_security_come_with_every_apply() {
    let api = Api::start().await;
    let labels = json!({"metadata": {"labels": {"pod-security.kubernetes.io/warn": "restricted"}}});
    api.merge("/api/v1/namespaces/default", labels).await.ok();
    let first = apply(&api, DEPLOYMENT, "one", WEB).await;
    assert!(
        first
            .warnings()
            .iter()
            .any(|warning| warning.contains("would violate PodSecurity"))
    );
    assert_eq!(alike(&api, DEPLOYMENT, WEB).await.warnings(), first.warnings());
}

#[tokio::test]
async fn warnings_about_what_is_applied_come_with_every_apply() {
    let api = Api::start().await;
    let pod = "/api/v1/namespaces/default/pods/old";
    let config = "{apiVersion: v1, kind: Pod, metadata: {name: old}, spec: {nodeSelector: {beta.kubernetes.io/os: linux}, \
                  containers: [{name: a, image: a}]}}";
    for _ in 0..3 {
        let answer = apply(&api, pod, "one", config).await;
        let told = answer.warnings();
        answer.ok();
        assert!(
            told.iter().any(|warning| warning.contains("deprecated since v1.14")),
            "{told:?}"
        );
    }
}
