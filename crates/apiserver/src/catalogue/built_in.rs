//! The kinds and resources of Kubernetes itself, from the data that `cargo xtask schemas` wrote.
//!
//! The data is inflated once in a process, when the first server asks for it; hundreds of servers in one
//! test binary share it.

use super::{Catalogue, Origin, Resource, Subresource};
use flate2::read::DeflateDecoder;
use std::io::Read;
use std::sync::{Arc, LazyLock};
use stead_machinery::published::{self, Api, Group};
use stead_machinery::schema::{NodeId, SchemaRef, Schemas};

static BUILT_IN: LazyLock<BuiltIn> = LazyLock::new(load);

struct BuiltIn {
    release: String,
    schemas: Arc<Schemas>,
    kinds: std::collections::BTreeMap<(String, String, String), NodeId>,
    groups: Vec<Group>,
    catalogue: Catalogue,
}

impl Catalogue {
    /// Every resource that Kubernetes serves by default.
    pub fn built_in() -> Catalogue {
        BUILT_IN.catalogue.clone()
    }

    /// The same, and what nodes and pods use (`metrics.k8s.io`), which on Kubernetes a server of its own adds.
    pub fn with_usage() -> Catalogue {
        let mut catalogue = Catalogue::built_in();
        crate::kinds::usage::add_to(&mut catalogue);
        catalogue
    }
}

/// The Kubernetes release whose schemas are embedded, `v1.36.4`.
pub fn release() -> &'static str {
    &BUILT_IN.release
}

/// The groups of Kubernetes in discovery's order, which is the order in which clients resolve short names.
pub fn groups() -> &'static [Group] {
    &BUILT_IN.groups
}

/// The arena of all built-in types.
pub fn schemas() -> &'static Arc<Schemas> {
    &BUILT_IN.schemas
}

/// The schema of a built-in kind, also of those that no resource stores: `autoscaling/v1 Scale`, `v1 DeleteOptions`.
pub fn kind(group: &str, version: &str, kind: &str) -> Option<SchemaRef<'static>> {
    BUILT_IN
        .kinds
        .get(&(group.to_string(), version.to_string(), kind.to_string()))
        .map(|&place| BUILT_IN.schemas.at(place))
}

fn load() -> BuiltIn {
    let bytes = inflate(include_bytes!("../../data/api.bin"));
    let api: Api = postcard::from_bytes(&bytes).expect("the embedded data was written by the same types");
    let schemas = Arc::new(api.schemas);
    let mut catalogue = Catalogue::default();
    for group in &api.groups {
        for version in &group.versions {
            for listed in version.resources.iter().filter(|r| !r.name.contains('/')) {
                let key = (group.name.clone(), version.name.clone(), listed.kind.clone());
                let root = *api
                    .kinds
                    .get(&key)
                    .expect("the chore checks that every resource has a schema");
                catalogue.insert(Resource {
                    group: group.name.clone(),
                    version: version.name.clone(),
                    plural: listed.name.clone(),
                    singular: listed.singular.clone(),
                    kind: listed.kind.clone(),
                    list_kind: format!("{}List", listed.kind),
                    short_names: listed.short_names.clone(),
                    categories: listed.categories.clone(),
                    namespaced: listed.namespaced,
                    verbs: listed.verbs.clone(),
                    subresources: subresources(group, version, &listed.name),
                    schemas: schemas.clone(),
                    root,
                    origin: Origin::BuiltIn,
                });
            }
        }
    }
    BuiltIn {
        release: api.release,
        schemas,
        kinds: api.kinds,
        groups: api.groups,
        catalogue,
    }
}

fn subresources(group: &Group, version: &published::Version, plural: &str) -> Vec<Subresource> {
    let or = |own: &String, parents: &String| if own.is_empty() { parents.clone() } else { own.clone() };
    version
        .resources
        .iter()
        .filter_map(|listed| {
            let (parent, name) = listed.name.split_once('/')?;
            (parent == plural).then(|| Subresource {
                name: name.to_string(),
                // The core group has the empty name, so a group of another's is told by its version.
                group: if listed.version.is_empty() {
                    group.name.clone()
                } else {
                    listed.group.clone()
                },
                version: or(&listed.version, &version.name),
                kind: listed.kind.clone(),
                verbs: listed.verbs.clone(),
            })
        })
        .collect()
}

/// Inflates a piece of the embedded data.
pub(crate) fn inflate(bytes: &[u8]) -> Vec<u8> {
    let mut inflated = Vec::with_capacity(bytes.len() * 8);
    DeflateDecoder::new(bytes)
        .read_to_end(&mut inflated)
        .expect("the embedded data was deflated by the chore that wrote it");
    inflated
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_group_of_kubernetes_is_served_in_its_stable_versions() {
        let catalogue = Catalogue::built_in();
        let groups: std::collections::BTreeSet<_> = catalogue.iter().map(|r| r.group.as_str()).collect();
        assert_eq!(groups.len(), 21);
        assert_eq!(groups.iter().filter(|g| g.ends_with("autoscaling")).count(), 1);
        assert!(catalogue.get("autoscaling", "v1", "horizontalpodautoscalers").is_some());
        assert!(catalogue.get("autoscaling", "v2", "horizontalpodautoscalers").is_some());
        assert!(
            catalogue
                .iter()
                .all(|r| !r.version.contains("beta") && !r.version.contains("alpha"))
        );
    }

    #[test]
    fn pods_have_their_schema_subresources_and_short_name() {
        let catalogue = Catalogue::built_in();
        let pods = catalogue.get("", "v1", "pods").expect("pods are served");
        assert_eq!(pods.short_names, ["po"]);
        let eviction = pods.subresource("eviction").expect("pods can be evicted");
        assert_eq!((eviction.group.as_str(), eviction.version.as_str()), ("policy", "v1"));
        let status = pods.subresource("status").expect("pods have a status");
        assert_eq!((status.group.as_str(), status.version.as_str()), ("", "v1"));
        let containers = pods.schema().field("spec").and_then(|s| s.field("containers"));
        assert!(containers.is_some());
    }

    #[test]
    fn only_real_defaults_are_kept() {
        let port = schemas()
            .named("io.k8s.api.core.v1.ContainerPort")
            .expect("a core type");
        assert_eq!(port.field("protocol").and_then(SchemaRef::default), Some("TCP".into()));
        assert_eq!(port.field("containerPort").and_then(SchemaRef::default), None);
    }

    #[test]
    fn kinds_without_a_resource_have_a_schema_too() {
        assert!(kind("autoscaling", "v1", "Scale").is_some());
        assert!(kind("", "v1", "DeleteOptions").is_some());
        assert!(kind("policy", "v1", "Eviction").is_some());
    }
}
