//! The embedded cluster around the API server: controllers, scheduler, nodes.
//!
//! All three are ordinary API clients. They see the world only through list, watch and write, and would do the
//! same work on a real Kubernetes.

pub mod clock;
pub mod controllers;
pub mod node;
pub mod scheduler;
