//! The consistency gate: no reconcile on a cache that has not seen our own last writes.
//!
//! An operator that creates a child and then reconciles from a cache without it creates a second one, or
//! counts one too few. After each reconcile its writes are remembered; the key waits until the cache
//! has them.

use crate::cache::{Cache, Revision, StoreFacts};
use crate::key::Key;
use crate::kind::Kind;
use crate::writer::{Verb, Written};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// After so long the cache is not waited for any more: the object may not match the cache's selector. A run
/// on an older cache is still safe, since every write carries what was read.
const PATIENCE: Duration = Duration::from_secs(10);

/// The writes that each key waits for.
pub struct Gate {
    cache: Cache,
    expected: Mutex<HashMap<Key, Expected>>,
}

struct Expected {
    writes: Vec<Expectation>,
    since: Instant,
}

struct Expectation {
    verb: Verb,
    kind: Kind,
    key: Key,
    revision: Revision,
    uid: Option<String>,
    stores: Vec<Arc<dyn StoreFacts>>,
}

impl Gate {
    /// A gate that asks a cache what it has seen.
    pub fn new(cache: Cache) -> Self {
        Gate {
            cache,
            expected: Mutex::default(),
        }
    }

    /// A reconcile of a key made these writes.
    pub fn expect(&self, key: &Key, written: &[Written], now: Instant) {
        let writes: Vec<_> = written.iter().filter_map(|write| self.expectation(write)).collect();
        let mut expected = self.expected.lock();
        match writes.is_empty() {
            true => {
                expected.remove(key);
            }
            false => {
                expected.insert(key.clone(), Expected { writes, since: now });
            }
        }
    }

    /// Nothing to wait for if the kind is not cached.
    fn expectation(&self, write: &Written) -> Option<Expectation> {
        let stores = self.cache.facts_of(&write.kind);
        let useful = write.verb == Verb::Delete || write.revision.is_known();
        (!stores.is_empty() && useful).then(|| Expectation {
            verb: write.verb,
            kind: write.kind.clone(),
            key: write.key.clone(),
            revision: write.revision,
            uid: write.uid.clone(),
            stores,
        })
    }

    /// What the cache has not seen yet of the last writes of a key's reconcile.
    pub fn behind(&self, key: &Key, now: Instant) -> Option<String> {
        if self.cache.in_doubt() {
            return Some("a server that was restored".to_owned());
        }
        let mut expected = self.expected.lock();
        let waiting = expected.get_mut(key)?;
        waiting.writes.retain(|write| !write.is_seen());
        // Only what is really missing: a key that comes back after a while has usually been seen long ago.
        if !waiting.writes.is_empty() && now.saturating_duration_since(waiting.since) > PATIENCE {
            tracing::warn!(%key, "the cache did not see our own writes for {PATIENCE:?}; going on without");
            expected.remove(key);
            return None;
        }
        match waiting.writes.first() {
            Some(write) => Some(format!("{} {}", write.kind, write.key)),
            None => {
                expected.remove(key);
                None
            }
        }
    }
}

impl Expectation {
    fn is_seen(&self) -> bool {
        let held = |store: &dyn StoreFacts| store.version(&self.key).is_some();
        // Stores of one kind may select different objects. What one of them holds, another that does not hold it was
        // not told of, and will not be until its next bookmark: only those that hold it can be behind.
        let chosen = self.verb != Verb::Delete && self.stores.iter().any(|store| held(&**store));
        let mut stores = self.stores.iter().filter(|store| !chosen || held(&***store));
        stores.all(|store| self.is_seen_by(&**store))
    }

    fn is_seen_by(&self, store: &dyn StoreFacts) -> bool {
        match (self.verb, store.version(&self.key)) {
            (Verb::Delete, None) => true,
            // A finalizer or a grace period keeps it; then the server answered with the marked object.
            (Verb::Delete, Some((revision, uid))) => {
                (self.uid.is_some() && uid != self.uid) || (self.revision.is_known() && revision >= self.revision)
            }
            (_, Some((revision, _))) => revision >= self.revision,
            // Not there: gone again, or not selected. Certain only once the store is past the write.
            (_, None) => store.seen() >= self.revision,
        }
    }
}
