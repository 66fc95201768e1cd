//! How far a store has come: what its reflectors report and its readers wait for.
//!
//! None of it depends on the type of the objects.

use super::Revision;
use crate::kind::Kind;
use hashbrown::HashMap;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::watch;

pub(super) struct Progress {
    kind: Kind,
    /// The revision up to which everything was seen; readers may wait on it.
    seen: watch::Sender<Revision>,
    /// The same for each namespace that has a watch of its own: the slowest one counts.
    seen_in: Mutex<HashMap<Option<String>, Revision>>,
    /// Reflectors that have not delivered their first list.
    unsynced: AtomicUsize,
    started: watch::Sender<bool>,
    problem: Mutex<Option<String>>,
    served: Mutex<Served>,
}

/// Whether the cluster has a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Served {
    Yes,
    No,
}

impl Progress {
    pub fn new(kind: Kind) -> Self {
        Progress {
            kind,
            seen: watch::Sender::new(Revision::default()),
            seen_in: Mutex::default(),
            unsynced: AtomicUsize::new(1),
            started: watch::Sender::new(false),
            problem: Mutex::default(),
            served: Mutex::new(Served::No),
        }
    }

    pub fn kind(&self) -> &Kind {
        &self.kind
    }

    pub fn expect_parts(&self, parts: usize) {
        self.unsynced.store(parts, Ordering::SeqCst);
        if parts == 0 {
            self.started.send_replace(true);
        }
    }

    pub fn part_synced(&self) {
        if self.unsynced.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.started.send_replace(true);
        }
    }

    pub fn is_synced(&self) -> bool {
        *self.started.borrow()
    }

    pub async fn wait_for_sync(&self) {
        let mut started = self.started.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        let _ = started.wait_for(|started| *started).await;
    }

    pub fn revision(&self) -> Revision {
        *self.seen.borrow()
    }

    pub async fn wait_for(&self, revision: Revision) {
        let mut seen = self.seen.subscribe();
        let _ = seen.wait_for(|seen| *seen >= revision).await;
    }

    pub fn is_served(&self) -> bool {
        *self.served.lock() == Served::Yes
    }

    pub fn set_served(&self, served: Served) {
        *self.served.lock() = served;
    }

    pub fn problem(&self) -> Option<String> {
        self.problem.lock().clone()
    }

    pub fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock() = problem;
    }

    /// A watch has delivered everything up to a revision.
    pub fn advance(&self, namespace: Option<&str>, revision: Revision) {
        let mut parts = self.seen_in.lock();
        let part = parts.entry(namespace.map(str::to_owned)).or_default();
        *part = revision.max(*part);
        self.publish_seen(&parts);
    }

    /// The server's history went back (a restored backup): what was seen does not count any more.
    pub fn rewind(&self, namespace: Option<&str>, revision: Revision) {
        let mut parts = self.seen_in.lock();
        parts.insert(namespace.map(str::to_owned), revision);
        self.publish_seen(&parts);
    }

    fn publish_seen(&self, parts: &HashMap<Option<String>, Revision>) {
        let slowest = parts.values().min().copied().unwrap_or_default();
        self.seen.send_if_modified(|seen| {
            let changed = *seen != slowest;
            *seen = slowest;
            changed
        });
    }
}
