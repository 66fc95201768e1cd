//! Engines in this process: one committer decides on writes, one after the other.
//!
//! A journal makes them durable. A batch of writes is checked and numbered, given to the journal as a whole,
//! and only then shown to readers, so that nobody acts on what a power cut could still undo.

use super::engine::Engine;
use super::shared::Shared;
use super::state::{History, State};
use super::{Draft, Event, EventKind, Key, Record, Revision, StoreError, Write};
use crate::environment::Clock;
use async_trait::async_trait;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Where committed changes are kept beyond the life of the process.
pub(super) trait Journal: Send {
    /// Refuses, before anything is tried, what would fill the disk: a journal that ran out of it in the middle of a
    /// batch takes no more until it is opened again, while one that was not touched goes on when there is room.
    fn has_room_for(&mut self, bytes: usize) -> Result<(), StoreError>;

    /// Returns when the changes are durable. `retired` are revisions that may be removed along with it, since
    /// nothing at or after `floor` needs them.
    fn append(&mut self, events: &[Arc<Event>], retired: &[Revision], floor: Revision) -> Result<(), StoreError>;
}

/// The only one who assigns revisions.
pub(super) struct Committer<J> {
    shared: Arc<Shared>,
    journal: J,
    clock: Arc<dyn Clock>,
    history: History,
    /// Revisions to be removed from the journal with the next batch.
    retired: Vec<Revision>,
    /// Set by the first failure of the journal. What it holds is unknown then, so nothing may be built on it.
    failed: Option<StoreError>,
}

/// The engine that keeps nothing: commits happen on the caller's own thread.
pub(super) struct Inline {
    committer: Mutex<Committer<Nowhere>>,
}

/// The journal of a store in memory.
struct Nowhere;

type Answer = Result<Arc<Record>, StoreError>;

impl<J: Journal> Committer<J> {
    pub(super) fn new(shared: Arc<Shared>, journal: J, clock: Arc<dyn Clock>, history: History) -> Self {
        // What the last batch of the process before retired is still in the journal. Without this, each restart
        // would add its batch to what is retained.
        let retired = shared.state.write().forget(&history, clock.now());
        Committer {
            shared,
            journal,
            clock,
            history,
            retired,
            failed: None,
        }
    }

    /// Commits a batch, and answers each write of it in order.
    pub(super) fn commit(&mut self, batch: Vec<Write>) -> Vec<Answer> {
        let count = batch.len();
        if let Some(failure) = &self.failed {
            return vec![Err(failure.clone()); count];
        }
        let bytes = batch.iter().map(|write| write.draft().json.len()).sum();
        if let Err(full) = self.journal.has_room_for(bytes) {
            return vec![Err(full); count];
        }
        let mut events = Vec::with_capacity(count);
        let answers = self.decide(batch, &mut events);
        if events.is_empty() {
            return answers;
        }
        let floor = self.shared.state.read().floor();
        if let Err(failure) = self.journal.append(&events, &self.retired, floor) {
            tracing::error!(%failure, "the store refuses writes until it is opened again");
            self.failed = Some(failure.clone());
            // A refusal may rest on a write of the same batch that is now in doubt, so all get the failure.
            return vec![Err(failure); count];
        }
        self.retired = self.shared.publish(events, &self.history, self.clock.now());
        answers
    }

    /// Checks each write against the state and against the writes before it in the batch.
    fn decide(&self, batch: Vec<Write>, events: &mut Vec<Arc<Event>>) -> Vec<Answer> {
        let state = self.shared.state.read();
        let mut next = state.revision();
        let mut ahead = Ahead::default();
        let single = batch.len() == 1;
        let mut answers = Vec::with_capacity(batch.len());
        for write in batch {
            let current = ahead.latest(&state, write.key());
            let answer = check(&write, current).map(|()| {
                next.0 += 1;
                let event = Arc::new(self.change(write, current.cloned(), next));
                events.push(event.clone());
                event
            });
            answers.push(answer.map(|event| {
                let record = event.record.clone();
                if !single {
                    ahead.enter(event);
                }
                record
            }));
        }
        answers
    }

    fn change(&self, write: Write, previous: Option<Arc<Record>>, revision: Revision) -> Event {
        let (kind, key, draft) = match write {
            Write::Create { key, draft } => (EventKind::Added, key, draft),
            Write::Update { key, draft, .. } => (EventKind::Modified, key, draft),
            Write::Delete { key, draft, .. } => (EventKind::Deleted, key, draft),
        };
        let (key, created) = match &previous {
            Some(previous) => (previous.key.clone(), previous.created),
            None => (Arc::new(key), revision),
        };
        let json = draft.at(revision);
        let record = Arc::new(Record::new(key, revision, created, json, self.shared.parsed.clone()));
        Event { kind, record, previous }
    }
}

/// The writes of a batch that are decided but not committed.
#[derive(Default)]
struct Ahead {
    events: HashMap<Arc<Key>, Arc<Event>>,
}

impl Ahead {
    fn latest<'a>(&'a self, state: &'a State, key: &Key) -> Option<&'a Arc<Record>> {
        match self.events.get(key) {
            Some(event) if event.kind == EventKind::Deleted => None,
            Some(event) => Some(&event.record),
            None => state.latest(key),
        }
    }

    fn enter(&mut self, event: Arc<Event>) {
        self.events.insert(event.record.key.clone(), event);
    }
}

/// Whether the write may go ahead on the object as it is.
pub(super) fn check(write: &Write, current: Option<&Arc<Record>>) -> Result<(), StoreError> {
    match (write, current) {
        (Write::Create { .. }, None) => Ok(()),
        (Write::Create { .. }, Some(current)) => Err(StoreError::Exists {
            current: current.clone(),
        }),
        (Write::Update { .. } | Write::Delete { .. }, None) => Err(StoreError::NotFound),
        (Write::Update { expect, .. } | Write::Delete { expect, .. }, Some(current)) => {
            if current.revision == *expect {
                return Ok(());
            }
            Err(StoreError::Conflict {
                current: current.clone(),
            })
        }
    }
}

impl Write {
    pub fn key(&self) -> &Key {
        match self {
            Write::Create { key, .. } | Write::Update { key, .. } | Write::Delete { key, .. } => key,
        }
    }

    pub(super) fn draft(&self) -> &Draft {
        match self {
            Write::Create { draft, .. } | Write::Update { draft, .. } | Write::Delete { draft, .. } => draft,
        }
    }
}

impl Inline {
    pub(super) fn new(shared: Arc<Shared>, clock: Arc<dyn Clock>, history: History) -> Inline {
        Inline {
            committer: Mutex::new(Committer::new(shared, Nowhere, clock, history)),
        }
    }
}

#[async_trait]
impl Engine for Inline {
    async fn write(&self, write: Write) -> Answer {
        let mut answers = self.committer.lock().commit(vec![write]);
        answers.pop().expect("a batch of one has one answer")
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Journal for Nowhere {
    fn has_room_for(&mut self, _: usize) -> Result<(), StoreError> {
        Ok(())
    }

    fn append(&mut self, _: &[Arc<Event>], _: &[Revision], _: Revision) -> Result<(), StoreError> {
        Ok(())
    }
}
