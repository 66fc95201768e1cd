//! What differs between stores: how a write becomes durable, and how fresh the local state is.

use super::{Record, StoreError, Write};
use async_trait::async_trait;
use std::sync::Arc;

/// The authority over writes. It publishes what it has committed to the shared state, in the order of
/// revisions, before it answers.
#[async_trait]
pub(super) trait Engine: Send + Sync {
    /// Commits a write. When this answers, the write is durable and readers see it.
    async fn write(&self, write: Write) -> Result<Arc<Record>, StoreError>;

    /// Returns when the local state holds every write that anyone got an answer for before this call.
    async fn catch_up(&self) -> Result<(), StoreError>;
}
