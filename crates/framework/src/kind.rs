//! Kinds of objects, as values.
//!
//! Rust types know their kind at compile time, but a garbage collector or a plan with foreign objects
//! learns it at run time. Everything inside the framework works on [`Kind`], so both are the same to it.

use crate::key::Key;
use kube::Resource;
use kube::core::{ClusterResourceScope, DynamicObject, NamespaceResourceScope};
use kube::discovery::ApiResource;
use serde::de::DeserializeOwned;
use std::any::TypeId;
use std::borrow::Cow;
use std::fmt;

/// The groups that every Kubernetes serves by itself, of those whose names have a dot.
const BUILT_IN: [&str; 18] = [
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "internal.apiserver.k8s.io",
    "networking.k8s.io",
    "node.k8s.io",
    "rbac.authorization.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
    "storagemigration.k8s.io",
];

/// Anything that the cache can hold: it has metadata and comes from JSON.
pub trait Object: Resource + DeserializeOwned + Send + Sync + 'static {}
impl<K: Resource + DeserializeOwned + Send + Sync + 'static> Object for K {}

/// An [`Object`] whose kind is known at compile time.
pub trait Typed: Object + Resource<DynamicType = (), Scope: 'static> {}
impl<K: Object + Resource<DynamicType = (), Scope: 'static>> Typed for K {}

/// Whether objects of a kind live in namespaces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Scope {
    /// They do not.
    Cluster,
    /// They do.
    Namespaced,
}

/// A kind, with everything that is needed to talk to the API server about it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: Cow<'static, str>,
    /// The version, as `v1`.
    pub version: Cow<'static, str>,
    /// The name in objects, as `Deployment`.
    pub kind: Cow<'static, str>,
    /// The name in URLs, as `deployments`.
    pub plural: Cow<'static, str>,
    /// Whether its objects live in namespaces.
    pub scope: Scope,
}

impl Kind {
    /// The kind of a Rust type.
    ///
    /// ```
    /// use k8s_openapi::api::apps::v1::Deployment;
    /// let kind = stead::Kind::of::<Deployment>();
    /// assert_eq!(kind.path(Some("shop")), "/apis/apps/v1/namespaces/shop/deployments");
    /// ```
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType = ()>,
        K::Scope: 'static,
    {
        // A type whose scope is dynamic never has `DynamicType = ()`, so two answers are enough.
        let scope = match TypeId::of::<K::Scope>() == TypeId::of::<ClusterResourceScope>() {
            true => Scope::Cluster,
            false => {
                debug_assert_eq!(TypeId::of::<K::Scope>(), TypeId::of::<NamespaceResourceScope>());
                Scope::Namespaced
            }
        };
        Kind {
            group: K::group(&()),
            version: K::version(&()),
            kind: K::kind(&()),
            plural: K::plural(&()),
            scope,
        }
    }

    /// A kind learnt at run time, from discovery.
    pub fn dynamic(resource: &ApiResource, scope: Scope) -> Self {
        Kind {
            group: resource.group.clone().into(),
            version: resource.version.clone().into(),
            kind: resource.kind.clone().into(),
            plural: resource.plural.clone().into(),
            scope,
        }
    }

    /// What kube wants to know about a dynamic object of this kind.
    pub fn api_resource(&self) -> ApiResource {
        ApiResource {
            group: self.group.to_string(),
            version: self.version.to_string(),
            api_version: self.api_version(),
            kind: self.kind.to_string(),
            plural: self.plural.to_string(),
        }
    }

    /// `group/version`, or the version alone for the core group.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.to_string(),
            false => format!("{}/{}", self.group, self.version),
        }
    }

    /// Whether an `apiVersion` and `kind` mean this kind, in whatever version.
    pub fn is(&self, api_version: &str, kind: &str) -> bool {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        self.kind == kind && self.group == group
    }

    /// `deployments.apps`, the name that people and RBAC messages use.
    pub fn resource(&self) -> String {
        match self.group.is_empty() {
            true => self.plural.to_string(),
            false => format!("{}.{}", self.plural, self.group),
        }
    }

    /// Whether a server that has it may come to lose it. Kubernetes' own kinds stay: a "not found" for one of them comes
    /// from something on the way, and says nothing about its objects. The ending of a group does not tell: Gateways and
    /// snapshots are custom kinds of groups that end in `.k8s.io`.
    pub(crate) fn may_go(&self) -> bool {
        self.group.contains('.') && !BUILT_IN.contains(&&*self.group)
    }

    /// The path of the collection: of a namespace, or of all of them.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = match self.group.is_empty() {
            true => "/api",
            false => "/apis",
        };
        match (self.scope, namespace) {
            (Scope::Namespaced, Some(namespace)) => {
                format!("{root}/{}/namespaces/{namespace}/{}", self.api_version(), self.plural)
            }
            _ => format!("{root}/{}/{}", self.api_version(), self.plural),
        }
    }

    /// The path of one object.
    pub fn path_of(&self, key: &Key) -> String {
        format!("{}/{}", self.path(key.namespace()), key.name())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.kind, self.api_version())
    }
}

impl serde::Serialize for Kind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{self:?}"))
    }
}

/// Only the metadata of an object of any kind: what a garbage collector needs.
pub type Metadata = kube::core::PartialObjectMeta<DynamicObject>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_definitions_may_go_whatever_their_group_ends_in() {
        let of = |group: &'static str| Kind {
            group: group.into(),
            version: "v1".into(),
            kind: "Thing".into(),
            plural: "things".into(),
            scope: Scope::Namespaced,
        };
        for stays in ["", "apps", "batch", "networking.k8s.io", "rbac.authorization.k8s.io"] {
            assert!(!of(stays).may_go(), "{stays}");
        }
        for goes in ["stead.dev", "gateway.networking.k8s.io", "snapshot.storage.k8s.io"] {
            assert!(of(goes).may_go(), "{goes}");
        }
    }
}
