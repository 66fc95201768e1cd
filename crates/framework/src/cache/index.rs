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
    pub by_value: HashMap<String, HashSet<Key>>,
}

impl<K> Table<K> {
    pub fn insert(&mut self, key: &Key, object: &K) {
        for value in (self.extract)(object) {
            self.by_value.entry(value).or_default().insert(key.clone());
        }
    }

    pub fn remove(&mut self, key: &Key, object: &K) {
        for value in (self.extract)(object) {
            if let Some(keys) = self.by_value.get_mut(&value) {
                keys.remove(key);
                if keys.is_empty() {
                    self.by_value.remove(&value);
                }
            }
        }
    }
}
