//! Stores of owned kinds, without their types.
//!
//! Applying a plan asks for children of many kinds; it needs their metadata and, rarely, their JSON.

use super::source::Life;
use crate::apply::ROOT_UID_LABEL;
use crate::cache::{Index, Store};
use crate::key::Key;
use crate::kind::{Kind, Typed};
use kube::core::ObjectMeta;
use serde::Serialize;
use serde_json::Value;
use std::sync::Arc;

/// An object of whatever kind, as the cache holds it.
pub(crate) trait LiveObject: Send + Sync {
    fn metadata(&self) -> &ObjectMeta;
    fn to_json(&self) -> Value;
}

impl<K: Typed + Serialize> LiveObject for K {
    fn metadata(&self) -> &ObjectMeta {
        self.meta()
    }

    fn to_json(&self) -> Value {
        // It came from JSON, so it goes back.
        serde_json::to_value(self).unwrap_or_default()
    }
}

/// A store of an owned kind.
pub(crate) trait OwnedStore: Send + Sync {
    fn kind(&self) -> &Kind;
    /// Whether an absent object is really absent.
    fn is_complete(&self) -> bool;
    fn find(&self, key: &Key) -> Option<Arc<dyn LiveObject>>;
    /// Whether its objects go when they leave the plan.
    fn life(&self) -> Life;
    /// Objects that belong to the root with this UID, by reference or by label.
    fn of_root(&self, uid: &str) -> Vec<Arc<dyn LiveObject>>;
}

pub(super) struct Owned<K> {
    pub store: Store<K>,
    pub labelled: Index<K>,
    /// Whether the store holds the whole kind.
    pub whole: Whole,
    pub life: Life,
}

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Whole {
    Everything,
    Selection,
}

impl<K: Typed + Serialize> Owned<K> {
    pub fn new(store: Store<K>, whole: Whole, life: Life) -> Self {
        let labelled = store.index_label(ROOT_UID_LABEL);
        Owned {
            store,
            labelled,
            whole,
            life,
        }
    }
}

impl<K: Typed + Serialize> OwnedStore for Owned<K> {
    fn kind(&self) -> &Kind {
        self.store.kind()
    }

    fn is_complete(&self) -> bool {
        self.whole == Whole::Everything && self.store.is_synced()
    }

    fn life(&self) -> Life {
        self.life
    }

    fn find(&self, key: &Key) -> Option<Arc<dyn LiveObject>> {
        self.store.get(key).map(|object| object as Arc<dyn LiveObject>)
    }

    fn of_root(&self, uid: &str) -> Vec<Arc<dyn LiveObject>> {
        let referring = self.store.owned_by(uid).into_iter().filter(|object| {
            let owners = object.meta().owner_references.iter().flatten();
            owners
                .into_iter()
                .any(|owner| owner.uid == uid && owner.controller == Some(true))
        });
        let labelled = self.store.by_index(&self.labelled, uid);
        referring
            .chain(labelled)
            .map(|object| object as Arc<dyn LiveObject>)
            .collect()
    }
}
