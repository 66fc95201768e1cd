//! Who may write.
//!
//! Of several replicas one leads. A Lease alone fences nothing, so leadership is checked right before each
//! write is sent and a write in flight is cancelled when it is lost.

mod fence;

pub use fence::{Fence, NotLeader};
