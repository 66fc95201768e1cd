//! The informer cache: objects of the cluster, in memory and always current.
//!
//! One list and watch per kind and selector, however many controllers use it. Readers get `Arc`s and never
//! copy an object; reading never talks to the API server.

mod contents;
mod decode;
mod directory;
mod index;
mod outage;
mod progress;
mod reflector;
mod revision;
mod sink;
mod store;
mod upheaval;

pub use index::Index;
pub use revision::Revision;
pub use store::{Change, Store, Undecodable};

use crate::kind::{Kind, Object, Scope, Typed};
use crate::metrics::Metrics;
use kube::Client;
use parking_lot::Mutex;
use sink::{Shaped, Sink};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Which namespaces an operator works in.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Namespaces {
    /// The whole cluster.
    #[default]
    All,
    /// Only these; objects elsewhere are never asked for.
    Only(Vec<String>),
}

/// What to keep of a kind.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use stead::Watch;
/// let ours = Watch::<Pod>::all().labels("app.kubernetes.io/managed-by=stead").transform(|pod| {
///     pod.metadata.managed_fields = None;
/// });
/// ```
pub struct Watch<K> {
    kind: Option<Kind>,
    labels: Option<String>,
    fields: Option<String>,
    transform: Option<Transform<K>>,
    need: Need,
}

/// Whether the cluster must serve a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// A kind that is not served is a problem, and the operator waits for it.
    Required,
    /// A kind that is not served has no objects.
    Optional,
}

pub(crate) type Transform<K> = Arc<dyn Fn(&mut K) + Send + Sync>;

impl<K> Watch<K> {
    /// Every object of the kind, in full.
    pub fn all() -> Self {
        Watch {
            kind: None,
            labels: None,
            fields: None,
            transform: None,
            need: Need::Required,
        }
    }

    /// A kind that comes with another project and may not be there, now or ever: until it is, there are no objects
    /// of it, and [`Store::is_served`] says so.
    pub fn optional(mut self) -> Self {
        self.need = Need::Optional;
        self
    }

    /// Every object of a kind that is only known at run time.
    pub fn of(kind: Kind) -> Self {
        Watch {
            kind: Some(kind),
            ..Watch::all()
        }
    }

    /// Only objects with these labels, in the API's selector syntax.
    pub fn labels(mut self, selector: impl Into<String>) -> Self {
        self.labels = Some(selector.into());
        self
    }

    /// Only objects with these fields, in the API's selector syntax.
    pub fn fields(mut self, selector: impl Into<String>) -> Self {
        self.fields = Some(selector.into());
        self
    }

    /// Changes each object before it is kept: drop what nobody reads and the memory is free.
    pub fn transform(mut self, change: impl Fn(&mut K) + Send + Sync + 'static) -> Self {
        self.transform = Some(Arc::new(change));
        self
    }
}

/// How the cache talks to the API server.
#[derive(Clone, Debug)]
pub struct CacheSettings {
    /// Objects per page of a list.
    pub page: u32,
    /// How long the server keeps a watch open.
    pub watch_timeout: Duration,
    /// A watch that says nothing for so long, not even a bookmark, is taken for dead and opened anew.
    pub silence: Duration,
    /// The longest pause between attempts to list or watch.
    pub longest_retry: Duration,
}

impl Default for CacheSettings {
    fn default() -> Self {
        CacheSettings {
            page: 500,
            watch_timeout: Duration::from_secs(290),
            silence: Duration::from_secs(90),
            longest_retry: Duration::from_secs(30),
        }
    }
}

/// A shared handle to the cache.
#[derive(Clone)]
pub struct Cache {
    shared: Arc<Shared>,
}

struct Shared {
    client: Client,
    namespaces: Namespaces,
    settings: CacheSettings,
    metrics: Metrics,
    informers: Mutex<Informers>,
    /// What is dropped from each object of a type, by type: `Transform`s.
    trims: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    upheavals: upheaval::Upheavals,
    outage: outage::Outage,
    stop: CancellationToken,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Informers {
    known: Vec<Known>,
    /// Whether reflectors start as soon as they are asked for.
    running: bool,
}

struct Known {
    of: TypeId,
    kind: Kind,
    labels: Option<String>,
    fields: Option<String>,
    /// Transforms cannot be compared, so an informer with one is only shared with itself.
    transformed: bool,
    store: Arc<dyn Any + Send + Sync>,
    facts: Arc<dyn StoreFacts>,
    /// What is to be watched, until it is.
    waiting: Option<Selection>,
}

/// What a reflector asks for, and where it puts it.
struct Selection {
    sink: Arc<dyn Sink>,
    labels: Option<String>,
    fields: Option<String>,
    need: Need,
}

/// What can be asked of a store without knowing its type.
pub trait StoreFacts: Send + Sync {
    /// The kind of its objects.
    fn kind(&self) -> &Kind;
    /// Whether it holds a complete list.
    fn is_synced(&self) -> bool;
    /// How many objects it holds.
    fn len(&self) -> usize;
    /// Whether it holds none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The JSON bytes of everything held.
    fn bytes(&self) -> u64;
    /// What keeps the store from being current, if anything does.
    fn problem(&self) -> Option<String>;
    /// The revision and UID of an object in the store; none if it is not there.
    fn version(&self, key: &crate::Key) -> Option<(Revision, Option<String>)>;
    /// The revision up to which the store has seen everything.
    fn seen(&self) -> Revision;
}

impl Cache {
    /// A cache that starts its watches when [`Cache::start`] is called.
    pub fn new(client: Client, namespaces: Namespaces, settings: CacheSettings, metrics: Metrics) -> Self {
        Cache {
            shared: Arc::new(Shared {
                client,
                namespaces,
                settings,
                metrics,
                informers: Mutex::default(),
                trims: Mutex::default(),
                upheavals: upheaval::Upheavals::default(),
                outage: outage::Outage::default(),
                stop: CancellationToken::new(),
                tasks: TaskTracker::new(),
            }),
        }
    }

    /// The namespaces that are watched.
    pub fn namespaces(&self) -> &Namespaces {
        &self.shared.namespaces
    }

    /// Changes each object of a kind before it is kept, for every watch of the kind that has no transform of its own:
    /// what nobody reads need not take memory. Call it before the first store of the kind is asked for; of several
    /// who do, the first one is heard.
    ///
    /// Whoever writes a whole object from the cache would write what is left of it: do so only where writes are
    /// patches or applies.
    pub fn trim<K: Typed>(&self, change: impl Fn(&mut K) + Send + Sync + 'static) {
        let transform: Transform<K> = Arc::new(change);
        let mut trims = self.shared.trims.lock();
        trims.entry(TypeId::of::<K>()).or_insert_with(|| Arc::new(transform));
    }

    fn trim_of<K: Object>(&self) -> Option<Transform<K>> {
        let trims = self.shared.trims.lock();
        let trim = trims.get(&TypeId::of::<K>())?.downcast_ref::<Transform<K>>();
        trim.cloned()
    }

    /// The store of every object of a kind.
    pub fn store<K: Typed>(&self) -> Store<K> {
        self.watch(Watch::all())
    }

    /// The store of what a watch selects; the same store for the same selection.
    pub fn watch<K: Typed>(&self, watch: Watch<K>) -> Store<K> {
        let kind = Kind::of::<K>();
        self.informer(Watch {
            kind: Some(kind),
            ..watch
        })
    }

    /// The store of a kind that is known at run time: [`Watch::of`] says which.
    pub fn watch_dynamic<K: Object>(&self, kind: Kind, watch: Watch<K>) -> Store<K> {
        self.informer(Watch {
            kind: Some(kind),
            ..watch
        })
    }

    fn informer<K: Object>(&self, watch: Watch<K>) -> Store<K> {
        let Watch {
            kind,
            labels,
            fields,
            transform,
            need,
        } = watch;
        let kind = kind.unwrap_or(Kind {
            group: "".into(),
            version: "".into(),
            kind: "".into(),
            plural: "".into(),
            scope: Scope::Cluster,
        });
        let mut informers = self.shared.informers.lock();
        let same = informers.known.iter().find(|known| {
            known.of == TypeId::of::<K>()
                && known.kind == kind
                && known.labels == labels
                && known.fields == fields
                && !known.transformed
                && transform.is_none()
        });
        if let Some(store) = same.and_then(|known| known.store.downcast_ref::<Store<K>>()) {
            return store.clone();
        }
        let store = Store::<K>::new(kind.clone(), self.shared.metrics.clone());
        let selection = Selection {
            sink: Arc::new(Shaped {
                store: store.clone(),
                transform: transform.clone().or_else(|| self.trim_of()),
            }),
            labels: labels.clone(),
            fields: fields.clone(),
            need,
        };
        let waiting = match informers.running {
            true => {
                self.reflect(&selection);
                None
            }
            false => Some(selection),
        };
        informers.known.push(Known {
            of: TypeId::of::<K>(),
            kind,
            labels,
            fields,
            transformed: transform.is_some(),
            store: Arc::new(store.clone()),
            facts: Arc::new(store.clone()),
            waiting,
        });
        store
    }

    /// Starts the reflectors of a store: one, or one for each namespace.
    fn reflect(&self, selection: &Selection) {
        let kind = selection.sink.progress().kind();
        let parts = match (&self.shared.namespaces, kind.scope) {
            (Namespaces::Only(list), Scope::Namespaced) => list.iter().cloned().map(Some).collect(),
            _ => vec![None],
        };
        selection.sink.progress().expect_parts(parts.len());
        for namespace in parts {
            let reflector = reflector::Reflector {
                client: self.shared.client.clone(),
                sink: selection.sink.clone(),
                namespace,
                labels: selection.labels.clone(),
                fields: selection.fields.clone(),
                need: selection.need,
                settings: self.shared.settings.clone(),
                part: self.shared.upheavals.join(),
                upheavals: self.shared.upheavals.clone(),
                outage: self.shared.outage.clone(),
            };
            let stop = self.shared.stop.clone();
            self.shared.tasks.spawn(async move {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = reflector.run() => {}
                }
            });
        }
    }

    /// Starts every watch that was asked for, and from now on each one that is asked for.
    pub fn start(&self) {
        let mut informers = self.shared.informers.lock();
        informers.running = true;
        for known in &mut informers.known {
            if let Some(selection) = known.waiting.take() {
                self.reflect(&selection);
            }
        }
    }

    /// Waits until every store holds a complete list.
    pub async fn wait_for_sync(&self) {
        loop {
            let waiting = self.facts().into_iter().find(|store| !store.is_synced());
            match waiting {
                None => return,
                // The stores announce changes each to its own readers; a short poll over a handful is simpler
                // than merging their signals, and only happens at start.
                Some(_) => tokio::time::sleep(Duration::from_millis(2)).await,
            }
        }
    }

    /// Every store.
    pub fn facts(&self) -> Vec<Arc<dyn StoreFacts>> {
        self.shared
            .informers
            .lock()
            .known
            .iter()
            .map(|known| known.facts.clone())
            .collect()
    }

    /// The stores that hold full objects of a kind.
    pub fn facts_of(&self, kind: &Kind) -> Vec<Arc<dyn StoreFacts>> {
        let informers = self.shared.informers.lock();
        informers
            .known
            .iter()
            .filter(|known| known.kind == *kind)
            .map(|known| known.facts.clone())
            .collect()
    }

    /// Whether the server's history went back and not everything was looked at again: the stores may not fit
    /// together.
    pub fn in_doubt(&self) -> bool {
        self.shared.upheavals.in_doubt()
    }

    /// Ends every watch, and does not wait for that.
    pub fn end(&self) {
        self.shared.stop.cancel();
    }

    /// Ends every watch.
    pub async fn stop(&self) {
        self.end();
        self.shared.tasks.close();
        self.shared.tasks.wait().await;
    }
}

#[cfg(test)]
mod tests;
