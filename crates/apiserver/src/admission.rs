//! Admission: what may change or refuse a write after authorisation and before the store.

mod certificates;
mod chain;
mod defaults;
mod expressions;
mod limits;
mod matching;
mod nodes;
mod patched;
pub(crate) mod pod_security;
mod pods;
mod policies;
mod priorities;
mod quota;
mod runtime_classes;
mod service_accounts;
mod storage;
mod views;
mod webhooks;

pub use chain::{connect, mutate, validate};
pub use policies::check as policy_errors;
pub use policies::check_webhooks as webhook_errors;
pub use views::Views;

use crate::auth::User;
use crate::catalogue::Resource;
use serde_json::Value;
use std::sync::Arc;

/// What a server can choose about admission.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings {
    pub service_accounts: ServiceAccounts,
}

/// Whether a pod needs its service account to be there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServiceAccounts {
    /// As in a cluster, whose controllers make a default account in every namespace.
    Required,
    /// For a server without controllers: a pod of an account that is not there runs without a token.
    #[default]
    WhenPresent,
}

/// The four operations that admission sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    Create,
    Update,
    Delete,
    Connect,
}

/// A write on its way through admission.
#[derive(Debug, Clone)]
pub struct Review {
    pub operation: Operation,
    pub resource: Arc<Resource>,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
    /// The new object; `None` for a delete.
    pub object: Option<Value>,
    /// The stored object; `None` for a create.
    pub old: Option<Arc<Value>>,
    /// CreateOptions, UpdateOptions, PatchOptions or DeleteOptions as sent.
    pub options: Value,
    pub dry_run: bool,
    pub user: User,
    /// Sent to the client as `Warning` headers.
    pub warnings: Vec<String>,
    pub audit_annotations: Vec<(String, String)>,
}
