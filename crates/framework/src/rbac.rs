//! The least permissions that controllers need, derived from what they declare.
//!
//! `stead manifests` prints them. A permission that no controller declares is not asked for.

use crate::kind::{Kind, Typed};
use k8s_openapi::api::rbac::v1::PolicyRule;
use std::collections::{BTreeMap, BTreeSet};

/// Verbs on one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The API group; empty for the core group.
    pub group: String,
    /// The plural, with a subresource after a slash.
    pub resources: BTreeSet<String>,
    /// What may be done.
    pub verbs: BTreeSet<String>,
}

impl Rule {
    /// Verbs on a resource, by name.
    pub fn new(group: &str, resources: &[&str], verbs: &[&str]) -> Self {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Rule {
            group: group.to_owned(),
            resources: set(resources),
            verbs: set(verbs),
        }
    }

    /// What a cache of the kind needs.
    pub fn cache<K: Typed>() -> Self {
        Rule::of::<K>("", &["list", "watch"])
    }

    /// What a controller needs that also reads single objects past the cache.
    pub fn read<K: Typed>() -> Self {
        Rule::of::<K>("", &["get", "list", "watch"])
    }

    /// What applying children of the kind needs. An apply that creates is a patch, and needs both rights.
    pub fn apply<K: Typed>() -> Self {
        Rule::of::<K>("", &["create", "patch"])
    }

    /// What pruning children of the kind needs: each is read again before it is deleted.
    pub fn prune<K: Typed>() -> Self {
        Rule::of::<K>("", &["get", "delete"])
    }

    /// What the controller of a root needs besides reading it: it is read again before anything of it is deleted, its
    /// status is written, and children may name it as the owner whose deletion they block, which some clusters allow
    /// only to those who may set its finalizers.
    pub fn owner<K: Typed>() -> Vec<Self> {
        vec![
            Rule::of::<K>("", &["get"]),
            Rule::of::<K>("/status", &["patch"]),
            Rule::of::<K>("/finalizers", &["update"]),
        ]
    }

    /// What a controller needs that writes children of the kind in ways of its own.
    pub fn write<K: Typed>() -> Self {
        Rule::of::<K>("", &["create", "patch", "delete"])
    }

    /// What a controller needs that writes status and finalizers of a kind in ways of its own.
    pub fn root<K: Typed>() -> Self {
        let kind = Kind::of::<K>();
        let (status, finalizers) = (format!("{}/status", kind.plural), format!("{}/finalizers", kind.plural));
        Rule::new(&kind.group, &[&kind.plural, &status, &finalizers], &["patch", "update"])
    }

    /// What a finalizer on a root needs.
    pub fn finalizer<K: Typed>() -> Self {
        Rule::of::<K>("", &["patch"])
    }

    fn of<K: Typed>(subresource: &str, verbs: &[&str]) -> Self {
        let kind = Kind::of::<K>();
        Rule::new(&kind.group, &[&format!("{}{subresource}", kind.plural)], verbs)
    }

    /// What every manager needs besides: its Lease and its events.
    pub fn manager() -> Vec<Rule> {
        vec![
            Rule::new("coordination.k8s.io", &["leases"], &["get", "create", "update"]),
            Rule::new("events.k8s.io", &["events"], &["create", "patch"]),
        ]
    }

    /// The same permissions in as few rules as possible, in a fixed order.
    pub fn merge(rules: Vec<Rule>) -> Vec<Rule> {
        let mut verbs: BTreeMap<(String, String), BTreeSet<String>> = BTreeMap::new();
        for rule in rules {
            for resource in rule.resources {
                let of = verbs.entry((rule.group.clone(), resource)).or_default();
                of.extend(rule.verbs.iter().cloned());
            }
        }
        let mut merged: BTreeMap<(String, BTreeSet<String>), BTreeSet<String>> = BTreeMap::new();
        for ((group, resource), verbs) in verbs {
            merged.entry((group, verbs)).or_default().insert(resource);
        }
        let rule = |((group, verbs), resources)| Rule {
            group,
            resources,
            verbs,
        };
        merged.into_iter().map(rule).collect()
    }
}

impl From<Rule> for PolicyRule {
    fn from(rule: Rule) -> Self {
        PolicyRule {
            api_groups: Some(vec![rule.group]),
            resources: Some(rule.resources.into_iter().collect()),
            verbs: rule.verbs.into_iter().collect(),
            ..PolicyRule::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};

    #[test]
    fn rules_with_the_same_verbs_become_one() {
        let rules = vec![
            Rule::cache::<Deployment>(),
            Rule::apply::<Deployment>(),
            Rule::prune::<Deployment>(),
            Rule::cache::<StatefulSet>(),
            Rule::apply::<StatefulSet>(),
            Rule::prune::<StatefulSet>(),
        ];
        let merged = Rule::merge(rules);
        assert_eq!(merged.len(), 1, "{merged:?}");
        assert_eq!(
            merged[0],
            Rule::new(
                "apps",
                &["deployments", "statefulsets"],
                &["create", "delete", "get", "list", "patch", "watch"]
            )
        );
    }
}
