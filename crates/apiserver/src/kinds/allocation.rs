//! What a write takes from a pool before it is stored, and gives back if it is not.

use super::service;
use crate::verbs::Call;
use tokio::sync::OwnedMutexGuard;

/// Addresses and locks held for one write.
#[must_use]
#[derive(Default)]
pub struct Allocation {
    taken: Vec<String>,
    /// Addresses that the write frees, once it is stored.
    freed: Vec<String>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Allocation {
    pub(super) fn taken(&mut self, address: String) {
        self.taken.push(address);
    }

    pub(super) fn give_back_later(&mut self, addresses: Vec<String>) {
        self.freed = addresses;
    }

    pub(super) fn hold(&mut self, guard: OwnedMutexGuard<()>) {
        self.held = Some(guard);
    }

    /// The write is stored.
    pub async fn keep(self, call: &Call) {
        for address in &self.freed {
            service::give_back(&call.shared, address).await;
        }
    }

    /// The write was refused.
    pub async fn release(self, call: &Call) {
        for address in &self.taken {
            service::give_back(&call.shared, address).await;
        }
    }
}
