//! The work queue: which key is reconciled next.
//!
//! It deduplicates, never hands out a key that is still being worked on, is first-in-first-out within a
//! class, ages classes so that nothing starves, and backs off per key. The rules live in [`Ledger`], which
//! is a plain value: time comes in as a parameter, so tests run hours in microseconds. [`Queue`] puts it
//! behind a lock and waits.

mod ledger;
mod settings;
mod wake;

pub use ledger::{Job, Ledger, Next, Verdict};
pub use settings::{Backoff, Class, RateLimit, Settings};
pub use wake::Wake;

use crate::key::Key;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// A shared handle to a work queue.
#[derive(Clone)]
pub struct Queue {
    shared: Arc<Shared>,
}

struct Shared {
    ledger: Mutex<Ledger>,
    /// Told when the answer of [`Ledger::next`] may have changed.
    changed: Notify,
    /// Given to workers that wait for the queue to close.
    closed: tokio_util::sync::CancellationToken,
}

impl Queue {
    /// An empty queue.
    pub fn new(settings: Settings) -> Self {
        Queue {
            shared: Arc::new(Shared {
                ledger: Mutex::new(Ledger::new(settings)),
                changed: Notify::new(),
                closed: tokio_util::sync::CancellationToken::new(),
            }),
        }
    }

    /// Something happened that concerns the key.
    pub fn add(&self, key: Key, class: Class, wake: Wake) {
        self.shared.ledger.lock().add(key, class, wake, Instant::now());
        self.shared.changed.notify_one();
    }

    /// Look at the key after a while. The earliest wish wins.
    pub fn add_after(&self, key: Key, delay: Duration, wake: Wake) {
        let now = Instant::now();
        self.shared.ledger.lock().add_after(key, delay, wake, now);
        self.shared.changed.notify_one();
    }

    /// Waits for the next key; none once the queue is closed.
    pub async fn next(&self) -> Option<Job> {
        loop {
            if self.shared.closed.is_cancelled() {
                return None;
            }
            let changed = self.shared.changed.notified();
            let next = self.shared.ledger.lock().next(Instant::now());
            let until = match next {
                Next::Ready(job) => return Some(job),
                Next::At(instant) => Some(instant),
                Next::Nothing => None,
            };
            tokio::select! {
                () = changed => {}
                () = self.shared.closed.cancelled() => return None,
                () = sleep_until(until) => {}
            }
        }
    }

    /// The key's work ended.
    pub fn done(&self, key: &Key, verdict: Verdict) {
        self.shared.ledger.lock().done(key, verdict, Instant::now());
        self.shared.changed.notify_one();
    }

    /// The key is not run after all; see [`Ledger::defer`].
    pub fn defer(&self, job: Job, delay: Duration) {
        self.shared.ledger.lock().defer(job, delay, Instant::now());
        self.shared.changed.notify_one();
    }

    /// Hands out nothing any more. What runs may finish.
    pub fn close(&self) {
        self.shared.closed.cancel();
    }

    /// Looks into the ledger: for metrics and the admin endpoint.
    pub fn inspect<T>(&self, look: impl FnOnce(&Ledger) -> T) -> T {
        look(&self.shared.ledger.lock())
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
