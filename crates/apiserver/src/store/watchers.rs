//! Who waits for changes of a resource, indexed so that a change costs only those whom it concerns.

use super::Revision;
use super::key::Scope;
use futures::task::AtomicWaker;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The place where changes are announced to one watcher.
///
/// It holds no changes, only the revision of the first one that the watcher has not read from the log yet.
/// A slow watcher therefore costs nothing but its slot, however far it falls behind.
#[derive(Default)]
pub(super) struct Slot {
    /// 0: the watcher has read all there is for it.
    pending: AtomicU64,
    pub(super) waker: AtomicWaker,
}

#[derive(Default)]
pub(super) struct Watchers {
    all: Vec<Arc<Slot>>,
    namespaces: HashMap<String, Vec<Arc<Slot>>>,
    objects: HashMap<String, Vec<Arc<Slot>>>,
}

impl Slot {
    /// The first unread revision. Stable while the state is locked, for only a change moves it from 0 and
    /// only the watcher itself sets it otherwise.
    pub(super) fn pending(&self) -> Option<Revision> {
        match self.pending.load(Ordering::Acquire) {
            0 => None,
            revision => Some(Revision(revision)),
        }
    }

    pub(super) fn set_pending(&self, revision: Option<Revision>) {
        self.pending
            .store(revision.map_or(0, |revision| revision.0), Ordering::Release);
    }

    /// Announces a change; true if the watcher did not know of any yet and has to be woken.
    fn announce(&self, revision: Revision) -> bool {
        self.pending
            .compare_exchange(0, revision.0, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

impl Watchers {
    pub(super) fn add(&mut self, scope: &Scope, slot: Arc<Slot>) {
        match scope {
            Scope::All => self.all.push(slot),
            Scope::Namespace(namespace) => self.namespaces.entry(namespace.clone()).or_default().push(slot),
            Scope::Object(path) => self.objects.entry(path.clone()).or_default().push(slot),
        }
    }

    pub(super) fn remove(&mut self, scope: &Scope, slot: &Arc<Slot>) {
        let (index, name) = match scope {
            Scope::All => {
                remove(&mut self.all, slot);
                return;
            }
            Scope::Namespace(namespace) => (&mut self.namespaces, namespace),
            Scope::Object(path) => (&mut self.objects, path),
        };
        if let Some(slots) = index.get_mut(name) {
            remove(slots, slot);
            if slots.is_empty() {
                index.remove(name);
            }
        }
    }

    /// Announces a change to those it concerns, and adds the ones that have to be woken.
    pub(super) fn notify(&self, namespace: &str, path: &str, revision: Revision, wake: &mut Vec<Arc<Slot>>) {
        let namespaced = self.namespaces.get(namespace).into_iter().flatten();
        let single = self.objects.get(path).into_iter().flatten();
        for slot in self.all.iter().chain(namespaced).chain(single) {
            if slot.announce(revision) {
                wake.push(slot.clone());
            }
        }
    }
}

fn remove(slots: &mut Vec<Arc<Slot>>, slot: &Arc<Slot>) {
    if let Some(index) = slots.iter().position(|other| Arc::ptr_eq(other, slot)) {
        slots.swap_remove(index);
    }
}
