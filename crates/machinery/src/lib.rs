//! What both a client and a server of the Kubernetes API need.
//!
//! The API server merges, patches and selects with it; the framework compares what an operator wants
//! with what is there by the same rules. It does no I/O and knows no kind by name.

pub mod apply;
pub mod compatibility;
pub mod conditions;
pub mod cron;
pub mod field;
pub mod names;
pub mod patch;
pub mod published;
pub mod quantity;
pub mod schema;
pub mod selector;
pub mod time;
pub mod validate;
pub mod walk;
pub mod wire;
