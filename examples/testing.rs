//! Testing an operator with an API server in the same process: no binaries, no ports, a few milliseconds.
//!
//! `cargo run -p stead-examples --bin testing`.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DeleteParams;
use kube::{Api, Client};
use std::time::Duration;
use stead_test::faults::{Fault, Faults};
use stead_test::{Cluster, wait};

#[path = "greeter.rs"]
mod greeter;

const SOON: Duration = Duration::from_secs(20);

async fn welcome(client: &Client) -> anyhow::Result<String> {
    let notes: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let text = wait::until("the note is there", SOON, || async {
        let note = notes.get_opt("welcome").await.map_err(|error| error.to_string())?;
        note.and_then(|note| note.data)
            .and_then(|mut data| data.remove("text"))
            .ok_or("no note".to_owned())
    });
    Ok(text.await?)
}

/// The story: the note appears although the first write is lost, and comes back when somebody deletes it.
pub async fn story() -> anyhow::Result<()> {
    let client = Cluster::start().await?.client();
    let faults = Faults::default();
    faults.next(1, Fault::LoseRequest, |sent| sent.is_write());
    let operator = tokio::spawn(greeter::run(faults.wrap(client.clone()), std::future::pending()));
    anyhow::ensure!(welcome(&client).await? == "Welcome to default!");
    let notes: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    notes.delete("welcome", &DeleteParams::default()).await?;
    anyhow::ensure!(welcome(&client).await? == "Welcome to default!");
    operator.abort();
    Ok(())
}

#[tokio::main]
#[allow(dead_code)]
async fn main() -> anyhow::Result<()> {
    story().await
}
