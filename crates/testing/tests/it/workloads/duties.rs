//! The small duties of a cluster: certificates, roles, accounts, tokens, and what is swept away.

use super::story::*;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};
use serde_json::{Value, json};
use stead_test::hollow_cluster::HollowCluster;

const API_CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// Asks a signer for a certificate for this name and this group.
async fn ask(cluster: &HollowCluster, signer: &str, name: &str, group: &str) {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.distinguished_name.push(DnType::OrganizationName, group);
    let key = KeyPair::generate().expect("a key");
    let pem = params
        .serialize_request(&key)
        .and_then(|request| request.pem())
        .expect("a request");
    let request = json!(k8s_openapi::ByteString(pem.into_bytes()));
    let spec = json!({"signerName": signer, "request": request, "usages": ["client auth", "digital signature"]});
    make(cluster, "certificatesigningrequests", "jane", spec).await;
}

async fn decide(cluster: &HollowCluster, type_: &str) {
    let condition = json!({"type": type_, "status": "True", "reason": "Checked", "message": "by hand"});
    let patch = json!({"status": {"conditions": [condition]}});
    change(cluster, "certificatesigningrequests/jane/approval", patch).await;
}

#[tokio::test(start_paused = true)]
async fn a_request_is_signed_once_somebody_has_approved_it() {
    let cluster = cluster_of(0).await;
    ask(&cluster, API_CLIENT, "jane", "dev").await;
    stays(&cluster, "certificatesigningrequests/jane", minutes(1), |one| {
        one["status"]["certificate"].is_null()
    })
    .await;
    decide(&cluster, "Approved").await;
    let signed = until(&cluster, "certificatesigningrequests/jane", SOON, |one| {
        one["status"]["certificate"].is_string()
    })
    .await;
    let pem: k8s_openapi::ByteString = serde_json::from_value(signed["status"]["certificate"].clone()).expect("bytes");
    assert!(pem.0.starts_with(b"-----BEGIN CERTIFICATE-----"));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_denied_is_never_signed() {
    let cluster = cluster_of(0).await;
    ask(&cluster, API_CLIENT, "jane", "dev").await;
    decide(&cluster, "Denied").await;
    stays(&cluster, "certificatesigningrequests/jane", minutes(5), |one| {
        one["status"]["certificate"].is_null()
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_request_that_its_signer_does_not_grant_fails_though_it_is_approved() {
    let cluster = cluster_of(0).await;
    ask(&cluster, "kubernetes.io/kube-apiserver-client-kubelet", "jane", "dev").await;
    decide(&cluster, "Approved").await;
    let failed = until(&cluster, "certificatesigningrequests/jane", SOON, |one| {
        condition(one, "Failed", "True")
    })
    .await;
    assert_eq!(reason(&failed, "Failed"), "SignerValidationFailure");
    assert!(failed["status"]["certificate"].is_null());
}

#[tokio::test(start_paused = true)]
async fn a_signer_of_somebody_else_is_left_to_them() {
    let cluster = cluster_of(0).await;
    ask(&cluster, "example.com/mine", "jane", "dev").await;
    decide(&cluster, "Approved").await;
    stays(&cluster, "certificatesigningrequests/jane", minutes(5), |one| {
        one["status"]["certificate"].is_null() && !condition(one, "Failed", "True")
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn requests_are_forgotten_an_hour_after_their_answer_and_not_without_one() {
    for (answer, stays) in [(Some("Approved"), false), (Some("Denied"), false), (None, true)] {
        let cluster = cluster_of(0).await;
        ask(&cluster, API_CLIENT, "jane", "dev").await;
        if let Some(answer) = answer {
            decide(&cluster, answer).await;
        }
        cluster.pass(minutes(55)).await;
        let jane = "certificatesigningrequests/jane";
        cluster.get(jane).await.expect("it is young");
        cluster.pass(minutes(10)).await;
        match stays {
            true => drop(cluster.get(jane).await.expect("it has a day")),
            false => gone(&cluster, jane, SOON).await,
        }
    }
}

fn rules(resource: &str) -> Value {
    json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}])
}

async fn part(cluster: &HollowCluster, name: &str, labels: Value, resource: &str) {
    let role = json!({"metadata": {"name": name, "labels": labels}, "rules": rules(resource)});
    cluster.create("clusterroles", role).await.expect("a role");
}

#[tokio::test(start_paused = true)]
async fn a_role_that_gathers_follows_labels_and_rules_of_its_parts() {
    let cluster = cluster_of(0).await;
    let selectors =
        json!([{"matchLabels": {"to": "sum"}}, {"matchExpressions": [{"key": "also", "operator": "Exists"}]}]);
    let sum = json!({"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": rules("lies")});
    cluster.create("clusterroles", sum).await.expect("a role");
    part(&cluster, "a", json!({"to": "sum"}), "pods").await;
    part(&cluster, "b", json!({"also": ""}), "nodes").await;
    part(&cluster, "c", json!({"to": "other"}), "secrets").await;
    let gathers = async |expected: &[&str]| {
        until(&cluster, "clusterroles/sum", SOON, |role| {
            let rules = role["rules"].as_array().into_iter().flatten();
            let mut found: Vec<_> = rules.filter_map(|rule| rule["resources"][0].as_str()).collect();
            found.sort_unstable();
            found == expected
        })
        .await
    };
    gathers(&["nodes", "pods"]).await;
    change(&cluster, "clusterroles/a", json!({"rules": rules("events")})).await;
    gathers(&["events", "nodes"]).await;
    change(
        &cluster,
        "clusterroles/c",
        json!({"metadata": {"labels": {"to": "sum"}}}),
    )
    .await;
    gathers(&["events", "nodes", "secrets"]).await;
    change(&cluster, "clusterroles/sum", json!({"rules": []})).await;
    gathers(&["events", "nodes", "secrets"]).await;
}

#[tokio::test(start_paused = true)]
async fn the_roles_of_people_take_in_what_others_add_to_them() {
    let cluster = cluster_of(0).await;
    part(
        &cluster,
        "widgets",
        json!({"rbac.authorization.k8s.io/aggregate-to-view": "true"}),
        "widgets",
    )
    .await;
    for role in ["view", "edit", "admin"] {
        until(&cluster, &format!("clusterroles/{role}"), SOON, |role| {
            let mut rules = role["rules"].as_array().into_iter().flatten();
            rules.any(|rule| rule["resources"] == json!(["widgets"]))
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_certificates_of_the_cluster_are_set_right_when_somebody_changes_them() {
    let cluster = cluster_of(0).await;
    let before = until(&cluster, "configmaps/kube-root-ca.crt", SOON, |map| {
        map["data"]["ca.crt"].is_string()
    })
    .await;
    change(
        &cluster,
        "configmaps/kube-root-ca.crt",
        json!({"data": {"ca.crt": "forged", "more": "x"}}),
    )
    .await;
    until(&cluster, "configmaps/kube-root-ca.crt", SOON, |map| {
        map["data"] == before["data"]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_token_of_an_account_that_is_not_there_is_none() {
    let cluster = cluster_of(0).await;
    let secret = json!({"metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "nobody"}},
        "type": "kubernetes.io/service-account-token"});
    cluster.create("secrets", secret).await.expect("a secret");
    gone(&cluster, "secrets/token", minutes(2)).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_names_its_account_and_goes_to_nobody_else() {
    let cluster = cluster_of(0).await;
    let account = cluster
        .create("serviceaccounts", json!({"metadata": {"name": "robot"}}))
        .await
        .expect("an account");
    let secret = json!({"metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "robot"}},
        "type": "kubernetes.io/service-account-token"});
    cluster.create("secrets", secret).await.expect("a secret");
    let filled = until(&cluster, "secrets/token", SOON, |secret| {
        secret["data"]["token"].is_string()
    })
    .await;
    assert_eq!(
        filled["metadata"]["annotations"]["kubernetes.io/service-account.uid"],
        account["metadata"]["uid"]
    );
    assert!(
        filled["data"]["ca.crt"].is_string() && filled["data"]["namespace"].is_string(),
        "{filled}"
    );
    remove(&cluster, "serviceaccounts/robot").await;
    cluster
        .create("serviceaccounts", json!({"metadata": {"name": "robot"}}))
        .await
        .expect("another one");
    gone(&cluster, "secrets/token", minutes(1)).await;
}

#[tokio::test(start_paused = true)]
async fn an_event_that_happens_again_stays() {
    let cluster = cluster_of(0).await;
    let event = json!({"metadata": {"name": "again"}, "eventTime": "2026-01-01T00:00:00.000000Z", "action": "Testing",
        "reason": "Tested", "type": "Normal", "reportingController": "test", "reportingInstance": "one",
        "regarding": {"kind": "Pod", "name": "x", "namespace": "default"}});
    cluster.create("events", event).await.expect("an event");
    cluster.pass(minutes(50)).await;
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:50:00.000000Z"}});
    change(&cluster, "events/again", series).await;
    cluster.pass(minutes(50)).await;
    cluster
        .get("events/again")
        .await
        .expect("it happened less than an hour ago");
    cluster.pass(minutes(20)).await;
    gone(&cluster, "events/again", SOON).await;
}
