//! What a store holds: the objects, and the directory through which they are found.

use super::Revision;
use super::decode::Decoded;
use super::directory::{Directory, Slot};
use super::index::Table;
use super::store::Change;
use crate::key::Key;
use crate::kind::Object;
use hashbrown::HashSet;
use std::sync::Arc;

pub(super) struct Contents<K> {
    pub directory: Directory,
    /// The objects, each in the slot that the directory gave it.
    objects: Vec<Option<Arc<K>>>,
    pub tables: Vec<Table<K>>,
}

impl<K> Default for Contents<K> {
    fn default() -> Self {
        Contents {
            directory: Directory::default(),
            objects: Vec::new(),
            tables: Vec::new(),
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

impl Origin {
    fn repeats(self, was: Revision, is: Revision) -> bool {
        is.is_known()
            && match self {
                Origin::List => is == was,
                Origin::Watch => is <= was,
            }
    }
}

impl<K> Contents<K> {
    pub fn at(&self, slot: Option<Slot>) -> Option<&Arc<K>> {
        self.objects.get(slot?.0)?.as_ref()
    }

    pub fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.at(self.directory.slot(key))
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.iter().flatten()
    }

    pub fn collect(&self, keys: Option<&HashSet<Key>>) -> Vec<Arc<K>> {
        let slots = self.directory.slots_of(keys);
        slots
            .into_iter()
            .filter_map(|slot| self.at(Some(slot)).cloned())
            .collect()
    }
}

impl<K: Object> Contents<K> {
    pub fn put(&mut self, item: Decoded<K>, changes: &mut Vec<Change<K>>, origin: Origin) {
        let (object, bytes) = match item {
            Decoded::Object { object, bytes } => (object, bytes),
            // The last readable state stays out of sight: acting on a spec that the user has replaced is worse
            // than not acting.
            Decoded::Broken(broken) => {
                self.take(&broken.key);
                return self.directory.put_broken(broken);
            }
        };
        let key = Key::of(&object);
        self.directory.broken.remove(&key);
        let new = Arc::new(object);
        let Some(old) = self.get(&key).cloned() else {
            changes.push(match origin {
                Origin::List => Change::Listed(new.clone()),
                Origin::Watch => Change::Created(new.clone()),
            });
            return self.insert(key, new, bytes);
        };
        let same_object = old.meta().uid == new.meta().uid;
        if same_object && origin.repeats(Revision::of(old.meta()), Revision::of(new.meta())) {
            return;
        }
        self.take(&key);
        match same_object {
            true => changes.push(Change::Updated { old, new: new.clone() }),
            // Deleted and created again between two looks: the old one is gone, whoever waits for that must hear
            // of it.
            false => {
                changes.push(Change::Deleted(old));
                changes.push(Change::Created(new.clone()));
            }
        }
        self.insert(key, new, bytes);
    }

    pub fn delete(&mut self, key: &Key, changes: &mut Vec<Change<K>>) {
        self.directory.broken.remove(key);
        changes.extend(self.take(key).map(Change::Deleted));
    }

    fn insert(&mut self, key: Key, object: Arc<K>, bytes: usize) {
        for table in &mut self.tables {
            table.insert(&key, &object);
        }
        let slot = self.directory.insert(key, object.meta(), bytes);
        if self.objects.len() <= slot.0 {
            self.objects.resize(slot.0 + 1, None);
        }
        self.objects[slot.0] = Some(object);
    }

    fn take(&mut self, key: &Key) -> Option<Arc<K>> {
        let slot = self.directory.slot(key)?;
        let object = self.objects.get_mut(slot.0)?.take()?;
        self.directory.remove(key, object.meta());
        for table in &mut self.tables {
            table.remove(key, &object);
        }
        Some(object)
    }
}
