//! Follows kinds for a loop that keeps its own account of them.
//!
//! The framework's cache does the work: it is what everything else here watches with, so no second way to decode a
//! pod is compiled, and what it holds is shared with the loop.

use kube::Client;
use stead::cache::Change;
use stead::metrics::Metrics;
use stead::{Cache, CacheSettings, Namespaces, Store, Typed, Watch};
use tokio::sync::mpsc;

/// Watches that end when this is dropped.
pub(crate) struct Watches {
    cache: Cache,
}

/// One kind, and what happens to it.
pub(crate) struct Followed<K> {
    pub store: Store<K>,
    pub changes: mpsc::UnboundedReceiver<Change<K>>,
}

impl Watches {
    pub fn new(client: Client) -> Self {
        let cache = Cache::new(client, Namespaces::All, CacheSettings::default(), Metrics::default());
        cache.start();
        Watches { cache }
    }

    /// From now on every change is told, beginning with what is there.
    pub fn follow<K: Typed>(&self, watch: Watch<K>) -> Followed<K> {
        Followed::of(self.cache.watch(watch))
    }
}

impl<K: Typed> Followed<K> {
    /// Follows a store that somebody else of this process fills.
    pub fn of(store: Store<K>) -> Self {
        let (tell, changes) = mpsc::unbounded_channel();
        store.subscribe(move |change| {
            // Nobody listens after the loop has ended, and then nobody needs to.
            let _ = tell.send(change.clone());
        });
        Followed { store, changes }
    }
}

impl Drop for Watches {
    fn drop(&mut self) {
        self.cache.end();
    }
}
