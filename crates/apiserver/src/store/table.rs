//! All retained versions of the objects of one resource, and its part of the change log.

use super::key::Scope;
use super::watchers::Watchers;
use super::{Event, EventKind, Record, Revision, Visit};
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Table {
    /// By path within the resource.
    objects: BTreeMap<Box<str>, Versions>,
    /// Retained changes, oldest first.
    log: VecDeque<Arc<Event>>,
    /// Objects that exist now; `objects` also holds those whose deletion is still retained.
    live: usize,
    /// The newest change, retained or not.
    changed: Revision,
    /// Has a lock of its own so that a watch can begin and end while others read.
    pub(super) watchers: Mutex<Watchers>,
}

/// The retained versions of one object.
struct Versions {
    latest: Version,
    /// Oldest first. Empty, and without memory of its own, for an object that has not changed lately.
    older: VecDeque<Version>,
}

enum Version {
    Live(Arc<Record>),
    Gone(Revision),
}

impl Table {
    pub(super) fn latest(&self, path: &str) -> Option<&Arc<Record>> {
        self.objects.get(path)?.latest.record()
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.objects.values().filter_map(|versions| versions.latest.record())
    }

    pub(super) fn live(&self) -> usize {
        self.live
    }

    pub(super) fn changed(&self) -> Revision {
        self.changed
    }

    /// Takes an object over from an earlier life of the store, without a change that watchers could see.
    pub(super) fn restore(&mut self, path: String, record: Arc<Record>) {
        self.changed = self.changed.max(record.revision);
        let versions = Versions {
            latest: Version::Live(record),
            older: VecDeque::new(),
        };
        if self.objects.insert(path.into(), versions).is_none() {
            self.live += 1;
        }
    }

    /// Enters a change: a new version, and the log.
    pub(super) fn apply(&mut self, path: &str, event: Arc<Event>) {
        self.changed = event.record.revision;
        let version = match event.kind {
            EventKind::Deleted => Version::Gone(event.record.revision),
            EventKind::Added | EventKind::Modified => Version::Live(event.record.clone()),
        };
        let lives = version.record().is_some();
        let lived = match self.objects.get_mut(path) {
            Some(versions) => {
                let lived = versions.latest.record().is_some();
                let before = std::mem::replace(&mut versions.latest, version);
                versions.older.push_back(before);
                lived
            }
            None => {
                let versions = Versions {
                    latest: version,
                    older: VecDeque::new(),
                };
                self.objects.insert(path.into(), versions);
                false
            }
        };
        self.live = self.live + usize::from(lives) - usize::from(lived);
        self.log.push_back(event);
    }

    /// Forgets the oldest change, and reports the revisions that nothing needs any more.
    pub(super) fn forget_oldest(&mut self, retired: &mut Vec<Revision>) {
        let Some(event) = self.log.pop_front() else {
            return;
        };
        let path = event.record.key.path();
        let Some(versions) = self.objects.get_mut(path.as_str()) else {
            return;
        };
        let floor = event.record.revision;
        // A list at the floor still needs the version of that revision, unless that is "gone".
        while let Some(oldest) = versions.older.front()
            && (oldest.revision() < floor || matches!(oldest, Version::Gone(revision) if *revision <= floor))
        {
            retired.push(oldest.revision());
            versions.older.pop_front();
        }
        if versions.older.is_empty() {
            // A key that was written in bursts would otherwise hold the room of its largest one.
            versions.older.shrink_to_fit();
            if let Version::Gone(revision) = versions.latest
                && revision <= floor
            {
                retired.push(revision);
                self.objects.remove(path.as_str());
            }
        }
    }

    /// Visits the objects of a scope at a revision, at most `steps` keys. The answer is the path to go on
    /// after, or `None` at the end.
    pub(super) fn walk(
        &self,
        scope: &Scope,
        revision: Revision,
        after: Option<&str>,
        steps: usize,
        visitor: &mut impl FnMut(&Arc<Record>) -> Visit,
    ) -> Option<String> {
        if let Scope::Object(path) = scope {
            if after.is_none_or(|after| after < path.as_str())
                && let Some(record) = self
                    .objects
                    .get(path.as_str())
                    .and_then(|versions| versions.at(revision))
            {
                visitor(record);
            }
            return None;
        }
        let start = scope.start();
        let from = match after {
            Some(after) if after >= start.as_str() => Bound::Excluded(after),
            _ => Bound::Included(start.as_str()),
        };
        let mut visited = 0;
        for (path, versions) in self.objects.range::<str, _>((from, Bound::Unbounded)) {
            if !path.starts_with(&start) {
                return None;
            }
            if let Some(record) = versions.at(revision)
                && visitor(record) == Visit::Stop
            {
                return None;
            }
            visited += 1;
            if visited == steps {
                return Some(path.to_string());
            }
        }
        None
    }

    /// Retained changes from that revision on, oldest first.
    pub(super) fn changes_from(&self, revision: Revision) -> impl Iterator<Item = &Arc<Event>> {
        let first = self.log.partition_point(|event| event.record.revision < revision);
        self.log.range(first..)
    }
}

impl Versions {
    /// The object at a revision, if it existed then.
    fn at(&self, revision: Revision) -> Option<&Arc<Record>> {
        if self.latest.revision() <= revision {
            return self.latest.record();
        }
        let newer = self.older.partition_point(|version| version.revision() <= revision);
        self.older.get(newer.checked_sub(1)?)?.record()
    }
}

impl Version {
    fn revision(&self) -> Revision {
        match self {
            Version::Live(record) => record.revision,
            Version::Gone(revision) => *revision,
        }
    }

    fn record(&self) -> Option<&Arc<Record>> {
        match self {
            Version::Live(record) => Some(record),
            Version::Gone(_) => None,
        }
    }
}
