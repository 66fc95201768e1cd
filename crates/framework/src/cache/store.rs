//! One informer's objects, with the indexes over them and those who want to hear of changes.
//!
//! Written by the reflector alone, read by everybody. A read takes a lock for the time of a hash lookup and
//! hands out an `Arc`.

use super::contents::{Contents, Origin};
use super::decode::Decoded;
use super::index::{Extract, Index, Table, Values};
use super::progress::Progress;
use super::{Revision, StoreFacts};
use crate::key::{Key, KeyRef};
use crate::kind::{Kind, Object};
use crate::metrics::Metrics;
use kube::Resource;
use parking_lot::RwLock;
use std::sync::Arc;

/// A shared handle to the objects of one kind (and selection).
pub struct Store<K> {
    shared: Arc<Shared<K>>,
}

impl<K> Clone for Store<K> {
    fn clone(&self) -> Self {
        Store {
            shared: self.shared.clone(),
        }
    }
}

struct Shared<K> {
    progress: Progress,
    state: RwLock<Contents<K>>,
    /// Locked before `state`, and while handlers run, so that a new handler sees each object exactly once.
    handlers: RwLock<Vec<Handler<K>>>,
    /// Told of objects that cannot be read.
    broken_handlers: RwLock<Vec<BrokenHandler>>,
    metrics: Metrics,
}

type Handler<K> = Arc<dyn Fn(&Change<K>) + Send + Sync>;
type BrokenHandler = Arc<dyn Fn(&Key) + Send + Sync>;

/// Something happened to an object in the cache.
pub enum Change<K> {
    /// It was there when the cache was filled, or when the handler was added.
    Listed(Arc<K>),
    /// It appeared.
    Created(Arc<K>),
    /// It changed.
    Updated {
        /// The state before.
        old: Arc<K>,
        /// The state now.
        new: Arc<K>,
    },
    /// The last known state of an object that is gone.
    Deleted(Arc<K>),
}

impl<K> Clone for Change<K> {
    fn clone(&self) -> Self {
        match self {
            Change::Listed(object) => Change::Listed(object.clone()),
            Change::Created(object) => Change::Created(object.clone()),
            Change::Updated { old, new } => Change::Updated {
                old: old.clone(),
                new: new.clone(),
            },
            Change::Deleted(object) => Change::Deleted(object.clone()),
        }
    }
}

impl<K> Change<K> {
    /// The object, in its latest known state.
    pub fn object(&self) -> &Arc<K> {
        match self {
            Change::Listed(object) | Change::Created(object) | Change::Deleted(object) => object,
            Change::Updated { new, .. } => new,
        }
    }
}

/// An object that does not decode as its type. It alone is affected.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// Its UID, as far as its metadata could be read.
    pub uid: Option<String>,
    /// Its revision.
    pub revision: Revision,
    /// What is wrong with it.
    pub message: String,
}

impl<K: Object> Store<K> {
    pub(super) fn new(kind: Kind, metrics: Metrics) -> Self {
        Store {
            shared: Arc::new(Shared {
                progress: Progress::new(kind),
                state: RwLock::new(Contents::default()),
                handlers: RwLock::default(),
                broken_handlers: RwLock::default(),
                metrics,
            }),
        }
    }

    /// The kind of the objects.
    pub fn kind(&self) -> &Kind {
        self.shared.progress.kind()
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.shared.progress
    }

    /// An object.
    pub fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.shared.state.read().get(key).cloned()
    }

    /// An object, by its name; no namespace for a cluster-scoped one.
    pub fn named(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        let key = KeyRef { namespace, name };
        let state = self.shared.state.read();
        state.at(state.directory.slot_named(&key)).cloned()
    }

    /// Every object, in no order.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.shared.state.read().all().cloned().collect()
    }

    /// Looks at every object without copying even a pointer. Nothing can change meanwhile: be quick.
    pub fn for_each(&self, mut look: impl FnMut(&Key, &Arc<K>)) {
        let state = self.shared.state.read();
        for (key, slot) in state.directory.iter() {
            if let Some(object) = state.at(Some(slot)) {
                look(key, object);
            }
        }
    }

    /// Every object of a namespace.
    pub fn in_namespace(&self, namespace: &str) -> Vec<Arc<K>> {
        let state = self.shared.state.read();
        state.collect(state.directory.by_namespace.get(namespace))
    }

    /// Every object that has an owner reference (as controller or not) to this UID.
    pub fn owned_by(&self, uid: &str) -> Vec<Arc<K>> {
        let state = self.shared.state.read();
        state.collect(state.directory.by_owner.get(uid))
    }

    /// Every object that an index has under a value.
    pub fn by_index(&self, index: &Index<K>, value: &str) -> Vec<Arc<K>> {
        debug_assert!(
            Arc::ptr_eq(&self.shared, &index.store.shared),
            "an index of another store"
        );
        let state = self.shared.state.read();
        state.collect(state.tables.get(index.number).and_then(|table| table.values.get(value)))
    }

    /// Adds an index over a function of the object.
    pub fn index(&self, extract: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Index<K> {
        let extract: Extract<K> = Arc::new(extract);
        let mut state = self.shared.state.write();
        let mut table = Table {
            extract,
            values: Values::default(),
        };
        for (key, slot) in state.directory.iter() {
            if let Some(object) = state.at(Some(slot)) {
                table.insert(key, object);
            }
        }
        state.tables.push(table);
        Index {
            store: self.clone(),
            number: state.tables.len() - 1,
        }
    }

    /// Adds an index over the values of a label.
    pub fn index_label(&self, label: &'static str) -> Index<K> {
        self.index(move |object| {
            let labels = object.meta().labels.as_ref();
            labels
                .and_then(|labels| labels.get(label))
                .cloned()
                .into_iter()
                .collect()
        })
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.shared.state.read().directory.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The object that does not decode under this key, if there is one.
    pub fn undecodable(&self, key: &Key) -> Option<Undecodable> {
        self.shared.state.read().directory.broken.get(key).cloned()
    }

    /// Looks at every object that does not decode. Nothing can change meanwhile: be quick.
    pub fn for_each_undecodable(&self, mut look: impl FnMut(&Key, &Undecodable)) {
        for (key, object) in &self.shared.state.read().directory.broken {
            look(key, object);
        }
    }

    /// Whether the store holds a complete list.
    pub fn is_synced(&self) -> bool {
        self.shared.progress.is_synced()
    }

    /// Waits until the store holds a complete list.
    pub async fn wait_for_sync(&self) {
        self.shared.progress.wait_for_sync().await;
    }

    /// The revision up to which the store has seen everything.
    pub fn revision(&self) -> Revision {
        self.shared.progress.revision()
    }

    /// Waits until the store has seen a revision: for reads after one's own write.
    pub async fn wait_for(&self, revision: Revision) {
        self.shared.progress.wait_for(revision).await;
    }

    /// Calls a function for what is there (as [`Change::Listed`]) and for every change from now on. It runs
    /// in the reflector, so it must be quick: put a key into a queue.
    pub fn subscribe(&self, handler: impl Fn(&Change<K>) + Send + Sync + 'static) {
        let mut handlers = self.shared.handlers.write();
        for object in self.list() {
            handler(&Change::Listed(object));
        }
        handlers.push(Arc::new(handler));
    }

    /// Calls a function for every object that cannot be read, now and from now on.
    pub(crate) fn subscribe_broken(&self, handler: impl Fn(&Key) + Send + Sync + 'static) {
        let mut handlers = self.shared.broken_handlers.write();
        for key in self.shared.state.read().directory.broken.keys() {
            handler(key);
        }
        handlers.push(Arc::new(handler));
    }

    fn tell_broken(&self, keys: &[Key]) {
        for handler in self.shared.broken_handlers.read().iter() {
            keys.iter().for_each(|key| handler(key));
        }
    }

    /// Whether the cluster serves the kind: of an optional one there may be nothing to read or write.
    pub fn is_served(&self) -> bool {
        self.shared.progress.is_served()
    }

    /// Replaces everything (of a namespace) by a fresh list. What is not in the list was deleted while
    /// nobody watched, and is reported as such.
    pub(super) fn replace(&self, namespace: Option<&str>, items: Vec<Decoded<K>>) {
        let handlers = self.shared.handlers.read();
        let mut changes = Vec::new();
        let broken = {
            let mut state = self.shared.state.write();
            let mut gone = state.directory.keys_in(namespace);
            state.directory.forget_broken(namespace);
            for item in items {
                gone.remove(&item.key());
                state.put(item, &mut changes, Origin::List);
            }
            for key in gone {
                state.delete(&key, &mut changes);
            }
            self.measure(&state);
            std::mem::take(&mut state.directory.newly_broken)
        };
        notify(&handlers, &changes);
        self.tell_broken(&broken);
    }

    pub(super) fn put(&self, item: Decoded<K>) {
        self.change(|state, changes| state.put(item, changes, Origin::Watch));
    }

    pub(super) fn delete(&self, item: Decoded<K>) {
        self.change(|state, changes| {
            let key = item.key();
            // The final state of the object is what handlers want to see.
            state.put(item, &mut Vec::new(), Origin::Watch);
            state.delete(&key, changes);
        });
    }

    fn change(&self, act: impl FnOnce(&mut Contents<K>, &mut Vec<Change<K>>)) {
        let handlers = self.shared.handlers.read();
        let mut changes = Vec::new();
        let broken = {
            let mut state = self.shared.state.write();
            act(&mut state, &mut changes);
            self.measure(&state);
            std::mem::take(&mut state.directory.newly_broken)
        };
        notify(&handlers, &changes);
        self.tell_broken(&broken);
    }

    fn measure(&self, state: &Contents<K>) {
        let directory = &state.directory;
        let (objects, broken) = (directory.len(), directory.broken.len());
        self.shared
            .metrics
            .cache_size(self.kind(), objects, broken, directory.bytes);
    }
}

impl<K: Resource> Decoded<K> {
    pub(super) fn key(&self) -> Key {
        match self {
            Decoded::Object { object, .. } => Key::of(object),
            Decoded::Broken(broken) => broken.key.clone(),
        }
    }

    pub(super) fn revision(&self) -> Revision {
        match self {
            Decoded::Object { object, .. } => Revision::of(object.meta()),
            Decoded::Broken(broken) => broken.revision,
        }
    }
}

fn notify<K>(handlers: &[Handler<K>], changes: &[Change<K>]) {
    for change in changes {
        for handler in handlers {
            handler(change);
        }
    }
}

impl<K: Object> StoreFacts for Store<K> {
    fn kind(&self) -> &Kind {
        Store::kind(self)
    }

    fn is_synced(&self) -> bool {
        Store::is_synced(self)
    }

    fn len(&self) -> usize {
        Store::len(self)
    }

    fn bytes(&self) -> u64 {
        self.shared.state.read().directory.bytes
    }

    fn problem(&self) -> Option<String> {
        self.shared.progress.problem()
    }

    fn version(&self, key: &Key) -> Option<(Revision, Option<String>)> {
        let state = self.shared.state.read();
        let object = state.get(key)?;
        Some((Revision::of(object.meta()), object.meta().uid.clone()))
    }

    fn seen(&self) -> Revision {
        self.revision()
    }
}
