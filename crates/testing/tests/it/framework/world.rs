//! A cluster, an operator on it, and a test between them.
//!
//! The cluster is the embedded API server; with `STEAD_TEST_CLUSTER=kubernetes` in the environment it is the real one.

use super::shelf::{Librarian, Shelf, shelf};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::time::Duration;
use stead::manager::ManagerBuilder;
use stead::{CacheSettings, Controller, ControllerHandle, Manager};
use stead_test::embedded;
use stead_test::faults::Faults;
use stead_test::kubernetes::{Kubernetes, Parts};
use stead_test::wait;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const SOON: Duration = Duration::from_secs(30);

/// A cluster and an administrator's client.
pub struct World {
    pub client: Client,
    pub faults: Faults,
    /// Kept running, if it is a real one.
    _cluster: Option<Kubernetes>,
}

/// A running operator.
pub struct Running {
    pub controller: ControllerHandle,
    pub librarian: Librarian,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl World {
    pub async fn start() -> World {
        let real = std::env::var("STEAD_TEST_CLUSTER").is_ok_and(|cluster| cluster == "kubernetes");
        let (client, cluster) = match real {
            true => {
                let cluster = Kubernetes::start(Parts::Api)
                    .await
                    .expect("a cluster that answers, within the time a test has");
                (
                    cluster
                        .client()
                        .await
                        .expect("a cluster that answers, within the time a test has"),
                    Some(cluster),
                )
            }
            false => (
                embedded::client()
                    .await
                    .expect("a cluster that answers, within the time a test has"),
                None,
            ),
        };
        World {
            client,
            faults: Faults::default(),
            _cluster: cluster,
        }
    }

    /// Starts an operator whose requests meet the world's faults.
    pub fn operator(&self) -> Running {
        self.operator_with("one", &self.faults, |manager| manager)
    }

    pub fn operator_with(
        &self,
        identity: &str,
        faults: &Faults,
        set: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
    ) -> Running {
        let settings = CacheSettings {
            longest_retry: Duration::from_millis(200),
            silence: Duration::from_secs(2),
            ..CacheSettings::default()
        };
        let builder = Manager::builder(faults.wrap(self.client.clone()))
            .name("librarian")
            .identity(identity);
        let manager = set(builder.cache(settings)).build();
        let librarian = Librarian::default();
        let backoff = stead::queue::Backoff {
            first: Duration::from_millis(50),
            most: Duration::from_millis(500),
            jitter: 0.0,
        };
        let controller = Controller::operator("shelves", librarian.clone())
            .owns::<ConfigMap>()
            .timeout(Duration::from_millis(700))
            .backoff(backoff)
            .without_resync();
        let controller = manager.add(controller);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            manager
                .run(async move { stopped.cancelled().await })
                .await
                .expect("a cluster that answers, within the time a test has");
        });
        Running {
            controller,
            librarian,
            stop,
            task,
        }
    }

    pub fn shelves(&self) -> Api<Shelf> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub fn books(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub async fn create_shelf(&self, name: &str, books: i32) -> Shelf {
        self.shelves()
            .create(&PostParams::default(), &shelf(name, books))
            .await
            .expect("a cluster that answers, within the time a test has")
    }

    pub async fn resize(&self, name: &str, books: i32) {
        let patch = json!({"spec": {"minAvailable": books}});
        self.shelves()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect("a cluster that answers, within the time a test has");
    }

    /// The names of the books on a shelf, with what they say.
    pub async fn books_on(&self, shelf: &str) -> Vec<String> {
        let list = self
            .books()
            .list(&ListParams::default())
            .await
            .expect("a cluster that answers, within the time a test has");
        let prefix = format!("{shelf}-");
        let mut books: Vec<_> = list
            .items
            .into_iter()
            .filter(|book| book.name_any().starts_with(&prefix))
            .map(|book| format!("{} of {}", book.name_any(), book.data.unwrap_or_default()["of"]))
            .collect();
        books.sort();
        books
    }

    /// Waits until a shelf has the books that its size wants, and says so in its status.
    pub async fn expect_full(&self, shelf: &str, size: i32) {
        let wanted: Vec<_> = (0..size).map(|number| format!("{shelf}-{number} of {size}")).collect();
        wait::until("the shelf is full", SOON, || async {
            let books = self.books_on(shelf).await;
            let status = self
                .shelves()
                .get(shelf)
                .await
                .map_err(|error| error.to_string())?
                .status;
            let healthy = status.and_then(|status| status.current_healthy);
            match books == wanted && healthy == Some(size) {
                true => Ok(()),
                false => Err(format!("{books:?}, status {healthy:?}")),
            }
        })
        .await
        .expect("a cluster that answers, within the time a test has");
    }

    /// Waits until a shelf's condition of a type has a reason, and gives its message.
    pub async fn expect_condition(&self, shelf: &str, condition: &str, reason: &str) -> String {
        wait::until("the condition is there", SOON, || async {
            let shelf = self.shelves().get(shelf).await.map_err(|error| error.to_string())?;
            let conditions = shelf.status.and_then(|status| status.conditions).unwrap_or_default();
            let found = conditions
                .iter()
                .find(|each| each.type_ == condition && each.reason == reason);
            match found {
                Some(found) => Ok(found.message.clone()),
                None => Err(format!("{conditions:?}")),
            }
        })
        .await
        .expect("a cluster that answers, within the time a test has")
    }

    /// The convergence rule: nothing is left to do, and nothing more is written.
    pub async fn expect_quiet(&self, running: &Running) {
        let idle = || {
            running
                .controller
                .queue
                .inspect(|ledger| ledger.is_empty() && ledger.running() == 0)
        };
        let mut writes = self.faults.effective_writes().len();
        let mut quiet_since = tokio::time::Instant::now();
        wait::until("the operator is quiet", SOON, || {
            let now = self.faults.effective_writes().len();
            if now != writes || !idle() {
                writes = now;
                quiet_since = tokio::time::Instant::now();
            }
            let quiet = quiet_since.elapsed();
            async move {
                match quiet > Duration::from_millis(400) {
                    true => Ok(()),
                    false => Err(format!("{now} writes")),
                }
            }
        })
        .await
        .expect("a cluster that answers, within the time a test has");
    }
}

impl Running {
    /// SIGTERM: drains and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task
            .await
            .expect("a cluster that answers, within the time a test has");
    }

    /// kill -9: ends between two polls, without a word to anybody.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}
