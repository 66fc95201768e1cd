//! The rules of the election, without I/O.
//!
//! Whether another's Lease has expired is judged by how long this process has seen it unchanged, on its own
//! monotonic clock. Wall clocks, ours or another machine's, decide nothing: they jump.

use std::time::Duration;
use tokio::time::Instant;

/// A Lease, as far as the election cares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Who holds it; empty after it was given back.
    pub holder: String,
    /// How long its holder asked others to wait.
    pub duration: Duration,
    /// Changes with every write.
    pub version: String,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// There is no Lease: create it.
    Create,
    /// Nobody holds it, or its holder is silent for too long: take it, from this version on.
    Take,
    /// It is ours: renew it.
    Renew,
    /// Another holds it: look again later.
    Wait,
}

/// One replica's view of the election.
pub struct Candidate {
    identity: String,
    /// The latest Lease, and when this process saw it first in that state.
    observed: Option<(Seen, Instant)>,
}

impl Candidate {
    /// A replica that has not seen the Lease yet.
    pub fn new(identity: &str) -> Self {
        Candidate {
            identity: identity.to_owned(),
            observed: None,
        }
    }

    /// What to do about the Lease as it is now.
    pub fn decide(&mut self, lease: Option<Seen>, now: Instant) -> Decision {
        let Some(lease) = lease else {
            self.observed = None;
            return Decision::Create;
        };
        if lease.holder == self.identity {
            self.observed = Some((lease, now));
            return Decision::Renew;
        }
        if lease.holder.is_empty() {
            return Decision::Take;
        }
        let since = match &self.observed {
            Some((before, since)) if *before == lease => *since,
            _ => now,
        };
        let expired = now.saturating_duration_since(since) > lease.duration;
        self.observed = Some((lease, since));
        match expired {
            true => Decision::Take,
            false => Decision::Wait,
        }
    }

    /// Who holds the Lease, as far as is known.
    pub fn holder(&self) -> Option<&str> {
        self.observed.as_ref().map(|(lease, _)| lease.holder.as_str())
    }
}
