//! Workloads on a whole cluster with a clock of its own: hours pass in milliseconds.

mod autoscaling;
mod deletion;
mod deployments;
mod job_policies;
mod jobs;
mod keeping;
mod lives;
mod nodes;
mod placement;
mod scheduling;
mod services;
mod sets;
mod story;
mod volumes;
