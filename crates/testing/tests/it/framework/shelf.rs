//! The operators under test.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use stead::status::{Conditions, Progress};
use stead::{Context, Error, Operator, Plan, names};
use tokio::sync::Semaphore;

pub type Shelf = PodDisruptionBudget;

/// Keeps as many books on a shelf as its spec says.
#[derive(Clone)]
pub struct Librarian {
    /// What observing does besides: panics, hangs, waits.
    pub mood: Arc<AtomicUsize>,
    pub observed: Arc<AtomicUsize>,
    /// Through which a librarian that waits goes.
    pub door: Arc<Semaphore>,
}

impl Default for Librarian {
    fn default() -> Self {
        Librarian {
            mood: Arc::default(),
            observed: Arc::default(),
            door: Arc::new(Semaphore::new(0)),
        }
    }
}

pub const CALM: usize = 0;
pub const PANICS: usize = 1;
pub const HANGS: usize = 2;
pub const WAITS: usize = 3;

/// Shelves of these names are special.
pub const MOODY: &str = "moody";
/// Its books cannot be changed.
pub const SEALED: &str = "sealed";
/// Its books cannot be changed, and may be replaced.
pub const REPRINTED: &str = "reprinted";

impl Operator for Librarian {
    type Root = Shelf;
    type Seen = ();

    async fn observe(&self, _: &Context, root: &Arc<Shelf>) -> Result<(), Error> {
        self.observed.fetch_add(1, Ordering::SeqCst);
        let moody = root.metadata.name.as_deref() == Some(MOODY);
        match self.mood.load(Ordering::SeqCst) {
            PANICS if moody => panic!("the librarian dropped a book"),
            HANGS if moody => std::future::pending().await,
            WAITS if moody => {
                let _through = self.door.acquire().await;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn plan(&self, root: &Shelf, _: &(), now: Timestamp) -> Plan {
        let name = root.metadata.name.clone().unwrap_or_default();
        let books = books_of(root);
        let fixed = name == SEALED || name == REPRINTED;
        let mut plan = Plan::new();
        for number in 0..books {
            plan = plan.child(ConfigMap {
                metadata: ObjectMeta {
                    name: Some(names::child(&name, &number.to_string())),
                    ..ObjectMeta::default()
                },
                data: Some([("of".to_owned(), books.to_string())].into()),
                immutable: fixed.then_some(true),
                ..ConfigMap::default()
            });
            if name == REPRINTED {
                plan = plan.replaceable();
            }
        }
        let mut conditions = Conditions::new(root.metadata.generation, now);
        conditions.progress(match root.metadata.deletion_timestamp {
            None => Progress::Ready {
                reason: "Full".to_owned(),
                message: format!("{books} books"),
            },
            Some(_) => Progress::Reconciling {
                reason: "Leaving".to_owned(),
                message: "it goes".to_owned(),
            },
        });
        let plan = plan.when_done(&["expectedPods"]);
        plan.status(json!({
            "currentHealthy": books,
            "desiredHealthy": books,
            "disruptionsAllowed": 0,
            "expectedPods": books,
            "observedGeneration": root.metadata.generation,
            "conditions": conditions.list(),
        }))
    }
}

/// A librarian who is asked before a shelf goes.
#[derive(Clone, Default)]
pub struct Archivist(pub Librarian);

impl Operator for Archivist {
    type Root = Shelf;
    type Seen = ();
    const FINALIZER: Option<&'static str> = Some("stories.stead.dev/archive");

    async fn observe(&self, context: &Context, root: &Arc<Shelf>) -> Result<(), Error> {
        self.0.observe(context, root).await
    }

    fn plan(&self, root: &Shelf, seen: &(), now: Timestamp) -> Plan {
        self.0.plan(root, seen, now)
    }
}

fn books_of(shelf: &Shelf) -> i32 {
    match shelf.spec.as_ref().and_then(|spec| spec.min_available.as_ref()) {
        Some(IntOrString::Int(books)) => *books,
        _ => 0,
    }
}

/// A shelf with so many books.
pub fn shelf(name: &str, books: i32) -> Shelf {
    Shelf {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        spec: Some(PodDisruptionBudgetSpec {
            min_available: Some(IntOrString::Int(books)),
            ..PodDisruptionBudgetSpec::default()
        }),
        status: None,
    }
}
