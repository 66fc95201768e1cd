//! Every resource that Kubernetes serves by default, from its published discovery documents.

use anyhow::{Context, Result};
use serde::Deserialize;
use std::path::Path;
use stead_machinery::published::{Group, Resource, Version};

#[derive(Deserialize)]
struct Aggregated {
    items: Vec<AggregatedGroup>,
}

#[derive(Deserialize)]
struct AggregatedGroup {
    metadata: Named,
    versions: Vec<AggregatedVersion>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
struct AggregatedVersion {
    version: String,
}

#[derive(Deserialize)]
struct Legacy {
    resources: Vec<LegacyResource>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct LegacyResource {
    name: String,
    singular_name: String,
    namespaced: bool,
    group: String,
    version: String,
    kind: String,
    verbs: Vec<String>,
    short_names: Vec<String>,
    categories: Vec<String>,
    storage_version_hash: String,
}

/// The core group first, then the others in discovery's order, with their stable versions only: betas
/// and alphas are published but off by default.
pub fn read(folder: &Path) -> Result<Vec<Group>> {
    let aggregated: Aggregated = parse(&folder.join("aggregated_v2.json"))?;
    let mut groups = vec![Group {
        name: String::new(),
        versions: vec![Version {
            name: "v1".into(),
            resources: resources(&folder.join("api__v1.json"))?,
        }],
    }];
    for group in aggregated.items {
        let name = group.metadata.name;
        let mut versions = Vec::new();
        for version in group.versions.into_iter().map(|v| v.version) {
            if is_stable(&version) {
                let resources = resources(&folder.join(format!("apis__{name}__{version}.json")))?;
                versions.push(Version {
                    name: version,
                    resources,
                });
            }
        }
        if !versions.is_empty() {
            groups.push(Group { name, versions });
        }
    }
    Ok(groups)
}

fn is_stable(version: &str) -> bool {
    version
        .strip_prefix('v')
        .is_some_and(|number| number.chars().all(|c| c.is_ascii_digit()))
}

fn resources(path: &Path) -> Result<Vec<Resource>> {
    let legacy: Legacy = parse(path)?;
    Ok(legacy
        .resources
        .into_iter()
        .map(|r| Resource {
            name: r.name,
            singular: r.singular_name,
            namespaced: r.namespaced,
            group: r.group,
            version: r.version,
            kind: r.kind,
            verbs: r.verbs,
            short_names: r.short_names,
            categories: r.categories,
            storage_version_hash: r.storage_version_hash,
        })
        .collect())
}

/// Reads a JSON file.
pub fn parse<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_slice(&text).with_context(|| format!("parsing {}", path.display()))
}
