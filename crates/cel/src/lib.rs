//! The Common Expression Language as Kubernetes evaluates it.
//!
//! An expression is parsed, checked against the declared types of its variables, priced, and turned into a
//! plan that is evaluated over JSON without copying it. [`rules`] applies all that to the
//! `x-kubernetes-validations` of a custom resource's schema.

pub mod admission;
mod ast;
pub mod authorizer;
mod checker;
pub mod decl;
mod env;
mod error;
mod escape;
mod estimate;
mod eval;
mod functions;
mod issue;
mod lexer;
mod literals;
mod parser;
mod plan;
mod program;
mod regexes;
pub mod rules;
mod signatures;
mod times;
mod types;
pub mod value;

pub use env::Env;
pub use error::{Budget, EvalError};
pub use estimate::CostEstimate;
pub use eval::Lazy;
pub use issue::{Issue, shown};
pub use program::{Program, compile};
pub use types::Type;
pub use value::Value;

#[cfg(test)]
mod tests;
