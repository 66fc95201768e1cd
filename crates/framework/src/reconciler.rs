//! What the author of an operator writes.
//!
//! [`Operator`] is the usual form: observe, plan, and let the framework apply. [`Reconciler`] is the plain one,
//! for controllers that write in their own way.

use crate::cache::Cache;
use crate::clock::Clock;
use crate::controller::OwnedStore;
use crate::error::Error;
use crate::events::Recorder;
use crate::key::Key;
use crate::kind::Typed;
use crate::outcome::Outcome;
use crate::plan::{Action, Plan};
use crate::queue::Wake;
use crate::writer::Writer;
use jiff::Timestamp;
use kube::Client;
use parking_lot::Mutex;
use serde::Serialize;
use std::pin::Pin;
use std::sync::Arc;

/// Everything that a reconcile may use.
#[derive(Clone)]
pub struct Context {
    pub(crate) controller: Arc<str>,
    pub(crate) id: u64,
    pub(crate) reasons: Arc<[Wake]>,
    pub(crate) failures: u32,
    pub(crate) client: Client,
    pub(crate) cache: Cache,
    pub(crate) writer: Writer,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) events: Recorder,
    pub(crate) metrics: crate::metrics::Metrics,
    pub(crate) owned: Arc<[Arc<dyn OwnedStore>]>,
    /// What the planning reconciler leaves for the history.
    pub(crate) plan: Arc<Mutex<Option<String>>>,
}

impl Context {
    /// The name of the controller.
    pub fn controller(&self) -> &str {
        &self.controller
    }

    /// Identifies this run in logs, traces and `/debug/reconciles`.
    pub fn id(&self) -> String {
        format!("{:016x}", self.id)
    }

    /// Why the key was woken. For logs: a reconcile looks at the state, not at what happened.
    pub fn reasons(&self) -> &[Wake] {
        &self.reasons
    }

    /// How often the key failed in a row before this run.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// A client for reads past the cache and for calls that [`Writer`] does not know. Its writes are
    /// fenced, but the consistency gate does not hear of them.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// The cache.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// Where writes go.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Where news for people go.
    pub fn events(&self) -> &Recorder {
        &self.events
    }

    /// The wall-clock time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

/// Brings one key to its desired state, in whatever way.
///
/// It is level-triggered: called again at any time, for any reason or none, it must come to the same end.
pub trait Reconciler: Send + Sync + 'static {
    /// Looks at the state of a key and brings it closer to what is wanted.
    fn reconcile(&self, context: &Context, key: &Key) -> impl Future<Output = Result<Outcome, Error>> + Send;
}

/// An operator in three steps: observe what is, plan what shall be, let the framework apply it.
///
/// ```
/// use jiff::Timestamp;
/// use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
/// use stead::{Context, Error, Operator, Plan};
/// use std::sync::Arc;
///
/// /// Puts a welcome note into every namespace.
/// struct Greeter;
///
/// impl Operator for Greeter {
///     type Root = Namespace;
///     type Seen = ();
///
///     async fn observe(&self, _: &Context, _: &Arc<Namespace>) -> Result<(), Error> {
///         Ok(())
///     }
///
///     fn plan(&self, root: &Namespace, _: &(), _: Timestamp) -> Plan {
///         let name = root.metadata.name.clone().unwrap_or_default();
///         let mut note = ConfigMap::default();
///         note.metadata.name = Some("welcome".to_owned());
///         note.metadata.namespace = Some(name.clone());
///         note.data = Some([("text".to_owned(), format!("Welcome to {name}"))].into());
///         Plan::new().child(note)
///     }
/// }
/// ```
pub trait Operator: Send + Sync + 'static {
    /// The kind that users write.
    type Root: Typed + Serialize;
    /// What planning needs to know of the world.
    type Seen: Send + Sync;

    /// A finalizer that keeps a deleted root until [`Operator::cleanup`] has proven that nothing is left.
    /// None, if garbage collection does all.
    const FINALIZER: Option<&'static str> = None;

    /// Reads what planning needs: from the cache, or from outside.
    fn observe(
        &self,
        context: &Context,
        root: &Arc<Self::Root>,
    ) -> impl Future<Output = Result<Self::Seen, Error>> + Send;

    /// Says what shall be. Pure: no clock, no client, no randomness.
    fn plan(&self, root: &Self::Root, seen: &Self::Seen, now: Timestamp) -> Plan;

    /// Says what shall be for a root that is being deleted and has our finalizer.
    fn cleanup(&self, root: &Self::Root, seen: &Self::Seen, now: Timestamp) -> Plan {
        let _ = (root, seen, now);
        Plan::new().cleaned_up()
    }

    /// Does an action of the plan. It may run again after a lost answer: make it idempotent.
    fn act(
        &self,
        context: &Context,
        root: &Arc<Self::Root>,
        action: &Action,
    ) -> impl Future<Output = Result<(), Error>> + Send {
        let _ = (context, root);
        let error = Error::new(crate::Class::Bug, format!("nobody knows how to {}", action.name));
        async move { Err(error) }
    }
}

/// A [`Reconciler`] without its type.
pub(crate) trait AnyReconciler: Send + Sync {
    fn run<'a>(
        &'a self,
        context: &'a Context,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send + 'a>>;
}

impl<R: Reconciler> AnyReconciler for R {
    fn run<'a>(
        &'a self,
        context: &'a Context,
        key: &'a Key,
    ) -> Pin<Box<dyn Future<Output = Result<Outcome, Error>> + Send + 'a>> {
        Box::pin(self.reconcile(context, key))
    }
}
