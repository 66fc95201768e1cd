//! A controller: from events to keys, from keys to reconciles.
//!
//! It says which objects matter (`for`, `owns`, `watches`) and how many keys are worked on at once. It is
//! level-triggered: events say that something may have to be done, never what.

mod owned;
mod source;
mod worker;

pub(crate) use owned::{LiveObject, OwnedStore};
pub(crate) use source::Life;
pub use source::{Source, predicates};
pub(crate) use worker::{Runtime, Surroundings};

use crate::apply::Planned;
use crate::cache::Cache;
use crate::history::History;
use crate::key::Key;
use crate::kind::{Kind, Typed};
use crate::queue::{Backoff, Class, Queue, RateLimit, Settings, Wake};
use crate::rbac::Rule;
use crate::reconciler::{AnyReconciler, Operator, Reconciler};
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;

/// How many keys a controller works on at once, if nothing is said: enough to hide the latency of the API
/// server, few enough not to flood it.
const CONCURRENCY: usize = 4;
/// How long one reconcile may take, if nothing is said.
const TIMEOUT: Duration = Duration::from_secs(120);
/// How often every object is looked at again, if nothing is said.
const RESYNC: Duration = Duration::from_secs(600);

/// A controller, until it is given to the manager.
pub struct Controller {
    pub(crate) name: Arc<str>,
    pub(crate) reconciler: Arc<dyn AnyReconciler>,
    pub(crate) options: Options,
    /// What connects the queue to the cache, once there is one.
    pub(crate) sources: Vec<Connect>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) root: Option<Kind>,
    pub(crate) triggers: Vec<Trigger>,
    writes: Writes,
}

/// Who writes, and so what is known about the rights that it takes.
#[derive(Clone, Copy, PartialEq)]
enum Writes {
    /// The framework does, from plans: exactly what that needs is asked for.
    Planned,
    /// The reconciler does, in ways of its own.
    Freely,
}

/// How a controller behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// How many keys are worked on at once.
    pub concurrency: usize,
    /// How long one reconcile may take.
    pub timeout: Duration,
    /// None: only events wake.
    pub resync: Option<Duration>,
    /// How the queue behaves.
    pub queue: Settings,
}

/// What a source gives when it is connected to a cache and a queue.
pub(crate) struct Connected {
    pub owned: Option<Arc<dyn OwnedStore>>,
    /// The keys that a resync looks at.
    pub keys: Option<Keys>,
    /// What makes a key impossible to reconcile: its root does not decode.
    pub undecodable: Option<Undecodable>,
}

pub(crate) type Keys = Arc<dyn Fn() -> Vec<Key> + Send + Sync>;
pub(crate) type Undecodable = Arc<dyn Fn(&Key) -> Option<crate::cache::Undecodable> + Send + Sync>;
pub(crate) type Connect = Box<dyn FnOnce(&Cache, &Queue) -> Connected + Send>;

/// A handle that wakes keys for reasons from outside of the cluster.
#[derive(Clone, Default)]
pub struct Trigger {
    queue: Arc<std::sync::OnceLock<Queue>>,
}

impl Trigger {
    /// Wakes a key, and says why. Before the controller has started, nothing happens: it will look at every
    /// key anyway.
    pub fn wake(&self, key: Key, why: impl Into<String>) {
        if let Some(queue) = self.queue.get() {
            queue.add(key, Class::Normal, Wake::External(why.into()));
        }
    }

    pub(crate) fn connect(&self, queue: &Queue) {
        // Connected once, when the controller starts.
        let _ = self.queue.set(queue.clone());
    }
}

impl Controller {
    /// A controller that calls a plain reconciler.
    pub fn new(name: &str, reconciler: impl Reconciler) -> Self {
        Controller {
            name: name.into(),
            reconciler: Arc::new(reconciler),
            options: Options {
                concurrency: CONCURRENCY,
                timeout: TIMEOUT,
                resync: Some(RESYNC),
                queue: Settings::default(),
            },
            sources: Vec::new(),
            rules: Vec::new(),
            root: None,
            triggers: Vec::new(),
            writes: Writes::Freely,
        }
    }

    /// A controller that observes, plans and applies, for the operator's root kind.
    pub fn operator<O: Operator>(name: &str, operator: O) -> Self {
        let mut controller = Controller::new(name, Planned::new(operator));
        controller.writes = Writes::Planned;
        let mut controller = controller.for_::<O::Root>();
        controller.rules.extend(Rule::owner::<O::Root>());
        controller
            .rules
            .extend(O::FINALIZER.map(|_| Rule::finalizer::<O::Root>()));
        controller
    }

    /// The kind whose objects are the keys.
    pub fn for_<K: Typed>(self) -> Self {
        self.for_source(Source::<K>::all())
    }

    /// The kind whose objects are the keys, or some of them.
    pub fn for_source<K: Typed>(mut self, source: Source<K>) -> Self {
        self.root = Some(Kind::of::<K>());
        self.rules.push(self.reading::<K>());
        self.sources.push(source.into_roots());
        self
    }

    fn reading<K: Typed>(&self) -> Rule {
        match self.writes {
            Writes::Planned => Rule::cache::<K>(),
            Writes::Freely => Rule::read::<K>(),
        }
    }

    /// A kind of which the roots own objects: by controller owner reference.
    pub fn owns<K: Typed + Serialize>(self) -> Self {
        self.owns_source(Source::<K>::all())
    }

    /// A kind of which the roots own objects, or some of them.
    pub fn owns_source<K: Typed + Serialize>(mut self, source: Source<K>) -> Self {
        self.rules.push(self.reading::<K>());
        match self.writes {
            Writes::Freely => self.rules.push(Rule::write::<K>()),
            Writes::Planned => {
                self.rules.push(Rule::apply::<K>());
                self.rules
                    .extend((source.life() == Life::Pruned).then(Rule::prune::<K>));
            }
        }
        let root = self.root.clone();
        self.sources.push(source.into_owned(root));
        self
    }

    /// A kind whose objects concern the keys that a function names.
    pub fn watches<K: Typed>(self, keys: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static) -> Self {
        self.watches_source(Source::<K>::all(), keys)
    }

    /// A kind, or some of it, whose objects concern the keys that a function names.
    pub fn watches_source<K: Typed>(
        mut self,
        source: Source<K>,
        keys: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static,
    ) -> Self {
        self.rules.push(self.reading::<K>());
        self.sources.push(source.into_mapped(keys));
        self
    }

    /// A handle with which anything outside of the cluster wakes keys.
    pub fn trigger(&mut self) -> Trigger {
        let trigger = Trigger::default();
        self.triggers.push(trigger.clone());
        trigger
    }

    /// How many keys are worked on at once.
    pub fn concurrency(mut self, workers: usize) -> Self {
        self.options.concurrency = workers.max(1);
        self
    }

    /// How long one reconcile may take before it is cancelled.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = timeout;
        self
    }

    /// How often every root is looked at without any event. The looks are spread over the period.
    pub fn resync(mut self, every: Duration) -> Self {
        self.options.resync = Some(every);
        self
    }

    /// Only events wake keys.
    pub fn without_resync(mut self) -> Self {
        self.options.resync = None;
        self
    }

    /// The delays between attempts at a failing key.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.options.queue.backoff = backoff;
        self
    }

    /// A limit over all keys together.
    pub fn rate_limit(mut self, rate: RateLimit) -> Self {
        self.options.queue.rate = Some(rate);
        self
    }

    /// Declares a permission that does not follow from `for`, `owns` and `watches`.
    pub fn may(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// The least permissions that this controller needs.
    pub fn rbac(&self) -> Vec<Rule> {
        Rule::merge(self.rules.clone())
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// What can be asked about a running controller.
#[derive(Clone)]
pub struct ControllerHandle {
    /// The controller's name.
    pub name: Arc<str>,
    /// Its queue: who waits, and why.
    pub queue: Queue,
    /// What it did.
    pub history: Arc<History>,
    /// The kind of its roots.
    pub root: Option<Kind>,
    /// How often every root is looked at without any event.
    pub resync: Option<Duration>,
}
