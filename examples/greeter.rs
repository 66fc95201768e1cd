//! A complete operator in sixty lines: every namespace gets a note that welcomes its users.
//!
//! Run it against the cluster of your kubeconfig: `cargo run -p stead-examples --bin greeter`.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use std::sync::Arc;
use stead::{Context, Controller, Error, Manager, Operator, Plan};

/// What this operator does.
struct Greeter;

impl Operator for Greeter {
    type Root = Namespace;
    type Seen = ();

    async fn observe(&self, _: &Context, _: &Arc<Namespace>) -> Result<(), Error> {
        // Everything that the plan needs is in the namespace itself.
        Ok(())
    }

    fn plan(&self, root: &Namespace, _: &(), _: Timestamp) -> Plan {
        let name = root.metadata.name.clone().unwrap_or_default();
        let mut note = ConfigMap::default();
        note.metadata.name = Some("welcome".to_owned());
        note.metadata.namespace = Some(name.clone());
        note.data = Some([("text".to_owned(), format!("Welcome to {name}!"))].into());
        Plan::new().child(note)
    }
}

/// Runs until `shutdown` is ready.
pub async fn run(client: Client, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let manager = Manager::builder(client).name("greeter").build();
    // A note that somebody edits or deletes is put right: the controller watches what it owns.
    manager.add(Controller::operator("greeter", Greeter).owns::<ConfigMap>());
    manager.run(shutdown).await
}

#[tokio::main]
#[allow(dead_code)]
async fn main() -> anyhow::Result<()> {
    let interrupted = async {
        // Without a signal handler the process ends the hard way, which an operator survives too.
        let _ = tokio::signal::ctrl_c().await;
    };
    Ok(run(Client::try_default().await?, interrupted).await?)
}
