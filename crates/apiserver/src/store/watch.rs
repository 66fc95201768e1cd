//! A watch: the changes of a prefix from a revision on.
//!
//! A watcher reads from the shared log at its own pace. It buffers a handful of changes, never more; when
//! it is so slow that the log no longer holds what it has not read, it is ended with `Compacted`.

use super::key::{Prefix, Scope};
use super::shared::Shared;
use super::watchers::Slot;
use super::{Event, Revision, StoreError};
use futures::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// How many changes are taken from the log at once.
const READ_AHEAD: usize = 64;

/// How many changes of others are passed over before the lock is given back.
const SCAN_AT_ONCE: usize = 4_096;

/// Changes of a prefix in one global order. It ends after an error.
pub struct Watch {
    shared: Arc<Shared>,
    prefix: Prefix,
    slot: Arc<Slot>,
    buffer: VecDeque<Arc<Event>>,
    /// Everything up to here has been handed out.
    seen: Revision,
    ended: bool,
}

impl Watch {
    pub(super) fn open(shared: Arc<Shared>, prefix: Prefix, from: Option<Revision>) -> Result<Watch, StoreError> {
        if shared.state.read().table(&prefix.resource).is_none() {
            shared.state.write().table_for(&prefix.resource);
        }
        let state = shared.state.read();
        let current = state.revision();
        let from = from.unwrap_or(current);
        if from > current {
            return Err(StoreError::FutureRevision { current });
        }
        if from < state.floor() {
            return Err(StoreError::Compacted { floor: state.floor() });
        }
        let slot = Arc::new(Slot::default());
        let table = state
            .table(&prefix.resource)
            .expect("it was made above, and tables are never removed");
        if table.changed() > from {
            slot.set_pending(Some(Revision(from.0 + 1)));
        }
        table.watchers.lock().add(&prefix.scope, slot.clone());
        drop(state);
        Ok(Watch {
            shared,
            prefix,
            slot,
            buffer: VecDeque::new(),
            seen: from,
            ended: false,
        })
    }

    /// The next change; waits for one.
    pub async fn next(&mut self) -> Result<Arc<Event>, StoreError> {
        std::future::poll_fn(|context| self.poll_event(context)).await
    }

    /// The next change, if there is one now.
    pub fn try_next(&mut self) -> Result<Option<Arc<Event>>, StoreError> {
        self.fill()?;
        Ok(self.take())
    }

    /// Whether there are changes that were not handed out.
    pub fn is_behind(&self) -> bool {
        !self.buffer.is_empty() || self.slot.pending().is_some()
    }

    /// The revision up to which every change of the prefix has been handed out: what a bookmark may say.
    pub fn progress(&self) -> Revision {
        let state = self.shared.state.read();
        let next = match self.buffer.front() {
            Some(event) => Some(event.record.revision),
            None => self.slot.pending(),
        };
        match next {
            Some(next) => self.seen.max(Revision(next.0 - 1)).min(state.revision()),
            None => state.revision(),
        }
    }

    fn poll_event(&mut self, context: &mut Context<'_>) -> Poll<Result<Arc<Event>, StoreError>> {
        if let Some(event) = self.take() {
            return Poll::Ready(Ok(event));
        }
        // Before looking: a change that comes between looking and registering must wake us.
        self.slot.waker.register(context.waker());
        self.fill()?;
        match self.take() {
            Some(event) => Poll::Ready(Ok(event)),
            None => Poll::Pending,
        }
    }

    fn take(&mut self) -> Option<Arc<Event>> {
        let event = self.buffer.pop_front()?;
        // While another change of the same revision waits, that revision is not handed out completely.
        let complete = match self.buffer.front() {
            Some(next) => next.record.revision.0 - 1,
            None => event.record.revision.0,
        };
        self.seen = self.seen.max(Revision(complete.min(event.record.revision.0)));
        Some(event)
    }

    /// Reads ahead from the log until something is found or nothing is left.
    fn fill(&mut self) -> Result<(), StoreError> {
        while self.buffer.is_empty() {
            let state = self.shared.state.read();
            if self.ended {
                return Err(StoreError::Compacted { floor: state.floor() });
            }
            let Some(pending) = self.slot.pending() else {
                return Ok(());
            };
            if pending <= state.floor() {
                self.ended = true;
                return Err(StoreError::Compacted { floor: state.floor() });
            }
            let table = state
                .table(&self.prefix.resource)
                .expect("it was made when the watch began, and tables are never removed");
            let mut last = Revision(0);
            let mut rest = None;
            for (scanned, event) in table.changes_from(pending).enumerate() {
                let revision = event.record.revision;
                // Changes of one revision are taken together, because the place to go on from is a revision.
                if (self.buffer.len() >= READ_AHEAD || scanned >= SCAN_AT_ONCE) && revision != last {
                    rest = Some(revision);
                    break;
                }
                if self.prefix.contains(&event.record.key) {
                    self.buffer.push_back(event.clone());
                }
                last = revision;
            }
            self.slot.set_pending(rest);
        }
        Ok(())
    }
}

impl Stream for Watch {
    type Item = Result<Arc<Event>, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if self.ended {
            return Poll::Ready(None);
        }
        self.poll_event(context).map(Some)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let scope: &Scope = &self.prefix.scope;
        if let Some(table) = self.shared.state.read().table(&self.prefix.resource) {
            table.watchers.lock().remove(scope, &self.slot);
        }
    }
}
