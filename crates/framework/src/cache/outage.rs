//! Whether the server answers at all, as the watches of a cache know it together.
//!
//! A server that is gone fails every watch. One line says so; one for each kind would bury it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A shared handle of all watches.
#[derive(Clone, Default)]
pub(super) struct Outage(Arc<AtomicBool>);

impl Outage {
    /// A watch got no answer; true for the first one that tells of it.
    pub fn begins(&self) -> bool {
        !self.0.swap(true, Ordering::Relaxed)
    }

    /// The server has answered somebody.
    pub fn ends(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once_until_the_server_answers() {
        let (one, other) = (Outage::default(), Outage::default());
        let shared = one.clone();
        assert!(one.begins() && !shared.begins() && other.begins());
        shared.ends();
        assert!(one.begins());
    }
}
