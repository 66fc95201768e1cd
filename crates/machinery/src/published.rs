//! Kubernetes' published API description as compact data: what `cargo xtask schemas` writes and the API server embeds.
//!
//! The types live here because the chore that writes the data and the server that reads it must agree to
//! the byte, and neither may depend on the other.

use crate::schema::{NodeId, Schemas};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The structure of every built-in kind, and every built-in resource. Descriptions are in [`Documents`].
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Api {
    /// The Kubernetes release that this describes, `v1.36.4`.
    pub release: String,
    pub schemas: Schemas,
    /// Group, version and kind to the schema of that kind; options such as `DeleteOptions` are under the core group.
    pub kinds: BTreeMap<(String, String, String), NodeId>,
    /// Groups in the order in which discovery lists them, each with its versions, preferred first.
    pub groups: Vec<Group>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Group {
    pub name: String,
    pub versions: Vec<Version>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Version {
    pub name: String,
    pub resources: Vec<Resource>,
}

/// One resource or subresource (`pods/status`) as legacy discovery describes it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Resource {
    pub name: String,
    pub singular: String,
    pub namespaced: bool,
    /// Empty: the group and version that the resource is listed under.
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub storage_version_hash: String,
}

/// The OpenAPI v3 documents, cut so that a document is put together without parsing anything.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Documents {
    /// Path below `/openapi/v3/` (`apis/apps/v1`) to its document.
    pub documents: BTreeMap<String, Document>,
    /// JSON texts of schemas, each once, as one deflated postcard `Vec<String>`.
    pub schemas: Vec<u8>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Document {
    /// Schema name to its place in [`Documents::schemas`].
    pub schemas: BTreeMap<String, u32>,
    /// Deflated JSON text of `paths`.
    pub paths: Vec<u8>,
}
