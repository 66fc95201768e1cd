//! What a store holds: the objects, and the tables through which they are found.

use super::Revision;
use super::decode::{Broken, Decoded};
use super::index::Table;
use super::store::{Change, Undecodable};
use crate::key::Key;
use crate::kind::Object;
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;

pub(super) struct Contents<K> {
    pub objects: HashMap<Key, Held<K>>,
    pub by_namespace: HashMap<Arc<str>, HashSet<Key>>,
    /// Objects by the UID of each of their owners.
    pub by_owner: HashMap<Box<str>, HashSet<Key>>,
    pub tables: Vec<Table<K>>,
    pub broken: HashMap<Key, Undecodable>,
    /// Keys that became unreadable and that nobody has been told of.
    pub newly_broken: Vec<Key>,
    pub bytes: u64,
}

pub(super) struct Held<K> {
    pub object: Arc<K>,
    pub bytes: u32,
}

impl<K> Default for Contents<K> {
    fn default() -> Self {
        Contents {
            objects: HashMap::new(),
            by_namespace: HashMap::new(),
            by_owner: HashMap::new(),
            tables: Vec::new(),
            broken: HashMap::new(),
            newly_broken: Vec::new(),
            bytes: 0,
        }
    }
}

/// Where an object came from decides whether an older revision is a duplicate or the truth.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Origin {
    /// A consistent list is the truth, even if it is older than what we had.
    List,
    /// A watch may repeat itself after a reconnect.
    Watch,
}

impl<K: Object> Contents<K> {
    pub fn collect(&self, keys: Option<&HashSet<Key>>) -> Vec<Arc<K>> {
        let keys = keys.into_iter().flatten();
        keys.filter_map(|key| self.objects.get(key))
            .map(|held| held.object.clone())
            .collect()
    }

    pub fn put(&mut self, item: Decoded<K>, changes: &mut Vec<Change<K>>, origin: Origin) {
        let (object, bytes) = match item {
            Decoded::Object { object, bytes } => (object, bytes),
            Decoded::Broken(broken) => return self.put_broken(broken),
        };
        let key = Key::of(&object);
        self.broken.remove(&key);
        let new = Arc::new(object);
        let before = self.objects.get(&key).map(|held| held.object.clone());
        if let Some(old) = &before {
            let same_object = old.meta().uid == new.meta().uid;
            let (was, is) = (Revision::of(old.meta()), Revision::of(new.meta()));
            let repeated = match origin {
                Origin::List => is == was && is.is_known(),
                Origin::Watch => is <= was && is.is_known(),
            };
            if same_object && repeated {
                return;
            }
            self.take(&key);
            match same_object {
                true => changes.push(Change::Updated {
                    old: old.clone(),
                    new: new.clone(),
                }),
                // Deleted and created again between two looks: the old one is gone, whoever waits for that
                // must hear of it.
                false => {
                    changes.push(Change::Deleted(old.clone()));
                    changes.push(Change::Created(new.clone()));
                }
            }
        } else {
            changes.push(match origin {
                Origin::List => Change::Listed(new.clone()),
                Origin::Watch => Change::Created(new.clone()),
            });
        }
        self.insert(key, new, bytes);
    }

    fn put_broken(&mut self, broken: Broken) {
        // The last readable state stays out of sight: acting on a spec that the user has replaced is worse
        // than not acting.
        self.take(&broken.key);
        self.newly_broken.push(broken.key.clone());
        self.broken.insert(
            broken.key,
            Undecodable {
                uid: broken.uid,
                revision: broken.revision,
                message: broken.message,
            },
        );
    }

    pub fn delete(&mut self, key: &Key, changes: &mut Vec<Change<K>>) {
        self.broken.remove(key);
        if let Some(held) = self.take(key) {
            changes.push(Change::Deleted(held.object));
        }
    }

    fn insert(&mut self, key: Key, object: Arc<K>, bytes: usize) {
        if let Some(namespace) = key.namespace() {
            match self.by_namespace.get_mut(namespace) {
                Some(keys) => {
                    keys.insert(key.clone());
                }
                None => {
                    self.by_namespace
                        .insert(namespace.into(), HashSet::from_iter([key.clone()]));
                }
            }
        }
        for owner in object.meta().owner_references.iter().flatten() {
            self.by_owner
                .entry_ref(owner.uid.as_str())
                .or_default()
                .insert(key.clone());
        }
        for table in &mut self.tables {
            table.insert(&key, &object);
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.bytes += u64::from(bytes);
        self.objects.insert(key, Held { object, bytes });
    }

    fn take(&mut self, key: &Key) -> Option<Held<K>> {
        let held = self.objects.remove(key)?;
        self.bytes = self.bytes.saturating_sub(u64::from(held.bytes));
        if let Some(namespace) = key.namespace()
            && let Some(keys) = self.by_namespace.get_mut(namespace)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
        for owner in held.object.meta().owner_references.iter().flatten() {
            if let Some(keys) = self.by_owner.get_mut(owner.uid.as_str()) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_owner.remove(owner.uid.as_str());
                }
            }
        }
        for table in &mut self.tables {
            table.remove(key, &held.object);
        }
        Some(held)
    }
}
