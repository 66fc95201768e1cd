//! A parsed view of a prefix, always current, for kinds that are read on every request and change rarely.
//!
//! Authorisation, admission and the catalogue read RBAC rules, webhook configurations or definitions for each
//! request. A view catches up from the change log when it is read: it is never behind the store, and needs no
//! task of its own.

use super::key::Prefix;
use super::{EventKind, Key, Record, Revision, Store, Visit};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Objects of one prefix, parsed by a function that returns `None` for those that it does not want.
pub struct View<T> {
    prefix: Prefix,
    parse: Box<Parse<T>>,
    seen: Mutex<Seen<T>>,
}

type Parse<T> = dyn Fn(&Record) -> Option<T> + Send + Sync;

struct Seen<T> {
    /// The revision of the store at the last read; `None` before the first.
    revision: Option<Revision>,
    objects: Arc<BTreeMap<Key, Arc<T>>>,
}

impl<T> View<T> {
    pub fn new(prefix: Prefix, parse: impl Fn(&Record) -> Option<T> + Send + Sync + 'static) -> View<T> {
        View {
            prefix,
            parse: Box::new(parse),
            seen: Mutex::new(Seen {
                revision: None,
                objects: Arc::default(),
            }),
        }
    }

    /// The objects as they are now.
    pub fn read(&self, store: &Store) -> Arc<BTreeMap<Key, Arc<T>>> {
        self.read_at(store).1
    }

    /// The objects as they are now, and the revision of the newest change of their resource, for a caller
    /// that derives something from them and wants to know when to do so again.
    pub fn read_at(&self, store: &Store) -> (Revision, Arc<BTreeMap<Key, Arc<T>>>) {
        let mut seen = self.seen.lock();
        let state = store.shared.state.read();
        let Some(table) = state.table(&self.prefix.resource) else {
            return (Revision(0), seen.objects.clone());
        };
        let changed = table.changed();
        if seen.revision.is_some_and(|revision| changed <= revision) {
            // Noted each time, so that the history can move on without the view having to start again.
            seen.revision = Some(state.revision());
            return (changed, seen.objects.clone());
        }
        match seen.revision {
            Some(revision) if revision >= state.floor() => {
                let objects = Arc::make_mut(&mut seen.objects);
                for event in table.changes_from(Revision(revision.0 + 1)) {
                    let key = &*event.record.key;
                    if !self.prefix.contains(key) {
                        continue;
                    }
                    let parsed = match event.kind {
                        EventKind::Deleted => None,
                        EventKind::Added | EventKind::Modified => (self.parse)(&event.record),
                    };
                    match parsed {
                        Some(parsed) => objects.insert(key.clone(), Arc::new(parsed)),
                        None => objects.remove(key),
                    };
                }
            }
            _ => {
                let mut objects = BTreeMap::new();
                let mut collect = |record: &Arc<Record>| {
                    if let Some(parsed) = (self.parse)(record) {
                        objects.insert(Key::clone(&record.key), Arc::new(parsed));
                    }
                    Visit::Continue
                };
                state.walk(&self.prefix, state.revision(), None, usize::MAX, &mut collect);
                seen.objects = Arc::new(objects);
            }
        }
        seen.revision = Some(state.revision());
        (changed, seen.objects.clone())
    }
}
