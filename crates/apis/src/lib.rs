//! Stead's custom resources: types, defaults, validation.
//!
//! What a user writes and reads. Nothing here talks to an API server; the same rules stand in the CRD's
//! schema, in the webhooks and in the operator, and are written once.

pub mod definitions;
pub mod image;
pub mod webapp;

pub use webapp::{WebApp, WebAppSpec, WebAppStatus};

/// The API group of every custom resource.
pub const GROUP: &str = "stead.dev";
