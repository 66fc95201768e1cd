//! Stories of mistakes that Kubernetes' own end-to-end tests found; each is told in the short form that failed.

use super::api::Api;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
const CLASSES: &str = "/apis/node.k8s.io/v1/runtimeclasses";

fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i:1"}]}})
}

#[tokio::test]
async fn a_pod_with_a_token_holds_no_nulls_and_can_be_labelled() {
    let api = Api::start().await;
    api.post(ACCOUNTS, json!({"metadata": {"name": "default"}})).await.ok();
    let made = api.post(PODS, pod("p")).await.ok();
    assert_eq!(made["spec"].get("initContainers"), None);
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = api.merge(&format!("{PODS}/p"), labels).await.ok();
    assert_eq!(labelled["metadata"]["labels"]["a"], "b");
}

#[tokio::test]
async fn a_pod_takes_over_what_its_runtime_class_says_and_needs_the_class() {
    let api = Api::start().await;
    let mut wanted = pod("p");
    wanted["spec"]["runtimeClassName"] = "small".into();
    api.post(PODS, wanted.clone()).await.fails(
        403,
        "Forbidden",
        "pods \"p\" is forbidden: pod rejected: RuntimeClass \"small\" not found",
    );
    let class = json!({
        "metadata": {"name": "small"}, "handler": "h", "overhead": {"podFixed": {"cpu": "10m"}},
        "scheduling": {"nodeSelector": {"size": "small"}, "tolerations": [{"key": "k", "operator": "Exists"}]},
    });
    api.post(CLASSES, class).await.ok();
    let made = api.post(PODS, wanted.clone()).await.ok();
    assert_eq!(made["spec"]["overhead"], json!({"cpu": "10m"}));
    assert_eq!(made["spec"]["nodeSelector"], json!({"size": "small"}));
    let tolerations = made["spec"]["tolerations"].as_array().unwrap();
    assert!(tolerations.iter().any(|toleration| toleration["key"] == "k"));

    wanted["metadata"]["name"] = "q".into();
    wanted["spec"]["overhead"] = json!({"cpu": "20m"});
    let (code, _, message) = api.post(PODS, wanted).await.failure();
    assert_eq!(code, 403);
    assert!(message.ends_with("Pod's Overhead doesn't match RuntimeClass's defined Overhead"));

    api.delete(&format!("{CLASSES}/small")).await.ok();
    let labels = json!({"metadata": {"labels": {"a": "b"}}});
    api.merge(&format!("{PODS}/p"), labels).await.ok();
}

#[tokio::test]
async fn kernel_settings_have_names() {
    let api = Api::start().await;
    let mut wanted = pod("p");
    let setting = |name: &str| json!({"name": name, "value": "1"});
    wanted["spec"]["securityContext"] =
        json!({"sysctls": [setting("foo-"), setting("kernel.shm_rmid_forced"), setting("bar.."), setting("net/ipv4")]});
    let (code, _, message) = api.post(PODS, wanted).await.failure();
    assert_eq!(code, 422);
    assert!(message.contains("sysctls[0].name: Invalid value: \"foo-\": must have at most 253 characters"));
    assert!(message.contains("sysctls[2].name: Invalid value: \"bar..\""));
    assert!(!message.contains("shm_rmid_forced") && !message.contains("net/ipv4"));
}

#[tokio::test]
async fn a_review_cannot_be_shown_as_a_table() {
    let api = Api::start().await;
    let review = json!({"spec": {"nonResourceAttributes": {"path": "/", "verb": "get"}}});
    let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
        .header("content-type", "application/json")
        .header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
        .body(Full::new(Bytes::from(review.to_string())))
        .unwrap();
    let (code, reason, _) = api.answer(request).await.failure();
    assert_eq!((code, reason.as_str()), (406, "NotAcceptable"));
}

#[tokio::test]
async fn an_apply_with_a_key_that_came_twice_names_its_line() {
    let api = Api::start().await;
    let body = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: m\ndata:\n  a: one\n  a: two\n";
    let path = "/api/v1/namespaces/default/configmaps/m?fieldManager=me";
    let yaml = "application/apply-patch+yaml";
    let strict = format!("{path}&fieldValidation=Strict");
    api.call("PATCH", &strict, yaml, body).await.fails(
        400,
        "BadRequest",
        "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  \
         line 7: key \"a\" already set in map",
    );
    let warned = api.call("PATCH", path, yaml, body).await;
    let warning = warned.headers.get("warning").and_then(|text| text.to_str().ok());
    assert_eq!(warning, Some("299 - \"line 7: key \\\"a\\\" already set in map\""));
    assert_eq!(warned.ok()["data"]["a"], "two");
}

#[tokio::test]
async fn an_approval_keeps_every_condition_and_annotation_that_was_sent() {
    let api = Api::start().await;
    let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
    let spec =
        json!({"request": "eA==", "signerName": "example.com/s", "usages": ["digital signature", "client auth"]});
    api.post(path, json!({"metadata": {"name": "r"}, "spec": spec}))
        .await
        .ok();
    let patch = json!({
        "metadata": {"annotations": {"why": "asked"}},
        "status": {"conditions": [{"type": "Seen", "status": "True", "reason": "r"}], "certificate": "eA=="},
    });
    let patched = api.merge(&format!("{path}/r/approval"), patch).await.ok();
    assert_eq!(patched["metadata"]["annotations"]["why"], "asked");
    assert_eq!(
        patched["status"].get("certificate"),
        None,
        "only the conditions are approval's"
    );
    let condition = &patched["status"]["conditions"][0];
    assert_eq!(condition["type"], "Seen");
    assert_eq!(condition["lastUpdateTime"], "2027-01-15T08:00:00Z");
    assert_eq!(condition["lastTransitionTime"], "2027-01-15T08:00:00Z");

    let approved = json!({"type": "Approved", "status": "True", "reason": "r"});
    let status = json!({"status": {"certificate": "eA==", "conditions": [condition, approved]}});
    let signed = api.merge(&format!("{path}/r/status"), status).await.ok();
    assert_eq!(signed["status"]["certificate"], "eA==");
    let conditions = signed["status"]["conditions"].as_array().unwrap();
    assert_eq!(conditions.len(), 1, "a status cannot approve");
}
