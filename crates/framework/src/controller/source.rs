//! Where a controller's keys come from.

use super::owned::{Owned, Whole};
use super::{Connect, Connected};
use crate::apply::ROOT_ANNOTATION;
use crate::cache::{Change, Watch};
use crate::key::Key;
use crate::kind::{Kind, Typed};
use crate::queue::{Class, Queue, Wake};
use kube::core::ObjectMeta;
use serde::Serialize;
use std::sync::Arc;

/// A kind to watch, with a selection and a filter on events.
///
/// ```
/// use k8s_openapi::api::core::v1::Pod;
/// use stead::{Source, Watch, predicates};
/// let source = Source::<Pod>::from(Watch::all().labels("app=web")).when(predicates::generation_changed());
/// ```
pub struct Source<K> {
    watch: Watch<K>,
    predicate: Option<Predicate<K>>,
    whole: Whole,
    life: Life,
}

/// How long a child stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Until it leaves the plan.
    Pruned,
    /// As long as its root.
    Permanent,
}

type Predicate<K> = Arc<dyn Fn(&Change<K>) -> bool + Send + Sync>;

impl<K> Source<K> {
    /// Every object and every event of the kind.
    pub fn all() -> Self {
        Source {
            watch: Watch::all(),
            predicate: None,
            whole: Whole::Everything,
            life: Life::Pruned,
        }
    }

    /// Children of this kind stay for as long as their root: they are never pruned, and no right to delete them is
    /// asked for.
    pub fn permanent(mut self) -> Self {
        self.life = Life::Permanent;
        self
    }

    pub(super) fn life(&self) -> Life {
        self.life
    }

    /// A kind that the cluster may not have: then there are no objects of it.
    pub fn optional(mut self) -> Self {
        self.watch = self.watch.optional();
        self
    }

    /// Only events that a function accepts. It sees creations, updates with both states, and deletions.
    pub fn when(mut self, predicate: impl Fn(&Change<K>) -> bool + Send + Sync + 'static) -> Self {
        self.predicate = Some(Arc::new(predicate));
        self
    }
}

impl<K> From<Watch<K>> for Source<K> {
    fn from(watch: Watch<K>) -> Self {
        Source {
            watch,
            predicate: None,
            whole: Whole::Selection,
            life: Life::Pruned,
        }
    }
}

/// Filters on events that many controllers want.
pub mod predicates {
    use crate::cache::Change;
    use kube::Resource;

    /// Everything but updates that leave the spec as it was: status changes, for example. Kinds without a
    /// generation pass.
    pub fn generation_changed<K: Resource>() -> impl Fn(&Change<K>) -> bool + Send + Sync + 'static {
        |change| match change {
            Change::Updated { old, new } => {
                let (old, new) = (old.meta(), new.meta());
                new.generation.is_none()
                    || old.generation != new.generation
                    || old.deletion_timestamp != new.deletion_timestamp
            }
            Change::Listed(_) | Change::Created(_) | Change::Deleted(_) => true,
        }
    }
}

impl<K: Typed> Source<K> {
    pub(super) fn into_roots(self) -> Connect {
        let Source { watch, predicate, .. } = self;
        Box::new(move |cache, queue| {
            let store = cache.watch(watch);
            let (queue, connected) = (queue.clone(), queue.clone());
            let kind = store.kind().clone();
            store.subscribe(move |change| {
                if predicate.as_ref().is_none_or(|accepts| accepts(change)) {
                    let (class, wake) = root_wake(&kind, change);
                    queue.add(Key::of(&**change.object()), class, wake);
                }
            });
            let (unreadable, of) = (connected.clone(), store.kind().to_string());
            store.subscribe_broken(move |key| {
                // It is run, and fails with what is wrong: that is how anybody hears of it.
                let (kind, key) = (of.clone(), key.clone());
                unreadable.add(key.clone(), Class::Normal, Wake::Updated { kind, key });
            });
            let (keys, broken) = (store.clone(), store);
            Connected {
                owned: None,
                keys: Some(Arc::new(move || {
                    let mut all = Vec::with_capacity(keys.len());
                    keys.for_each(|key, _| all.push(key.clone()));
                    all
                })),
                undecodable: Some(Arc::new(move |key| broken.undecodable(key))),
            }
        })
    }

    pub(super) fn into_mapped(self, map: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static) -> Connect {
        let Source { watch, predicate, .. } = self;
        Box::new(move |cache, queue| {
            let store = cache.watch(watch);
            forward(&store, queue, predicate, move |object| map(object));
            Connected {
                owned: None,
                keys: None,
                undecodable: None,
            }
        })
    }
}

impl<K: Typed + Serialize> Source<K> {
    pub(super) fn into_owned(self, root: Option<Kind>) -> Connect {
        let Source {
            watch,
            predicate,
            whole,
            life,
        } = self;
        Box::new(move |cache, queue| {
            let store = cache.watch(watch);
            let owned = Owned::new(store.clone(), whole, life);
            forward(&store, queue, predicate, move |object: &K| {
                root.as_ref()
                    .and_then(|root| root_of(object.meta(), root))
                    .into_iter()
                    .collect()
            });
            Connected {
                owned: Some(Arc::new(owned)),
                keys: None,
                undecodable: None,
            }
        })
    }
}

fn forward<K: Typed>(
    store: &crate::cache::Store<K>,
    queue: &Queue,
    predicate: Option<Predicate<K>>,
    map: impl Fn(&K) -> Vec<Key> + Send + Sync + 'static,
) {
    let queue = queue.clone();
    let kind = store.kind().clone();
    store.subscribe(move |change| {
        if predicate.as_ref().is_some_and(|accepts| !accepts(change)) {
            return;
        }
        let mut keys = map(change.object());
        // An object that changed hands concerns its former root too.
        if let Change::Updated { old, .. } = change {
            for key in map(old) {
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        for key in keys {
            let (class, wake) = wake(&kind, change);
            queue.add(key, class, wake);
        }
    });
}

/// The root that an object belongs to.
fn root_of(meta: &ObjectMeta, root: &Kind) -> Option<Key> {
    let mut owners = meta.owner_references.iter().flatten();
    let owner = owners.find(|owner| owner.controller == Some(true) && root.is(&owner.api_version, &owner.kind));
    if let Some(owner) = owner {
        let namespace = match root.scope {
            crate::kind::Scope::Namespaced => meta.namespace.as_deref(),
            crate::kind::Scope::Cluster => None,
        };
        return Some(Key::new(namespace, &owner.name));
    }
    let text = meta.annotations.as_ref()?.get(ROOT_ANNOTATION)?;
    Some(match text.split_once('/') {
        Some((namespace, name)) => Key::namespaced(namespace, name),
        None => Key::cluster(text),
    })
}

fn wake<K: Typed>(kind: &Kind, change: &Change<K>) -> (Class, Wake) {
    let (kind, key) = (kind.to_string(), Key::of(&**change.object()));
    match change {
        Change::Listed(_) => (Class::Low, Wake::Listed { kind, key }),
        Change::Created(_) => (Class::Normal, Wake::Created { kind, key }),
        Change::Updated { .. } => (Class::Normal, Wake::Updated { kind, key }),
        Change::Deleted(_) => (Class::Normal, Wake::Deleted { kind, key }),
    }
}

/// A person who changed a root waits for the effect.
fn root_wake<K: Typed>(kind: &Kind, change: &Change<K>) -> (Class, Wake) {
    let (class, plain) = wake(kind, change);
    match change {
        Change::Listed(_) => (class, plain),
        Change::Created(_) | Change::Deleted(_) => (Class::High, plain),
        Change::Updated { old, new } => {
            let (old, new) = (old.meta(), new.meta());
            let deleted = old.deletion_timestamp.is_none() && new.deletion_timestamp.is_some();
            match (old.generation != new.generation || deleted, new.generation) {
                (true, generation) => {
                    let generation = generation.unwrap_or_default();
                    (Class::High, Wake::SpecChanged { generation })
                }
                (false, _) => (class, plain),
            }
        }
    }
}
