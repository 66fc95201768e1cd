//! Indexes: objects by a value that a function computes from them.
//!
//! An index costs a little on each change and makes a lookup independent of the number of objects.

use super::Store;
use crate::key::Key;
use hashbrown::{HashMap, HashSet};
use std::sync::Arc;

/// A handle to one index of a store; only a handle that the store gave out can be used with it.
pub struct Index<K> {
    pub(super) store: Store<K>,
    pub(super) number: usize,
}

impl<K> Clone for Index<K> {
    fn clone(&self) -> Self {
        Index {
            store: self.store.clone(),
            number: self.number,
        }
    }
}

/// A function from an object to the values under which it is found.
pub(super) type Extract<K> = Arc<dyn Fn(&K) -> Vec<String> + Send + Sync>;

/// The table behind an index.
pub(super) struct Table<K> {
    pub extract: Extract<K>,
    pub values: Values,
}

impl<K> Table<K> {
    pub fn insert(&mut self, key: &Key, object: &K) {
        self.values.insert(key, (self.extract)(object));
    }

    pub fn remove(&mut self, key: &Key, object: &K) {
        self.values.remove(key, (self.extract)(object));
    }
}

/// Keys, by the values under which they are found.
#[derive(Default)]
pub(super) struct Values(HashMap<String, HashSet<Key>>);

impl Values {
    pub fn get(&self, value: &str) -> Option<&HashSet<Key>> {
        self.0.get(value)
    }

    fn insert(&mut self, key: &Key, values: Vec<String>) {
        for value in values {
            self.0.entry(value).or_default().insert(key.clone());
        }
    }

    fn remove(&mut self, key: &Key, values: Vec<String>) {
        for value in values {
            if let Some(keys) = self.0.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.0.remove(&value);
                }
            }
        }
    }
}
