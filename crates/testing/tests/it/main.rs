//! Stories that need a cluster: the framework's own, and the test crate's.

mod cluster;
mod differential;
mod framework;
mod real_kubernetes;
mod workloads;
