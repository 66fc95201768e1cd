//! What all watches of a cache know together about a server whose history went back.
//!
//! A server that is restored from a backup forgets objects, and each watch finds that out in its own time. Between
//! the first and the last of them the cache is a mixture of two histories: a root that is gone beside children that
//! are there. Nothing may be reconciled from such a mixture, so the first watch that notices tells all others, and
//! until each has looked again the cache is in doubt.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// After so long nobody waits for the last watch any more: it may be of a kind that is not served.
const PATIENCE: Duration = Duration::from_secs(30);

/// A shared handle; one watch is one part of it.
#[derive(Clone)]
pub(super) struct Upheavals {
    shared: Arc<Shared>,
}

struct Shared {
    /// How often the server's history went back.
    count: watch::Sender<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The upheaval after which each part has looked again.
    seen: HashMap<usize, u64>,
    parts: usize,
    last: Option<Instant>,
}

impl Default for Upheavals {
    fn default() -> Self {
        Upheavals {
            shared: Arc::new(Shared {
                count: watch::Sender::new(0),
                state: Mutex::default(),
            }),
        }
    }
}

impl Upheavals {
    /// A number for one more watch.
    pub fn join(&self) -> usize {
        let mut state = self.shared.state.lock();
        state.parts += 1;
        let part = state.parts;
        let now = self.count();
        state.seen.insert(part, now);
        part
    }

    /// How often history went back so far.
    pub fn count(&self) -> u64 {
        *self.shared.count.borrow()
    }

    /// A part found that the server is behind what it has seen, and holds a list of the new history.
    pub fn went_back(&self, part: usize) {
        let mut state = self.shared.state.lock();
        let now = self.count();
        // Somebody else noticed the same thing before.
        let known = state.seen.get(&part).is_some_and(|seen| *seen < now);
        let count = if known { now } else { now + 1 };
        state.seen.insert(part, count);
        if !known {
            state.last = Some(Instant::now());
            self.shared.count.send_replace(count);
        }
    }

    /// A part has looked at the server, and began to do so after this many upheavals.
    pub fn confirmed(&self, part: usize, count: u64) {
        let mut state = self.shared.state.lock();
        let seen = state.seen.entry(part).or_default();
        *seen = count.max(*seen);
    }

    /// Waits until history went back and this part has not looked since.
    pub async fn concerns(&self, part: usize) {
        let mut count = self.shared.count.subscribe();
        let behind = |now: &u64| {
            let state = self.shared.state.lock();
            state.seen.get(&part).is_some_and(|seen| seen < now)
        };
        // The sender lives in `self`, so waiting cannot fail.
        let _ = count.wait_for(behind).await;
    }

    /// Whether the cache may be a mixture of two histories.
    pub fn in_doubt(&self) -> bool {
        let state = self.shared.state.lock();
        let now = self.count();
        let recent = state.last.is_some_and(|last| last.elapsed() < PATIENCE);
        recent && state.seen.values().any(|seen| *seen < now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn f12_the_first_watch_that_notices_tells_the_others_and_doubt_ends_with_the_last() {
        let all = Upheavals::default();
        let (roots, children) = (all.join(), all.join());
        assert!(!all.in_doubt());
        all.went_back(children);
        assert!(all.in_doubt());
        all.concerns(roots).await;
        // The other finds the same thing; that is no second upheaval.
        all.went_back(roots);
        assert_eq!(all.count(), 1);
        assert!(!all.in_doubt());
    }

    #[test]
    fn a_look_that_began_before_the_upheaval_proves_nothing() {
        let all = Upheavals::default();
        let (one, other) = (all.join(), all.join());
        let before = all.count();
        all.went_back(other);
        all.confirmed(one, before);
        assert!(all.in_doubt());
        all.confirmed(one, all.count());
        assert!(!all.in_doubt());
    }
}
