//! Every example runs.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
use stead::webhook::WebhookOptions;
use stead_test::{embedded, wait};

#[path = "../../external_state.rs"]
mod external_state;
#[path = "../../testing.rs"]
mod testing;
#[path = "../../two_replicas.rs"]
mod two_replicas;
#[path = "../../webhooks.rs"]
mod webhooks;

const SOON: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread")]
async fn the_greeter_greets_and_greets_again() {
    testing::story().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_second_replica_takes_over_when_the_first_is_gone() {
    let client = embedded::client().await.unwrap();
    let notes: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let signed_by = async |name: &str| {
        let mut note = ConfigMap::default();
        note.metadata.name = Some(name.to_owned());
        note.data = Some([("sign".to_owned(), "please".to_owned())].into());
        notes.create(&PostParams::default(), &note).await.unwrap();
        wait::until("it is signed", SOON, || async {
            let note = notes.get(name).await.map_err(|error| error.to_string())?;
            note.data
                .unwrap_or_default()
                .remove("signed-by")
                .ok_or("not signed".to_owned())
        })
        .await
        .unwrap()
    };
    let first = tokio::spawn(two_replicas::run(client.clone(), "one", std::future::pending()));
    assert_eq!(signed_by("early").await, "one");
    let second = tokio::spawn(two_replicas::run(client.clone(), "two", std::future::pending()));
    // As in a crash: everything of the first replica ends with its future, and the Lease is not given back.
    first.abort();
    assert_eq!(signed_by("late").await, "two");
    second.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_outside_of_the_cluster_reaches_it() {
    let client = embedded::client().await.unwrap();
    let thermometer = external_state::Thermometer::default();
    let (moved, changed) = tokio::sync::mpsc::channel(1);
    let operator = tokio::spawn(external_state::run(
        client.clone(),
        thermometer.clone(),
        changed,
        std::future::pending(),
    ));
    let reports: Api<ConfigMap> = Api::namespaced(client, "default");
    let expect = async |degrees: &str| {
        wait::until("the report says so", SOON, || async {
            let report = reports.get_opt("weather").await.map_err(|error| error.to_string())?;
            let says = report
                .and_then(|report| report.data)
                .and_then(|mut data| data.remove("degrees"));
            if says.as_deref() == Some(degrees) {
                Ok(())
            } else {
                Err(format!("{says:?}"))
            }
        })
        .await
        .unwrap();
    };
    expect("0").await;
    thermometer.set(21);
    moved.send(()).await.unwrap();
    expect("21").await;
    operator.abort();
}

/// A webhook of the example at an address of this machine, as during development.
fn webhook(port: u16, path: &str) -> serde_json::Value {
    serde_json::json!({
        "name": "settings.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
        "clientConfig": {"url": format!("https://127.0.0.1:{port}{path}")},
        "objectSelector": {"matchLabels": {"kind": "settings"}},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn the_webhooks_fill_in_refuse_and_convert_with_a_certificate_of_their_own() {
    let client = embedded::client().await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let validating: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let mutating: Api<MutatingWebhookConfiguration> = Api::all(client.clone());
    let configuration =
        |path: &str| serde_json::json!({"metadata": {"name": "settings"}, "webhooks": [webhook(port, path)]});
    let checks = serde_json::from_value(configuration("/validate")).unwrap();
    validating.create(&PostParams::default(), &checks).await.unwrap();
    let changes = serde_json::from_value(configuration("/mutate")).unwrap();
    mutating.create(&PostParams::default(), &changes).await.unwrap();
    let options = WebhookOptions {
        names: vec!["127.0.0.1".to_owned()],
        every: Duration::from_millis(100),
        ..webhooks::options()
    };
    let operator = tokio::spawn(webhooks::run(client.clone(), listener, options, std::future::pending()));
    let settings: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut calm = ConfigMap::default();
    calm.metadata.name = Some("calm".to_owned());
    calm.metadata.labels = Some([("kind".to_owned(), "settings".to_owned())].into());
    let filled_in = wait::until("the webhooks are reached", SOON, || async {
        let created = settings.create(&PostParams::default(), &calm).await;
        created.map_err(|error| error.to_string())
    })
    .await
    .unwrap();
    assert_eq!(filled_in.data.unwrap()["mode"], "calm");
    let bundle = validating.get("settings").await.unwrap().webhooks.unwrap();
    let bundle = serde_json::to_value(bundle[0].client_config.ca_bundle.clone()).unwrap();
    let converted = convert(port, bundle).await;
    assert_eq!(converted["spec"], serde_json::json!({"size": [3, 4]}));
    operator.abort();
}

/// Asks the conversion webhook what the API server would, trusting what the API server was told to trust.
async fn convert(port: u16, bundle: serde_json::Value) -> serde_json::Value {
    let kubeconfig = serde_json::json!({
        "clusters": [{"name": "webhook", "cluster": {
            "server": format!("https://127.0.0.1:{port}"), "certificate-authority-data": bundle}}],
        "users": [{"name": "webhook", "user": {}}],
        "contexts": [{"name": "webhook", "context": {"cluster": "webhook", "user": "webhook"}}],
        "current-context": "webhook",
    });
    let kubeconfig = serde_json::from_value(kubeconfig).expect("a webhook that answers");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &Default::default()).await;
    let client = kube::Client::try_from(config.expect("a webhook that answers")).expect("a webhook that answers");
    let review = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
        "request": {"uid": "1", "desiredAPIVersion": "example.com/v2", "objects": [
            {"apiVersion": "example.com/v1", "kind": "Sheet", "metadata": {"name": "a"}, "spec": {"width": 3, "height": 4}}]},
    });
    let request = http::Request::post("/convert").header("content-type", "application/json");
    let request = request
        .body(review.to_string().into_bytes())
        .expect("a webhook that answers");
    let answer: serde_json::Value = client.request(request).await.expect("a webhook that answers");
    answer["response"]["convertedObjects"][0].clone()
}
