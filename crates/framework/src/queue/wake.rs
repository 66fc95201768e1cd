//! Why a key was woken.
//!
//! Kept with the key until it runs and given to the reconciler and to `/debug/reconciles`: "why was this
//! reconciled?" is the first question of whoever debugs an operator.

use crate::key::Key;
use serde::ser::{Serialize, SerializeMap, Serializer};
use std::fmt;

/// One reason to reconcile a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wake {
    /// The cache was filled for the first time.
    Listed {
        /// The kind of the object.
        kind: String,
        /// Its name.
        key: Key,
    },
    /// An object appeared.
    Created {
        /// The kind of the object.
        kind: String,
        /// Its name.
        key: Key,
    },
    /// An object changed.
    Updated {
        /// The kind of the object.
        kind: String,
        /// Its name.
        key: Key,
    },
    /// An object went away.
    Deleted {
        /// The kind of the object.
        kind: String,
        /// Its name.
        key: Key,
    },
    /// The root's own spec changed; this one skips backoff.
    SpecChanged {
        /// What the spec is now.
        generation: i64,
    },
    /// The periodic look at everything.
    Resync,
    /// The last run failed.
    Retry {
        /// How often in a row.
        failures: u32,
    },
    /// The last run asked for it.
    Requested,
    /// The cache had not seen our own last writes yet.
    Consistency,
    /// Something outside of the cluster.
    External(String),
}

/// A word for programs, and a sentence for people.
impl Serialize for Wake {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_map(Some(2))?;
        fields.serialize_entry("because", self.label())?;
        fields.serialize_entry("text", &self.to_string())?;
        fields.end()
    }
}

impl fmt::Display for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wake::Listed { kind, key } => write!(f, "{kind} {key} listed"),
            Wake::Created { kind, key } => write!(f, "{kind} {key} created"),
            Wake::Updated { kind, key } => write!(f, "{kind} {key} updated"),
            Wake::Deleted { kind, key } => write!(f, "{kind} {key} deleted"),
            Wake::SpecChanged { generation } => write!(f, "spec changed (generation {generation})"),
            Wake::Resync => f.write_str("resync"),
            Wake::Retry { failures } => write!(f, "retry after {failures} failures"),
            Wake::Requested => f.write_str("asked for by the last run"),
            Wake::Consistency => f.write_str("our own writes arrived"),
            Wake::External(what) => f.write_str(what),
        }
    }
}

impl Wake {
    /// The short name that the metric of trigger reasons uses.
    pub fn label(&self) -> &'static str {
        match self {
            Wake::Listed { .. } => "listed",
            Wake::Created { .. } => "created",
            Wake::Updated { .. } => "updated",
            Wake::Deleted { .. } => "deleted",
            Wake::SpecChanged { .. } => "spec_changed",
            Wake::Resync => "resync",
            Wake::Retry { .. } => "retry",
            Wake::Requested => "requested",
            Wake::Consistency => "consistency",
            Wake::External(_) => "external",
        }
    }
}
