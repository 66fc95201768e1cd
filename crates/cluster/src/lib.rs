//! The embedded cluster around the API server: controllers, scheduler, nodes.

pub mod clock;
pub mod node;
