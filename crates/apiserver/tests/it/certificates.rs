//! Certificate requests: who may ask for what, and who may decide.

use super::api::{Answer, Api};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::Full;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};

const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const ROLES: &str = "/apis/rbac.authorization.k8s.io/v1";

/// Decides on a request in the name of a user.
async fn decide(api: &Api, user: &str, name: &str, decision: &str) -> Answer {
    let conditions = json!([{"type": decision, "status": "True", "reason": "r"}]);
    let request = Request::builder()
        .method("PATCH")
        .uri(format!("{REQUESTS}/{name}/approval"))
        .header("content-type", "application/merge-patch+json")
        .header("impersonate-user", user)
        .body(Full::new(Bytes::from(
            json!({"status": {"conditions": conditions}}).to_string(),
        )))
        .unwrap();
    api.answer(request).await
}

fn request(name: &str, signer: &str, request: &str) -> Value {
    let spec = json!({"request": request, "signerName": signer, "usages": ["digital signature", "client auth"]});
    json!({"metadata": {"name": name}, "spec": spec})
}

#[tokio::test]
async fn whoever_approves_must_be_let_by_the_signer_and_takes_nothing_back() {
    let api = Api::start().await;
    for (name, signer) in [
        ("ours", "example.com/s"),
        ("theirs", "kubernetes.io/kube-apiserver-client"),
    ] {
        api.post(REQUESTS, request(name, signer, "eA==")).await.ok();
    }
    let rules = json!([
        {"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests/approval"], "verbs": ["patch"]},
        {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "resourceNames": ["example.com/*"], "verbs": ["approve"]},
    ]);
    let role = json!({"metadata": {"name": "approver"}, "rules": rules});
    api.post(&format!("{ROLES}/clusterroles"), role).await.ok();
    let binding = json!({"metadata": {"name": "approver"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "approver"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann"}]});
    api.post(&format!("{ROLES}/clusterrolebindings"), binding).await.ok();

    let (code, _, message) = decide(&api, "ann", "theirs", "Approved").await.failure();
    let why = "user not permitted to approve requests with signerName \"kubernetes.io/kube-apiserver-client\"";
    assert!(code == 403 && message.ends_with(why), "{code} {message}");
    decide(&api, "ann", "ours", "Denied").await.ok();
    let (code, _, message) = decide(&api, "ann", "ours", "Approved").await.failure();
    let why = "status.conditions: Forbidden: updates may not remove a condition of type \"Denied\"";
    assert!(code == 422 && message.ends_with(why), "{code} {message}");
}

#[tokio::test]
async fn nobody_asks_to_be_everything() {
    let api = Api::start().await;
    let asked = |group: &str| {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::OrganizationName, group);
        let key = KeyPair::generate().unwrap();
        STANDARD.encode(params.serialize_request(&key).unwrap().pem().unwrap())
    };
    let signer = "kubernetes.io/kube-apiserver-client";
    let (code, _, message) = api
        .post(REQUESTS, request("all", signer, &asked("system:masters")))
        .await
        .failure();
    let why = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed";
    assert!(code == 403 && message.ends_with(why), "{code} {message}");
    api.post(REQUESTS, request("some", signer, &asked("readers")))
        .await
        .ok();
}
