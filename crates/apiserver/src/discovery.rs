//! Discovery: what the server serves, as clients ask for it.
//!
//! Every client begins here: kubectl and client-go with one aggregated document, Helm and older clients
//! with one document per group and version. All are pure functions of a catalogue; [`Discovery`] keeps the
//! bytes of one snapshot, so that polling clients cost nothing.

use crate::catalogue::{Catalogue, Origin, Resource, built_in};
use bytes::Bytes;
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

/// The media type of the aggregated form.
pub const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// A document that changes only with the catalogue.
#[derive(Debug, Clone)]
pub struct Page {
    pub content_type: &'static str,
    /// Quoted, as the header has it.
    pub etag: String,
    pub body: Bytes,
}

/// The documents of one catalogue.
#[derive(Debug)]
pub struct Discovery {
    catalogue: Arc<Catalogue>,
    core: OnceLock<Page>,
    groups: OnceLock<Page>,
}

impl Page {
    /// A page whose tag is a hash of its bytes.
    pub fn new(content_type: &'static str, body: impl Into<Bytes>) -> Self {
        let body = body.into();
        let etag = format!("\"{}\"", hash(&body));
        Page {
            content_type,
            etag,
            body,
        }
    }

    /// Whether an `If-None-Match` header names this page, so that 304 answers it.
    pub fn matches(&self, if_none_match: Option<&str>) -> bool {
        if_none_match.is_some_and(|tags| tags.split(',').any(|tag| tag.trim() == self.etag || tag.trim() == "*"))
    }
}

impl Discovery {
    pub fn new(catalogue: Arc<Catalogue>) -> Self {
        Discovery {
            catalogue,
            core: OnceLock::new(),
            groups: OnceLock::new(),
        }
    }

    /// The answer for a discovery path (`/api`, `/apis`, `/api/v1`, `/apis/G`, `/apis/G/V`); `None` for any
    /// other path and for a group or version that is not served.
    pub fn page(&self, path: &str, accept: Option<&str>, server_address: &str) -> Option<Page> {
        let path = path.trim_matches('/');
        let parts: Vec<&str> = path.split('/').collect();
        let aggregated = accept.is_some_and(wants_aggregated);
        let value = match parts.as_slice() {
            ["api"] if aggregated => {
                let page = || Page::new(AGGREGATED, aggregate(&self.catalogue, Part::Core).to_string());
                return Some(self.core.get_or_init(page).clone());
            }
            ["apis"] if aggregated => {
                let page = || Page::new(AGGREGATED, aggregate(&self.catalogue, Part::Groups).to_string());
                return Some(self.groups.get_or_init(page).clone());
            }
            ["api"] => versions(server_address),
            ["apis"] => group_list(&self.catalogue),
            ["api", version] => resource_list(&self.catalogue, "", version)?,
            ["apis", name] => group(&self.catalogue, name)?,
            ["apis", group, version] if !group.is_empty() => resource_list(&self.catalogue, group, version)?,
            _ => return None,
        };
        Some(Page::new("application/json", value.to_string()))
    }
}

/// Which of the two aggregated documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Core,
    Groups,
}

/// Whether the first form that the client can read is the aggregated one.
pub fn wants_aggregated(accept: &str) -> bool {
    for option in accept.split(',') {
        let parts: Vec<&str> = option.split(';').map(str::trim).collect();
        let has = |wanted: &str| parts.contains(&wanted);
        if !["application/json", "*/*", "application/*"].contains(&parts[0]) {
            continue;
        }
        let aggregated = has("g=apidiscovery.k8s.io") && has("as=APIGroupDiscoveryList");
        if aggregated && has("v=v2") {
            return true;
        }
        if !aggregated && !parts.iter().any(|p| p.starts_with("as=")) {
            return false;
        }
    }
    false
}

/// Groups in the order in which clients resolve names: Kubernetes' own order, then the others by name.
pub fn group_names(catalogue: &Catalogue) -> Vec<&str> {
    let mut names: Vec<&str> = catalogue.iter().map(|r| r.group.as_str()).collect();
    let rank = |name: &str| {
        built_in::groups()
            .iter()
            .position(|g| g.name == name)
            .unwrap_or(usize::MAX)
    };
    names.sort_by_key(|name| (rank(name), name.to_string()));
    names.dedup();
    names
}

/// The served versions of a group, preferred first.
pub fn group_versions<'a>(catalogue: &'a Catalogue, group: &str) -> Vec<&'a str> {
    let of_group = catalogue.iter().filter(|r| r.group == group);
    let mut versions: Vec<&str> = of_group.map(|r| r.version.as_str()).collect();
    versions.sort_by_key(|version| Reverse(version_priority(version)));
    versions.dedup();
    versions
}

/// Kubernetes' order of versions: `v2` before `v1` before `v1beta2` before `v1alpha1` before all other names.
pub fn version_priority(version: &str) -> impl Ord + use<> {
    let parsed = version.strip_prefix('v').and_then(|rest| {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let major: u64 = rest[..digits].parse().ok()?;
        let (stability, minor) = match &rest[digits..] {
            "" => (3, Some(0)),
            tail => match (tail.strip_prefix("beta"), tail.strip_prefix("alpha")) {
                (Some(minor), _) => (2, minor.parse().ok()),
                (_, Some(minor)) => (1, minor.parse().ok()),
                _ => (0, None),
            },
        };
        let minor: u64 = minor?;
        Some((stability, major, minor))
    });
    (parsed, Reverse(version.to_string()))
}

fn aggregate(catalogue: &Catalogue, part: Part) -> Value {
    let items: Vec<Value> = group_names(catalogue)
        .into_iter()
        .filter(|name| name.is_empty() == (part == Part::Core))
        .map(|name| {
            let versions: Vec<Value> = group_versions(catalogue, name)
                .into_iter()
                .map(|version| {
                    let resources: Vec<Value> = in_version(catalogue, name, version).map(|r| aggregated(r)).collect();
                    json!({"version": version, "resources": resources, "freshness": "Current"})
                })
                .collect();
            let metadata = if name.is_empty() {
                json!({})
            } else {
                json!({"name": name})
            };
            json!({"metadata": metadata, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregated(resource: &Resource) -> Value {
    // Kubernetes leaves group and version of its own kinds empty, and clients fill in the parent's.
    let kind = |group: &str, version: &str, kind: &str| {
        let own = matches!(resource.origin, Origin::BuiltIn) && group == resource.group && version == resource.version;
        match own {
            true => json!({"group": "", "version": "", "kind": kind}),
            false => json!({"group": group, "version": version, "kind": kind}),
        }
    };
    let mut entry = json!({
        "resource": resource.plural,
        "responseKind": kind(&resource.group, &resource.version, &resource.kind),
        "scope": if resource.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    });
    add_names(&mut entry, resource);
    let subresources: Vec<Value> = resource
        .subresources
        .iter()
        .map(|sub| {
            let response = kind(&sub.group, &sub.version, &sub.kind);
            json!({"subresource": sub.name, "responseKind": response, "verbs": sub.verbs})
        })
        .collect();
    if !subresources.is_empty() {
        entry["subresources"] = subresources.into();
    }
    entry
}

fn add_names(entry: &mut Value, resource: &Resource) {
    if !resource.short_names.is_empty() {
        entry["shortNames"] = json!(resource.short_names);
    }
    if !resource.categories.is_empty() {
        entry["categories"] = json!(resource.categories);
    }
}

fn in_version<'a>(catalogue: &'a Catalogue, group: &str, version: &str) -> impl Iterator<Item = &'a Arc<Resource>> {
    catalogue
        .iter()
        .filter(move |r| r.group == group && r.version == version)
}

fn versions(server_address: &str) -> Value {
    json!({
        "kind": "APIVersions", "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    })
}

fn group_list(catalogue: &Catalogue) -> Value {
    let groups: Vec<Value> = group_names(catalogue)
        .into_iter()
        .filter(|name| !name.is_empty())
        .map(|name| described(catalogue, name))
        .collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

fn group(catalogue: &Catalogue, name: &str) -> Option<Value> {
    if name.is_empty() || group_versions(catalogue, name).is_empty() {
        return None;
    }
    let mut value = described(catalogue, name);
    value["kind"] = "APIGroup".into();
    value["apiVersion"] = "v1".into();
    Some(value)
}

fn described(catalogue: &Catalogue, name: &str) -> Value {
    let versions: Vec<Value> = group_versions(catalogue, name)
        .into_iter()
        .map(|version| json!({"groupVersion": format!("{name}/{version}"), "version": version}))
        .collect();
    json!({"name": name, "preferredVersion": versions.first(), "versions": versions})
}

fn resource_list(catalogue: &Catalogue, group: &str, version: &str) -> Option<Value> {
    let mut entries: BTreeMap<String, Value> = BTreeMap::new();
    for resource in in_version(catalogue, group, version) {
        let mut entry = json!({
            "name": resource.plural, "singularName": resource.singular, "namespaced": resource.namespaced,
            "kind": resource.kind, "verbs": resource.verbs,
        });
        add_names(&mut entry, resource);
        if resource.verbs.iter().any(|verb| verb == "list") {
            entry["storageVersionHash"] = storage_version_hash(resource).into();
        }
        entries.insert(resource.plural.clone(), entry);
        for sub in &resource.subresources {
            let name = format!("{}/{}", resource.plural, sub.name);
            let mut entry = json!({
                "name": name, "singularName": "", "namespaced": resource.namespaced,
                "kind": sub.kind, "verbs": sub.verbs,
            });
            if (&sub.group, &sub.version) != (&resource.group, &resource.version) {
                entry["group"] = sub.group.as_str().into();
                entry["version"] = sub.version.as_str().into();
            }
            entries.insert(name, entry);
        }
    }
    let group_version = if group.is_empty() {
        version.to_string()
    } else {
        format!("{group}/{version}")
    };
    let resources: Vec<Value> = entries.into_values().collect();
    // The version of the core group has its own list kind's version left out, as Kubernetes does.
    let mut list = json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources});
    if !group.is_empty() {
        list["apiVersion"] = "v1".into();
    }
    (!resources.is_empty()).then_some(list)
}

/// Eight bytes that change with the storage version; clients only compare them.
fn storage_version_hash(resource: &Resource) -> String {
    use base64::Engine;
    let text = format!("{}/{}/{}", resource.group, resource.version, resource.kind);
    let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
    base64::engine::general_purpose::STANDARD.encode(&digest.as_ref()[..8])
}

/// A content hash for tags and paths, in capitals as Kubernetes writes them.
pub fn hash(bytes: &[u8]) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA512, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(path: &str, accept: Option<&str>) -> Value {
        let discovery = Discovery::new(Arc::new(Catalogue::built_in()));
        let page = discovery
            .page(path, accept, "127.0.0.1:6443")
            .expect("a discovery path");
        serde_json::from_slice(&page.body).expect("JSON")
    }

    #[test]
    fn kubectl_gets_every_group_in_one_document() {
        let accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        let groups = page("/apis", Some(accept));
        assert_eq!(groups["kind"], "APIGroupDiscoveryList");
        assert_eq!(groups["items"][0]["metadata"]["name"], "apiregistration.k8s.io");
        assert_eq!(groups["items"].as_array().map(Vec::len), Some(20));
        let core = page("/api", Some(accept));
        let pods = core["items"][0]["versions"][0]["resources"]
            .as_array()
            .expect("resources");
        assert!(
            pods.iter()
                .any(|r| r["resource"] == "pods" && r["scope"] == "Namespaced")
        );
    }

    #[test]
    fn a_client_that_prefers_the_legacy_form_gets_it() {
        assert_eq!(page("/apis", None)["kind"], "APIGroupList");
        assert_eq!(page("/apis/apps", None)["preferredVersion"]["version"], "v1");
        assert_eq!(page("/api", Some("application/json"))["kind"], "APIVersions");
        let apps = page("/apis/apps/v1", None);
        let scale = apps["resources"]
            .as_array()
            .expect("a list")
            .iter()
            .find(|r| r["name"] == "deployments/scale");
        assert_eq!(scale.map(|s| &s["group"]), Some(&"autoscaling".into()));
    }

    #[test]
    fn an_unchanged_document_is_recognised_by_its_tag() {
        let discovery = Discovery::new(Arc::new(Catalogue::built_in()));
        let first = discovery.page("/apis", Some(AGGREGATED), "").expect("a page");
        assert!(first.matches(Some(&first.etag)));
        assert!(!first.matches(Some("\"other\"")));
        assert!(!first.matches(None));
    }

    #[test]
    fn what_is_not_served_is_not_found() {
        let discovery = Discovery::new(Arc::new(Catalogue::built_in()));
        for path in ["/apis/nonsense", "/apis/apps/v9", "/api/v2", "/apis//v1", "/other"] {
            assert!(discovery.page(path, None, "").is_none(), "{path}");
        }
    }

    #[test]
    fn versions_are_ordered_as_kubernetes_orders_them() {
        let mut versions = vec!["v1alpha1", "foo1", "v2", "v1beta1", "v10", "v1beta2", "v1", "bar"];
        versions.sort_by_key(|v| Reverse(version_priority(v)));
        assert_eq!(
            versions,
            ["v10", "v2", "v1", "v1beta2", "v1beta1", "v1alpha1", "bar", "foo1"]
        );
    }
}
