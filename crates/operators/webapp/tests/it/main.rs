//! Stories about plans: what the operator would do, told without a cluster.

#![allow(clippy::unwrap_used)] // The whole binary is tests; a story stops where it goes wrong.

mod canary;
mod canary_ends;
mod deadlines;
mod life;
mod recovery;
mod rollback;
mod spec_changes;
mod world;
