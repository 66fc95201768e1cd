//! The resources that this server serves: built-in ones, and those that custom resource definitions add.
//!
//! A catalogue is an immutable snapshot. A changed definition makes a new one; a request that is under
//! way keeps the one it began with.

pub mod built_in;

use crate::error::GroupResource;
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_machinery::schema::{NodeId, SchemaRef, Schemas};

/// One served resource in one version.
#[derive(Debug, Clone)]
pub struct Resource {
    pub group: String,
    pub version: String,
    /// `pods`.
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub list_kind: String,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub namespaced: bool,
    /// Verbs of the main resource, as discovery lists them.
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    /// The schema of the kind in this version.
    pub schemas: Arc<Schemas>,
    pub root: NodeId,
    pub origin: Origin,
}

/// Where a resource comes from, and with it who defaults, validates and converts it.
#[derive(Debug, Clone)]
pub enum Origin {
    BuiltIn,
    Custom(Arc<crate::custom::CustomKind>),
}

/// A path below an object: `status`, `scale`, `eviction`.
#[derive(Debug, Clone)]
pub struct Subresource {
    pub name: String,
    /// The kind that is sent and received there; often not the parent's (`autoscaling/v1 Scale`).
    pub group: String,
    pub version: String,
    pub kind: String,
    pub verbs: Vec<String>,
}

/// Every resource that is served at one moment.
#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    by_path: BTreeMap<(String, String, String), Arc<Resource>>,
}

impl Resource {
    /// `apps/v1`, or `v1` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Where objects of this kind are stored: `apps/deployments`, `/pods` for the core group. Events of both
    /// groups are one kind and live in one place.
    pub fn storage(&self) -> String {
        match (self.group.as_str(), self.plural.as_str()) {
            ("events.k8s.io", "events") => "/events".to_string(),
            (group, plural) => format!("{group}/{plural}"),
        }
    }

    pub fn origin_is_built_in(&self) -> bool {
        matches!(self.origin, Origin::BuiltIn)
    }

    pub fn group_resource(&self) -> GroupResource {
        GroupResource {
            group: self.group.clone(),
            resource: self.plural.clone(),
        }
    }

    pub fn schema(&self) -> SchemaRef<'_> {
        self.schemas.at(self.root)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|sub| sub.name == name)
    }

    pub fn has_status(&self) -> bool {
        self.subresource("status").is_some()
    }
}

impl Catalogue {
    pub fn insert(&mut self, resource: Resource) {
        let path = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.by_path.insert(path, Arc::new(resource));
    }

    pub fn get(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Resource>> {
        self.by_path
            .get(&(group.to_string(), version.to_string(), plural.to_string()))
    }

    /// The resource of a kind, for bodies and owner references that name kinds.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<&Arc<Resource>> {
        self.iter()
            .find(|r| r.group == group && r.version == version && r.kind == kind)
    }

    /// All resources in order of group, version and name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.by_path.values()
    }
}
