//! Why the store refused.

use super::{Record, Revision};
use std::sync::Arc;

/// A refused read, write or watch. Cloneable, because one failed disk write fails many requests.
#[derive(Debug, Clone, thiserror::Error)]
pub enum StoreError {
    #[error("the object exists already")]
    Exists { current: Arc<Record> },
    #[error("the object has been modified: it is at revision {}", current.revision)]
    Conflict { current: Arc<Record> },
    #[error("no such object")]
    NotFound,
    /// A list or watch from before the floor, or a watcher that fell behind it.
    #[error("the revision is no longer retained; the oldest one is {floor}")]
    Compacted { floor: Revision },
    #[error("the revision lies in the future; the newest one is {current}")]
    FutureRevision { current: Revision },
    /// The disk is full. Writes are taken again when there is room, unless it filled up in the middle of one: then the
    /// reason says that the store has to be opened again.
    #[error("the disk of the store is full: {reason}")]
    Full { reason: Arc<str> },
    /// Reading or writing failed. A local store then refuses writes until it is opened again; whether the
    /// write that failed survived is only known after that.
    #[error("the store is unavailable: {reason}")]
    Unavailable { reason: Arc<str> },
}

impl StoreError {
    pub fn unavailable(reason: impl std::fmt::Display) -> Self {
        StoreError::Unavailable {
            reason: reason.to_string().into(),
        }
    }
}
