//! The embedded cluster around the API server: controllers, scheduler, nodes.
