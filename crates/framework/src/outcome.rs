//! How a reconcile ended, when it did not fail.
//!
//! One type steers the next run. An error never means "fine, later", and "later" is never an error.

use std::fmt;
use std::time::Duration;

/// What a successful reconcile says about the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The object is as it should be; the next event or resync wakes it.
    Settled,
    /// Look again after this long, events or not.
    CheckAgain(Duration),
    /// Nothing can be done until something else happens. An event about it wakes the key; the resync is
    /// the safety net.
    Waiting {
        /// What has to happen.
        on: Dependency,
    },
}

/// What a reconcile waits for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Dependency {
    /// An object that does not exist yet, or is not ready yet.
    Object {
        /// Its kind.
        kind: String,
        /// Its name.
        name: String,
    },
    /// Something outside of the cluster, or a state, in words.
    Condition(String),
}

impl Dependency {
    /// Waits for an object.
    pub fn object(kind: impl Into<String>, name: impl Into<String>) -> Self {
        Dependency::Object {
            kind: kind.into(),
            name: name.into(),
        }
    }

    /// Waits for something that only words describe.
    pub fn condition(what: impl Into<String>) -> Self {
        Dependency::Condition(what.into())
    }
}

impl fmt::Display for Dependency {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Dependency::Object { kind, name } => write!(f, "{kind} {name}"),
            Dependency::Condition(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Outcome::Settled => f.write_str("settled"),
            Outcome::CheckAgain(after) => write!(f, "check again in {after:?}"),
            Outcome::Waiting { on } => write!(f, "waiting for {on}"),
        }
    }
}
