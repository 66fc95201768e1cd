//! A cluster, an operator on it, and a test between them.

use super::shelf::{Librarian, Shelf, shelf};
use super::stage::Pace;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use stead::manager::ManagerBuilder;
use stead::metrics::Metrics;
use stead::queue::Backoff;
use stead::{CacheSettings, Controller, ControllerHandle, Key, LeaderElection, Manager, Namespaces, Operator, names};
use stead_test::faults::Faults;
use stead_test::{Cluster, VirtualClock, wait};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub const SOON: Duration = Duration::from_secs(30);
/// The longest pause between two attempts at a failing key.
pub const LONGEST_BACKOFF: Duration = Duration::from_millis(500);
const IN_TIME: &str = "a cluster that answers, within the time a test has";

/// A cluster, a namespace of it, and an administrator's client.
pub struct World {
    pub client: Client,
    pub faults: Faults,
    pub namespace: String,
    pub clock: Arc<VirtualClock>,
    /// The cluster, if it is in this process.
    pub embedded: Option<Cluster>,
    pace: Pace,
}

/// A running operator.
pub struct Running {
    pub controller: ControllerHandle,
    pub metrics: Metrics,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl World {
    pub fn embedded(cluster: Cluster, pace: Pace) -> World {
        World {
            client: cluster.client(),
            faults: Faults::default(),
            namespace: "default".to_owned(),
            clock: cluster.clock(),
            embedded: Some(cluster),
            pace,
        }
    }

    pub fn real(client: Client, namespace: String) -> World {
        World {
            client,
            faults: Faults::default(),
            namespace,
            clock: Arc::new(VirtualClock::new()),
            embedded: None,
            pace: Pace::Real,
        }
    }

    /// A long time where time costs nothing, else a short one.
    pub fn long(&self, long: Duration, short: Duration) -> Duration {
        match self.pace {
            Pace::Virtual => long,
            Pace::Real => short,
        }
    }

    /// The usual times where time costs nothing, else short ones.
    pub fn election(&self) -> LeaderElection {
        let usual = LeaderElection::new("librarian", &self.namespace);
        match self.pace {
            Pace::Virtual => usual,
            Pace::Real => LeaderElection {
                lease: Duration::from_secs(5),
                renew_deadline: Duration::from_secs(4),
                retry: Duration::from_millis(300),
                ..usual
            },
        }
    }

    pub fn key(&self, name: &str) -> Key {
        Key::namespaced(&self.namespace, name)
    }

    /// Starts a librarian whose requests meet the world's faults.
    pub fn operator(&self) -> Running {
        self.operator_with("one", &self.faults, |manager| manager)
    }

    pub fn operator_with(
        &self,
        identity: &str,
        faults: &Faults,
        set: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
    ) -> Running {
        self.librarian(Librarian::default(), identity, faults, set)
    }

    /// Starts a librarian that the story knows.
    pub fn librarian<O: Operator>(
        &self,
        librarian: O,
        identity: &str,
        faults: &Faults,
        set: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
    ) -> Running {
        let controller = Controller::operator("shelves", librarian).owns::<ConfigMap>();
        self.run(controller, identity, faults, set)
    }

    /// Runs a controller in a manager of its own.
    pub fn run(
        &self,
        controller: Controller,
        identity: &str,
        faults: &Faults,
        set: impl FnOnce(ManagerBuilder) -> ManagerBuilder,
    ) -> Running {
        let manager = set(self.manager(identity, faults)).build();
        let metrics = manager.metrics().clone();
        let backoff = Backoff {
            first: Duration::from_millis(50),
            most: LONGEST_BACKOFF,
            jitter: 0.0,
        };
        let controller = controller
            .timeout(Duration::from_secs(5))
            .backoff(backoff)
            .without_resync();
        let controller = manager.add(controller);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            manager
                .run(async move { stopped.cancelled().await })
                .await
                .expect(IN_TIME);
        });
        Running {
            controller,
            metrics,
            stop,
            task,
        }
    }

    fn manager(&self, identity: &str, faults: &Faults) -> ManagerBuilder {
        let settings = CacheSettings {
            longest_retry: Duration::from_millis(200),
            silence: Duration::from_secs(2),
            ..CacheSettings::default()
        };
        Manager::builder(faults.wrap(self.client.clone()))
            .name("librarian")
            .identity(identity)
            .clock(self.clock.clone())
            .namespaces(Namespaces::Only(vec![self.namespace.clone()]))
            .cache(settings)
    }

    pub fn shelves(&self) -> Api<Shelf> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub fn books(&self) -> Api<ConfigMap> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub async fn create_shelf(&self, name: &str, books: i32) -> Shelf {
        self.shelves()
            .create(&PostParams::default(), &shelf(name, books))
            .await
            .expect(IN_TIME)
    }

    pub async fn resize(&self, name: &str, books: i32) {
        let patch = json!({"spec": {"minAvailable": books}});
        self.shelves()
            .patch(name, &PatchParams::default(), &Patch::Merge(patch))
            .await
            .expect(IN_TIME);
    }

    /// The names of the books on a shelf, with what they say.
    pub async fn books_on(&self, shelf: &str) -> Vec<String> {
        let list = self.books().list(&ListParams::default()).await.expect(IN_TIME);
        let belongs = |book: &ConfigMap| (0..9).any(|number| book.name_any() == book_name(shelf, number));
        let mut books: Vec<_> = list
            .items
            .into_iter()
            .filter(belongs)
            .map(|book| format!("{} of {}", book.name_any(), book.data.unwrap_or_default()["of"]))
            .collect();
        books.sort();
        books
    }

    /// Waits until a shelf has the books that its size wants, and says so in its status.
    pub async fn expect_full(&self, shelf: &str, size: i32) {
        let wanted: Vec<_> = (0..size)
            .map(|number| format!("{} of {size}", book_name(shelf, number)))
            .collect();
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
        .expect(IN_TIME);
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
        .expect(IN_TIME)
    }

    /// Waits until somebody tells this about an object, and gives the words.
    pub async fn expect_event(&self, about: &str, reason: &str) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        wait::until("the event is there", SOON, || async {
            let all = events
                .list(&ListParams::default())
                .await
                .map_err(|error| error.to_string())?;
            let named = |event: &Event| {
                let regards = event.regarding.as_ref().and_then(|regarding| regarding.name.as_deref());
                regards == Some(about) && event.reason.as_deref() == Some(reason)
            };
            let found = all.items.iter().find(|event| named(event));
            let told: Vec<_> = all.items.iter().map(|event| event.reason.clone()).collect();
            found
                .map(|event| event.note.clone().unwrap_or_default())
                .ok_or_else(|| format!("{told:?}"))
        })
        .await
        .expect(IN_TIME)
    }

    /// Waits until something is true.
    pub async fn expect(&self, what: &str, check: impl Fn() -> bool) {
        wait::until(what, SOON, || async { check().then_some(()).ok_or("not yet") })
            .await
            .expect(IN_TIME);
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
        .expect(IN_TIME);
    }
}

/// The name of a shelf's book.
pub fn book_name(shelf: &str, number: i32) -> String {
    names::child(shelf, &number.to_string())
}

impl Running {
    /// SIGTERM: drains and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        self.task.await.expect(IN_TIME);
    }

    /// kill -9: ends between two polls, without a word to anybody.
    pub async fn kill(self) {
        self.task.abort();
        let _ = self.task.await;
    }

    /// How the last run of a key ended.
    pub fn last_outcome(&self, key: &Key) -> String {
        let story = self.controller.history.of(key).unwrap_or_default();
        story.last.map(|run| run.outcome.clone()).unwrap_or_default()
    }
}
