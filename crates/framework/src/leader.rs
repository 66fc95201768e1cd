//! Who may write.
//!
//! Of several replicas one leads. A Lease alone fences nothing, so leadership is checked right before each
//! write is sent and a write in flight is cancelled when it is lost. The rules of the election are in
//! [`Candidate`], a plain value; [`Election`] talks to the API server.

mod candidate;
mod election;
mod fence;

pub use candidate::{Candidate, Decision, Seen};
pub use election::{Election, LeaderElection, TimesError};
pub use fence::{Fence, NotLeader};

#[cfg(test)]
mod tests;
