//! An embedded Kubernetes API server: a store and everything behind a request.
//!
//! The server is a value: a `tower::Service` that runs in the process, with clock, identity and
//! randomness passed in. The same value stands behind TLS. It knows no controller and none of
//! Stead's custom resources; built-in and custom kinds take one schema-driven path.

pub mod admission;
pub mod audit;
pub mod auth;
pub mod catalogue;
pub mod custom;
pub mod defaults;
pub mod discovery;
pub mod environment;
pub mod error;
pub mod gate;
mod hooks;
pub mod kinds;
pub mod listen;
pub mod openapi;
pub mod protobuf;
pub mod server;
pub mod store;
pub mod table;
pub mod validation;
pub mod verbs;
