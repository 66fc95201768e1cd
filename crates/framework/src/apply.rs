//! Carrying out plans.
//!
//! Children are applied server-side in our own name, only when something that we care about differs;
//! children that left the plan are pruned; what is not ours is never touched; every write carries the
//! version that was read.

mod compare;
mod desired;
mod executor;
mod memory;
mod planned;
mod wars;

pub use compare::{Verdict, compare};
pub(crate) use planned::Planned;

/// The label that ties a child without owner reference to its root.
pub const ROOT_UID_LABEL: &str = "stead.dev/root-uid";
/// The annotation that names the root of a child without owner reference.
pub const ROOT_ANNOTATION: &str = "stead.dev/root";

#[cfg(test)]
mod tests;
