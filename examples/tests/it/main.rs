//! Every example runs.

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::api::PostParams;
use std::time::Duration;
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
    // A runtime of its own, so that everything of the first replica ends with it, as in a crash.
    let machine = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    machine.spawn(two_replicas::run(client.clone(), "one", std::future::pending()));
    assert_eq!(signed_by("early").await, "one");
    let second = tokio::spawn(two_replicas::run(client.clone(), "two", std::future::pending()));
    machine.shutdown_background();
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

#[tokio::test(flavor = "multi_thread")]
async fn the_webhook_server_makes_its_own_certificate() {
    let client = embedded::client().await.unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let operator = tokio::spawn(webhooks::run(client.clone(), listener, std::future::pending()));
    let secrets: Api<Secret> = Api::namespaced(client, "default");
    wait::until("the Secret is there", SOON, || async {
        let secret = secrets
            .get_opt("settings-certificates")
            .await
            .map_err(|error| error.to_string())?;
        secret.map(|_| ()).ok_or("not yet".to_owned())
    })
    .await
    .unwrap();
    operator.abort();
}
