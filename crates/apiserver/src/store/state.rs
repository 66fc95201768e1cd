//! What readers see: all tables, the order of changes across them, and the floor.

use super::table::Table;
use super::watchers::Slot;
use super::{Event, EventKind, Key, Prefix, Record, Revision, Visit};
use jiff::{SignedDuration, Timestamp};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// How much of the past is retained for watches and for lists at older revisions; whichever limit is
/// reached first.
#[derive(Debug, Clone, Copy)]
pub struct History {
    pub changes: usize,
    /// Bytes of JSON that are only kept for the past.
    pub bytes: usize,
    pub age: SignedDuration,
}

/// The most old changes that one batch of new ones pays for, so that no write waits for a long clean-up.
const FORGET_AT_ONCE: usize = 256;

/// What a retained change costs besides the JSON that is only kept for it.
const CHANGE_OVERHEAD: usize = 256;

pub(super) struct State {
    revision: Revision,
    floor: Revision,
    tables: HashMap<Arc<str>, Table>,
    /// All retained changes, oldest first; each is also in the log of its table.
    order: VecDeque<Change>,
    /// Sum of the costs in `order`.
    cost: usize,
}

struct Change {
    revision: Revision,
    resource: Arc<str>,
    cost: usize,
    at: Timestamp,
}

/// The revision of a store that has never been written to. It is not 0, because clients that send 0 as a
/// resourceVersion mean "any".
const FIRST: Revision = Revision(1);

impl Default for State {
    fn default() -> Self {
        State::restored(FIRST)
    }
}

impl Default for History {
    /// Kubernetes compacts etcd every five minutes, so clients are used to having between five and ten; its own
    /// tests wait no longer than ten for a continue token to expire.
    fn default() -> Self {
        History {
            changes: 50_000,
            bytes: 64 << 20,
            age: SignedDuration::from_mins(5),
        }
    }
}

impl State {
    /// The state at `floor`, to which later changes are then applied.
    pub(super) fn restored(floor: Revision) -> State {
        State {
            revision: floor,
            floor,
            tables: HashMap::new(),
            order: VecDeque::new(),
            cost: 0,
        }
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    pub(super) fn floor(&self) -> Revision {
        self.floor
    }

    pub(super) fn table(&self, resource: &str) -> Option<&Table> {
        self.tables.get(resource)
    }

    pub(super) fn latest(&self, key: &Key) -> Option<&Arc<Record>> {
        self.tables.get(key.resource.as_str())?.latest(&key.path())
    }

    pub(super) fn counts(&self) -> Vec<(String, usize)> {
        let counts = self.tables.iter().map(|(name, table)| (name.to_string(), table.live()));
        counts.filter(|(_, live)| *live > 0).collect()
    }

    /// Every object that exists now.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.tables.values().flat_map(Table::all)
    }

    /// Visits objects in the order of their paths; see `Table::walk`.
    pub(super) fn walk(
        &self,
        prefix: &Prefix,
        revision: Revision,
        after: Option<&str>,
        steps: usize,
        visitor: &mut impl FnMut(&Arc<Record>) -> Visit,
    ) -> Option<String> {
        self.tables
            .get(prefix.resource.as_str())?
            .walk(&prefix.scope, revision, after, steps, visitor)
    }

    /// Makes sure that the resource has a table, so that somebody can wait for its first object.
    pub(super) fn table_for(&mut self, resource: &str) -> &mut Table {
        if !self.tables.contains_key(resource) {
            self.tables.insert(resource.into(), Table::default());
        }
        self.tables.get_mut(resource).expect("it was inserted just above")
    }

    /// Takes over an object that was last changed at or before the floor.
    pub(super) fn restore(&mut self, record: Arc<Record>) {
        let path = record.key.path();
        self.table_for(&record.key.resource).restore(path, record);
    }

    /// Enters a change, and adds the watchers that have to be woken for it.
    pub(super) fn apply(&mut self, event: Arc<Event>, at: Timestamp, wake: &mut Vec<Arc<Slot>>) {
        let key = event.record.key.clone();
        let revision = event.record.revision;
        let replaced = event.previous.as_ref().map_or(0, |previous| previous.json.len());
        let last_state = match event.kind {
            EventKind::Deleted => event.record.json.len(),
            EventKind::Added | EventKind::Modified => 0,
        };
        let cost = CHANGE_OVERHEAD + replaced + last_state;
        let path = key.path();
        self.table_for(&key.resource).apply(&path, event);
        let (resource, table) = self
            .tables
            .get_key_value(key.resource.as_str())
            .expect("the change was applied to it just above");
        table.watchers.lock().notify(&key.namespace, &path, revision, wake);
        let resource = resource.clone();
        self.order.push_back(Change {
            revision,
            resource,
            cost,
            at,
        });
        self.cost += cost;
        self.revision = self.revision.max(revision);
    }

    /// Notes that the store has reached a revision whose changes, if any, are none of ours.
    pub(super) fn advance(&mut self, revision: Revision) {
        self.revision = self.revision.max(revision);
    }

    /// Forgets changes beyond the limits, and reports the revisions that nothing needs any more.
    pub(super) fn forget(&mut self, history: &History, now: Timestamp) -> Vec<Revision> {
        let mut retired = Vec::new();
        for _ in 0..FORGET_AT_ONCE {
            let Some(oldest) = self.order.front() else {
                break;
            };
            let excess = self.order.len() > history.changes
                || self.cost > history.bytes
                || now.duration_since(oldest.at) > history.age;
            if !excess {
                break;
            }
            self.forget_oldest(&mut retired);
        }
        retired
    }

    /// Forgets everything up to a revision that a remote engine has compacted.
    pub(super) fn forget_through(&mut self, floor: Revision) {
        while self.order.front().is_some_and(|oldest| oldest.revision <= floor) {
            self.forget_oldest(&mut Vec::new());
        }
        self.floor = self.floor.max(floor.min(self.revision));
    }

    fn forget_oldest(&mut self, retired: &mut Vec<Revision>) {
        let Some(oldest) = self.order.pop_front() else {
            return;
        };
        self.floor = oldest.revision;
        self.cost -= oldest.cost;
        if let Some(table) = self.tables.get_mut(&oldest.resource) {
            table.forget_oldest(retired);
        }
    }
}
