//! What the handles, the watchers and the engine of one store share.

use super::parsed::Parsed;
use super::state::{History, State};
use super::{Event, Revision};
use jiff::Timestamp;
use parking_lot::RwLock;
use std::sync::Arc;
use tokio::sync::watch;

pub(super) struct Shared {
    pub(super) state: RwLock<State>,
    /// Tells those who wait for a revision.
    revision: watch::Sender<Revision>,
    pub(super) parsed: Arc<Parsed>,
}

impl Shared {
    pub(super) fn empty() -> Shared {
        Shared::new(State::default(), Arc::default())
    }

    pub(super) fn new(state: State, parsed: Arc<Parsed>) -> Shared {
        let revision = watch::Sender::new(state.revision());
        Shared {
            state: RwLock::new(state),
            revision,
            parsed,
        }
    }

    /// Shows committed changes to readers and watchers. The answer is the revisions that are no longer
    /// needed because the history moved on.
    pub(super) fn publish(&self, events: Vec<Arc<Event>>, history: &History, now: Timestamp) -> Vec<Revision> {
        let mut wake = Vec::new();
        let mut state = self.state.write();
        for event in events {
            state.apply(event, now, &mut wake);
        }
        let retired = state.forget(history, now);
        let revision = state.revision();
        drop(state);
        // Outside the lock: whoever is woken takes it at once.
        for slot in wake {
            slot.waker.wake();
        }
        self.revision.send_replace(revision);
        retired
    }

    /// Notes that the state is as new as a revision that changed nothing here.
    pub(super) fn advance(&self, revision: Revision) {
        let mut state = self.state.write();
        state.advance(revision);
        let revision = state.revision();
        drop(state);
        self.revision.send_replace(revision);
    }

    /// Waits until readers see that revision.
    pub(super) async fn reached(&self, revision: Revision) {
        let mut seen = self.revision.subscribe();
        // The sender lives in `self`, so the channel cannot be closed here.
        let _ = seen.wait_for(|current| *current >= revision).await;
    }
}
