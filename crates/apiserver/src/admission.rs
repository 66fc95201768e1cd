//! Admission: what may change or refuse a write after authorisation and before the store.

use crate::auth::User;
use crate::catalogue::Resource;
use serde_json::Value;
use std::sync::Arc;

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
