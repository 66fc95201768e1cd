//! Workloads on a whole cluster with a clock of its own: hours pass in milliseconds.

mod deletion;
mod deployments;
mod jobs;
mod nodes;
mod scheduling;
mod sets;
mod story;
mod volumes;
