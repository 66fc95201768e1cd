//! Watching something outside of the cluster: a thermometer whose reading is kept in a ConfigMap.
//!
//! The world outside has no watch, so two things wake the key: a [`Trigger`](stead::Trigger) that whoever hears of a
//! change pulls, and the plan's own wish to look again after a while.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Operator, Plan};
use tokio::sync::mpsc;

/// The world outside. It may change at any time and tells only those who ask.
#[derive(Clone, Default)]
pub struct Thermometer {
    degrees: Arc<AtomicI64>,
}

impl Thermometer {
    /// The sun does this.
    pub fn set(&self, degrees: i64) {
        self.degrees.store(degrees, Ordering::SeqCst);
    }
}

struct Weather {
    thermometer: Thermometer,
}

impl Operator for Weather {
    type Root = Namespace;
    /// The reading is observed; planning only computes with it.
    type Seen = i64;

    async fn observe(&self, _: &Context, _: &Arc<Namespace>) -> Result<i64, Error> {
        Ok(self.thermometer.degrees.load(Ordering::SeqCst))
    }

    fn plan(&self, root: &Namespace, degrees: &i64, _: Timestamp) -> Plan {
        let mut report = ConfigMap::default();
        report.metadata.name = Some("weather".to_owned());
        report.metadata.namespace = root.metadata.name.clone();
        report.data = Some([("degrees".to_owned(), degrees.to_string())].into());
        Plan::new().child(report).check_again(Duration::from_secs(30))
    }
}

/// Runs until `shutdown` is ready; whatever comes through `changed` wakes the namespace at once.
pub async fn run(
    client: Client,
    thermometer: Thermometer,
    mut changed: mpsc::Receiver<()>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error> {
    let manager = Manager::builder(client).name("weather").build();
    let mut controller = Controller::operator("weather", Weather { thermometer }).owns::<ConfigMap>();
    let trigger = controller.trigger();
    manager.add(controller);
    let listening = async {
        while changed.recv().await.is_some() {
            trigger.wake(Key::cluster("default"), "the thermometer moved");
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        result = manager.run(shutdown) => result,
        () = listening => Ok(()),
    }
}

#[tokio::main]
#[allow(dead_code)]
async fn main() -> anyhow::Result<()> {
    let (sender, changed) = mpsc::channel(1);
    let interrupted = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    sender.send(()).await?;
    Ok(run(
        Client::try_default().await?,
        Thermometer::default(),
        changed,
        interrupted,
    )
    .await?)
}
