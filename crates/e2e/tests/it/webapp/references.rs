//! What an application refers to: Secrets that are missing, elsewhere or changed. W8 and W9, each on a whole cluster in this
//! process.

use super::stage::{NAME, PATIENCE, Stage};
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;
use stead_test::wait::until;

#[tokio::test(flavor = "multi_thread")]
async fn w8_a_secret_that_is_missing_is_waited_for_and_then_it_proceeds_by_itself() {
    let stage = Stage::start().await;
    stage
        .create(json!({"image": "nginx:1.25", "envFrom": [{"secretRef": {"name": "db"}}]}))
        .await;
    let message = stage.reason("ReferenceMissing").await;
    assert_eq!(message, "waiting for Secret db to be created");
    assert_eq!(stage.deployments().get_opt(NAME).await.expect("an answer"), None);
    put_secret(&stage, "one").await;
    stage.ready("it proceeds").await;
    stage.quiet().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_it_refers_to_is_never_taken_from_another_namespace() {
    let stage = Stage::start().await;
    let namespaces: Api<Namespace> = Api::all(stage.client.clone());
    let other = serde_json::from_value(json!({"metadata": {"name": "other"}})).expect("a Namespace");
    let how = PostParams::default();
    namespaces.create(&how, &other).await.expect("a Namespace");
    let elsewhere: Api<Secret> = Api::namespaced(stage.client.clone(), "other");
    let secret = serde_json::from_value(json!({"metadata": {"name": "db"}})).expect("a Secret");
    elsewhere.create(&how, &secret).await.expect("a Secret");
    stage
        .create(json!({"image": "nginx:1.25", "envFrom": [{"secretRef": {"name": "db"}}]}))
        .await;
    assert_eq!(
        stage.reason("ReferenceMissing").await,
        "waiting for Secret db to be created"
    );
    stage
        .edit(json!({"envFrom": [{"secretRef": {"name": "other/db"}}]}))
        .await;
    let message = stage.reason("InvalidSpec").await;
    assert!(message.contains("in the same namespace"), "{message}");
    stage.edit(json!({"envFrom": null})).await;
    stage.ready("it needs nothing any more").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn w9_a_rotated_secret_rolls_the_pods_exactly_once() {
    let stage = Stage::start().await;
    put_secret(&stage, "one").await;
    stage
        .create(json!({"image": "nginx:1.25", "replicas": 2, "envFrom": [{"secretRef": {"name": "db"}}]}))
        .await;
    stage.ready("it runs").await;
    let before = stage.names::<ReplicaSet>().await;
    put_secret(&stage, "two").await;
    until("the pods are rolled", PATIENCE, || async {
        let sets = stage.names::<ReplicaSet>().await;
        (sets.len() == 2).then_some(()).ok_or_else(|| sets.join(", "))
    })
    .await
    .expect("a second ReplicaSet");
    stage.ready("it runs again").await;
    stage.quiet().await;
    assert_eq!(
        stage.names::<ReplicaSet>().await.len(),
        before.len() + 1,
        "one rollout, not two"
    );
    let told = |sent: &stead_test::faults::Sent| {
        let body = String::from_utf8_lossy(&sent.body);
        body.contains("two") || body.contains("dHdv")
    };
    assert!(
        !stage.faults.sent().iter().any(told),
        "no content of a Secret is ever sent anywhere"
    );
}

async fn put_secret(stage: &Stage, password: &str) {
    let api: Api<Secret> = Api::default_namespaced(stage.client.clone());
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "db"},
        "stringData": {"password": password}});
    api.patch("db", &PatchParams::apply("test").force(), &Patch::Apply(secret))
        .await
        .expect("a Secret");
}
