//! Where the objects of a store are, and by what they are found.
//!
//! The objects themselves are elsewhere, so none of this depends on their type.

use super::decode::Broken;
use super::store::Undecodable;
use crate::key::{Key, KeyRef};
use hashbrown::{HashMap, HashSet};
use kube::core::ObjectMeta;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Directory {
    places: HashMap<Key, Place>,
    /// Slots that objects have left.
    free: Vec<u32>,
    pub by_namespace: HashMap<Arc<str>, HashSet<Key>>,
    /// Objects by the UID of each of their owners.
    pub by_owner: HashMap<Box<str>, HashSet<Key>>,
    pub broken: HashMap<Key, Undecodable>,
    /// Keys that became unreadable and that nobody has been told of.
    pub newly_broken: Vec<Key>,
    pub bytes: u64,
}

/// The place of an object.
#[derive(Clone, Copy)]
pub(super) struct Slot(pub usize);

struct Place {
    slot: u32,
    bytes: u32,
}

impl Place {
    fn slot(&self) -> Slot {
        Slot(self.slot as usize)
    }
}

impl Directory {
    pub fn slot(&self, key: &Key) -> Option<Slot> {
        self.places.get(key).map(Place::slot)
    }

    pub fn slot_named(&self, key: &KeyRef<'_>) -> Option<Slot> {
        self.places.get(key).map(Place::slot)
    }

    pub fn slots_of(&self, keys: Option<&HashSet<Key>>) -> Vec<Slot> {
        keys.into_iter().flatten().filter_map(|key| self.slot(key)).collect()
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Key, Slot)> {
        self.places.iter().map(|(key, place)| (key, place.slot()))
    }

    /// The keys of everything, or of a namespace.
    pub fn keys_in(&self, namespace: Option<&str>) -> HashSet<Key> {
        match namespace {
            None => self.places.keys().cloned().collect(),
            Some(namespace) => self.by_namespace.get(namespace).cloned().unwrap_or_default(),
        }
    }

    /// Forgets what could not be read, of everything or of a namespace.
    pub fn forget_broken(&mut self, namespace: Option<&str>) {
        self.broken
            .retain(|key, _| namespace.is_some() && key.namespace() != namespace);
    }

    pub fn put_broken(&mut self, broken: Broken) {
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

    /// Notes an object that is not there yet, and says where to put it.
    pub fn insert(&mut self, key: Key, meta: &ObjectMeta, bytes: usize) -> Slot {
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
        for owner in meta.owner_references.iter().flatten() {
            self.by_owner
                .entry_ref(owner.uid.as_str())
                .or_default()
                .insert(key.clone());
        }
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        self.bytes += u64::from(bytes);
        // Every slot is taken or free, and 2^32 objects do not fit into memory.
        let next = u32::try_from(self.places.len()).unwrap_or(u32::MAX);
        let place = Place {
            slot: self.free.pop().unwrap_or(next),
            bytes,
        };
        let slot = place.slot();
        self.places.insert(key, place);
        slot
    }

    pub fn remove(&mut self, key: &Key, meta: &ObjectMeta) {
        let Some(place) = self.places.remove(key) else { return };
        self.free.push(place.slot);
        self.bytes = self.bytes.saturating_sub(u64::from(place.bytes));
        if let Some(namespace) = key.namespace()
            && let Some(keys) = self.by_namespace.get_mut(namespace)
        {
            keys.remove(key);
            if keys.is_empty() {
                self.by_namespace.remove(namespace);
            }
        }
        for owner in meta.owner_references.iter().flatten() {
            if let Some(keys) = self.by_owner.get_mut(owner.uid.as_str()) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_owner.remove(owner.uid.as_str());
                }
            }
        }
    }
}
