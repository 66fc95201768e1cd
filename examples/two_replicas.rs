//! Two replicas of one operator: one leads, the other waits with warm caches and takes over.
//!
//! Writes of a replica that does not lead are refused before they are sent; see docs/concepts.md.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Client;
use serde_json::json;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, LeaderElection, Manager, Outcome, Reconciler, Store};

/// Signs every ConfigMap that asks for it with the name of the replica that saw it.
struct Signer {
    notes: Store<ConfigMap>,
    replica: String,
}

impl Reconciler for Signer {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(note) = self.notes.get(key) else {
            return Ok(Outcome::Settled);
        };
        let data = note.data.as_ref();
        let wanted = data.is_some_and(|data| data.contains_key("sign") && !data.contains_key("signed-by"));
        if wanted {
            // The patch applies to the note that was read and to no other.
            let patch = json!({"data": {"signed-by": self.replica}});
            context.writer().patch(&*note, patch).await?;
        }
        Ok(Outcome::Settled)
    }
}

/// Runs one replica until `shutdown` is ready.
pub async fn run(client: Client, replica: &str, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    let election = LeaderElection {
        // Shorter than usual, so that the example does not take long.
        lease: Duration::from_secs(2),
        renew_deadline: Duration::from_millis(1500),
        retry: Duration::from_millis(200),
        ..LeaderElection::new("signer", "default")
    };
    let manager = Manager::builder(client)
        .name("signer")
        .identity(replica)
        .leader_election(election)
        .build();
    let signer = Signer {
        notes: manager.cache().store::<ConfigMap>(),
        replica: replica.to_owned(),
    };
    manager.add(Controller::new("signer", signer).for_::<ConfigMap>());
    manager.run(shutdown).await
}

#[tokio::main]
#[allow(dead_code)]
async fn main() -> anyhow::Result<()> {
    let client = Client::try_default().await?;
    let stop = || async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let (one, two) = tokio::join!(run(client.clone(), "one", stop()), run(client, "two", stop()));
    Ok(one.and(two)?)
}
