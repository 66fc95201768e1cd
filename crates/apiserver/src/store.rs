//! The store: every object at every retained revision, and the log of changes between them.
//!
//! One global, strictly increasing revision orders all writes. The newest state is held in memory as
//! encoded bytes that readers and watchers share; an engine behind it makes writes durable. A read or a
//! watch never sees a write that its engine has not made durable yet.

mod engine;
mod error;
mod etcd;
mod journal;
mod key;
mod local;
mod open;
mod parsed;
mod record;
mod shared;
mod state;
mod table;
mod threaded;
mod view;
mod watch;
mod watchers;

#[cfg(test)]
mod tests;

pub use error::StoreError;
pub use etcd::{BadAddress, EtcdAddress};
pub use key::{Key, Prefix};
pub use open::{Holder, OpenError};
pub use record::{Draft, Metadata, Record};
pub use state::History;
pub use view::View;
pub use watch::Watch;

use crate::environment::Clock;
use engine::Engine;
use shared::Shared;
use std::path::Path;
use std::sync::Arc;

/// A global revision: the number behind `resourceVersion`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl std::fmt::Display for Revision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change of one object. All watchers of it share one value.
#[derive(Debug)]
pub struct Event {
    pub kind: EventKind,
    /// The object after the change; for a delete its final state, with the revision of the delete.
    pub record: Arc<Record>,
    /// The object before the change; `None` for a create.
    pub previous: Option<Arc<Record>>,
}

/// A change that a client asks for. `expect` is the revision that the object must still have.
#[derive(Debug, Clone)]
pub enum Write {
    Create {
        key: Key,
        draft: Draft,
    },
    Update {
        key: Key,
        draft: Draft,
        expect: Revision,
    },
    /// The draft is the final state, which watchers see in the DELETED event.
    Delete {
        key: Key,
        draft: Draft,
        expect: Revision,
    },
}

/// How fresh a list has to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListAt {
    /// Everything that was acknowledged before the call.
    Latest,
    /// Whatever is at hand.
    Any,
    /// Exactly this revision; `Compacted` where it is no longer retained.
    Exact(Revision),
    /// This revision or a newer one.
    NotOlderThan(Revision),
}

/// Which part of a list is wanted; the default is all of it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Window<'a> {
    /// Begin behind this key, in the order of the list.
    pub after: Option<&'a Key>,
    pub limit: Option<usize>,
}

/// A part of a list, consistent at one revision.
#[derive(Debug)]
pub struct Page {
    pub records: Vec<Arc<Record>>,
    /// The revision that the whole list was read at.
    pub revision: Revision,
    /// More objects follow the last one; ask for them with `ListAt::Exact(revision)` after it.
    pub more: bool,
}

/// How many keys are visited before the lock is given back, so that a long list holds up no write.
const KEYS_PER_LOCK: usize = 2_000;

/// A handle to the store; clones share it.
#[derive(Clone)]
pub struct Store {
    shared: Arc<Shared>,
    engine: Arc<dyn Engine>,
}

impl Store {
    /// A store that lives as long as the process.
    pub fn in_memory(clock: Arc<dyn Clock>, history: History) -> Store {
        let shared = Arc::new(Shared::empty());
        let engine = Arc::new(local::Inline::new(shared.clone(), clock, history));
        Store { shared, engine }
    }

    /// A durable store in a directory, which is made if it is missing. A write is on the disk before it is
    /// answered. One process at a time can have it open.
    pub fn open(directory: &Path, clock: Arc<dyn Clock>, history: History) -> Result<Store, OpenError> {
        Store::on_journal(journal::Redb::open(directory)?, directory, clock, history)
    }

    /// A store on a real etcd, which makes writes durable on a majority of its members.
    pub async fn connect(address: &EtcdAddress, clock: Arc<dyn Clock>, history: History) -> Result<Store, OpenError> {
        let (shared, engine) = etcd::Etcd::connect(address, clock, history).await?;
        let engine = Arc::new(engine);
        Ok(Store { shared, engine })
    }

    fn on_journal(
        journal: journal::Redb,
        directory: &Path,
        clock: Arc<dyn Clock>,
        history: History,
    ) -> Result<Store, OpenError> {
        let parsed = Arc::default();
        let state = journal.load(&parsed, clock.now(), directory)?;
        let shared = Arc::new(Shared::new(state, parsed));
        let committer = local::Committer::new(shared.clone(), journal, clock, history);
        let engine = threaded::Threaded::start(committer).map_err(|source| OpenError::io(directory, source))?;
        let engine = Arc::new(engine);
        Ok(Store { shared, engine })
    }

    /// The object as it is now: at least as new as every write acknowledged before the call.
    pub async fn get(&self, key: &Key) -> Result<Option<Arc<Record>>, StoreError> {
        self.engine.catch_up().await?;
        Ok(self.get_cached(key))
    }

    /// The object as this process knows it; only with a remote engine can that be older than `get`.
    pub fn get_cached(&self, key: &Key) -> Option<Arc<Record>> {
        self.shared.state.read().latest(key).cloned()
    }

    /// Objects of a prefix in the order of their keys, consistent at one revision.
    pub async fn list(&self, prefix: &Prefix, at: ListAt, window: Window<'_>) -> Result<Page, StoreError> {
        if at == ListAt::Latest {
            self.engine.catch_up().await?;
        }
        let current = self.shared.state.read().revision();
        let revision = match at {
            ListAt::Latest | ListAt::Any => current,
            ListAt::NotOlderThan(wanted) | ListAt::Exact(wanted) if wanted > current => {
                return Err(StoreError::FutureRevision { current });
            }
            ListAt::NotOlderThan(_) => current,
            ListAt::Exact(wanted) => wanted,
        };
        let limit = window.limit.unwrap_or(usize::MAX);
        let mut page = Page {
            records: Vec::new(),
            revision,
            more: false,
        };
        self.visit(prefix, revision, window.after, |record| {
            if page.records.len() == limit {
                page.more = true;
                return Visit::Stop;
            }
            page.records.push(record.clone());
            Visit::Continue
        })?;
        Ok(page)
    }

    /// How many objects of the prefix lie behind the key at that revision: `remainingItemCount`.
    ///
    /// It visits them all, which is why a page does not carry it unasked.
    pub fn count_after(&self, prefix: &Prefix, revision: Revision, after: Option<&Key>) -> Result<usize, StoreError> {
        let mut count = 0;
        self.visit(prefix, revision, after, |_| {
            count += 1;
            Visit::Continue
        })?;
        Ok(count)
    }

    /// Makes a change durable and visible, and answers with the object as committed.
    pub async fn write(&self, write: Write) -> Result<Arc<Record>, StoreError> {
        self.engine.write(write).await
    }

    /// Changes of a prefix after `from` (after now, where it is `None`), in one global order.
    pub fn watch(&self, prefix: &Prefix, from: Option<Revision>) -> Result<Watch, StoreError> {
        Watch::open(self.shared.clone(), prefix.clone(), from)
    }

    /// The revision of the newest change that readers see.
    pub fn revision(&self) -> Revision {
        self.shared.state.read().revision()
    }

    /// The oldest revision that a list can be read at or a watch can start from.
    pub fn floor(&self) -> Revision {
        self.shared.state.read().floor()
    }

    /// Waits until readers see that revision. The caller bounds the wait.
    pub async fn reached(&self, revision: Revision) {
        self.shared.reached(revision).await;
    }

    /// How many objects each resource has.
    pub fn counts(&self) -> Vec<(String, usize)> {
        self.shared.state.read().counts()
    }

    /// Walks the objects of a prefix at a revision, giving the lock back now and then.
    fn visit(
        &self,
        prefix: &Prefix,
        revision: Revision,
        after: Option<&Key>,
        mut visitor: impl FnMut(&Arc<Record>) -> Visit,
    ) -> Result<(), StoreError> {
        let mut after = after.map(Key::path);
        loop {
            let state = self.shared.state.read();
            // Checked under each lock: compaction may have passed the revision since the last one.
            if revision < state.floor() {
                return Err(StoreError::Compacted { floor: state.floor() });
            }
            match state.walk(prefix, revision, after.as_deref(), KEYS_PER_LOCK, &mut visitor) {
                Some(path) => after = Some(path),
                None => return Ok(()),
            }
        }
    }
}

/// Whether a walk goes on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Continue,
    Stop,
}
