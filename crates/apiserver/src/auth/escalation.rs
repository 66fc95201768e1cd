//! Escalation checks: nobody grants more than they hold.
//!
//! A role or binding may only be written by somebody who already has every permission in it, who is
//! expressly allowed to `escalate` or `bind`, or who is a master. Without this, the right to write roles
//! would be the right to everything.

use super::rbac::{self, GROUP, Policy, RoleRef, Rule, has};
use super::{Attributes, Decision, User, go_quote, go_quote_list};
use crate::error::{ApiError, GroupResource, Result};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// A write to one of the four RBAC kinds.
#[derive(Debug)]
pub struct Grant<'a> {
    /// `clusterroles`, `roles`, `clusterrolebindings` or `rolebindings`; anything else is let through.
    pub resource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
    pub new: &'a Value,
    pub old: Option<&'a Value>,
}

/// Refuses a write that would give somebody more than the writer holds.
pub fn check(policy: &Policy, user: &User, grant: &Grant<'_>) -> Result<()> {
    if user.is_master() || grant.old.is_some_and(|old| only_references_differ(old, grant.new)) {
        return Ok(());
    }
    match grant.resource {
        "clusterroles" | "roles" => check_role(policy, user, grant),
        "clusterrolebindings" | "rolebindings" => check_binding(policy, user, grant),
        _ => Ok(()),
    }
}

fn check_role(policy: &Policy, user: &User, grant: &Grant<'_>) -> Result<()> {
    let escalate = Attributes::resource("escalate", GROUP, grant.resource, grant.namespace, grant.name);
    if matches!(policy.authorize(user, &escalate), Decision::Allow { .. }) {
        return Ok(());
    }
    let rules: Vec<Rule> = parse(&grant.new["rules"])?;
    confirm(policy, user, grant.namespace, &rules).map_err(|why| forbidden(grant, why))?;
    let aggregates = has_aggregation(grant.new) || grant.old.is_some_and(has_aggregation);
    if aggregates && confirm(policy, user, "", &full_authority()).is_err() {
        return Err(forbidden(
            grant,
            "must have cluster-admin privileges to use the aggregationRule".to_string(),
        ));
    }
    Ok(())
}

fn check_binding(policy: &Policy, user: &User, grant: &Grant<'_>) -> Result<()> {
    let role: RoleRef = parse(&grant.new["roleRef"])?;
    let resource = match role.kind.as_str() {
        "ClusterRole" => "clusterroles",
        "Role" => "roles",
        // Validation refuses other kinds with a message of its own.
        _ => return Ok(()),
    };
    let bind = Attributes::resource("bind", &role.api_group, resource, grant.namespace, &role.name);
    if matches!(policy.authorize(user, &bind), Decision::Allow { .. }) {
        return Ok(());
    }
    let rules = policy
        .rules_of(&role, grant.namespace)
        .map_err(|_| ApiError::not_found(&group_resource(grant), &role.name))?;
    confirm(policy, user, grant.namespace, rules).map_err(|why| forbidden(grant, why))
}

/// Whether the user already holds all of these rules; otherwise the message that says which are missing.
fn confirm(policy: &Policy, user: &User, namespace: &str, rules: &[Rule]) -> Result<(), String> {
    let held = policy.rules_for(user, namespace);
    let missing: Vec<Rule> = rules
        .iter()
        .flat_map(break_down)
        .filter(|wanted| !held.rules.iter().any(|rule| covers(rule, wanted)))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let lines: BTreeSet<String> = compact(missing).iter().map(describe).collect();
    let mut message = format!(
        "user {} (groups={}) is attempting to grant RBAC permissions not currently held:\n{}",
        go_quote(&user.name),
        go_quote_list(&user.groups),
        lines.into_iter().collect::<Vec<_>>().join("\n")
    );
    if !held.errors.is_empty() {
        message.push_str(&format!("; resolution errors: [{}]", rbac::aggregate(&held.errors)));
    }
    Err(message)
}

fn parse<T: serde::de::DeserializeOwned + Default>(value: &Value) -> Result<T> {
    if value.is_null() {
        return Ok(T::default());
    }
    T::deserialize(value).map_err(|error| ApiError::bad_request(error.to_string()))
}

fn group_resource(grant: &Grant<'_>) -> GroupResource {
    GroupResource {
        group: GROUP.to_string(),
        resource: grant.resource.to_string(),
    }
}

fn forbidden(grant: &Grant<'_>, why: String) -> ApiError {
    ApiError::forbidden(&group_resource(grant), grant.name, why)
}

/// The garbage collector removes owner references and finalizers of roles that it could never write itself.
fn only_references_differ(old: &Value, new: &Value) -> bool {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["ownerReferences", "finalizers", "managedFields", "resourceVersion"] {
                metadata.remove(field);
            }
        }
        object
    };
    bare(old) == bare(new)
}

fn has_aggregation(role: &Value) -> bool {
    role["aggregationRule"]["clusterRoleSelectors"]
        .as_array()
        .is_some_and(|selectors| !selectors.is_empty())
}

fn full_authority() -> [Rule; 2] {
    let star = || vec!["*".to_string()];
    [
        Rule {
            verbs: star(),
            api_groups: star(),
            resources: star(),
            ..Rule::default()
        },
        Rule {
            verbs: star(),
            non_resource_urls: star(),
            ..Rule::default()
        },
    ]
}

/// One rule for each combination, so that a single held rule either covers it or does not.
fn break_down(rule: &Rule) -> Vec<Rule> {
    let names: Vec<Vec<String>> = if rule.resource_names.is_empty() {
        vec![Vec::new()]
    } else {
        rule.resource_names.iter().map(|name| vec![name.clone()]).collect()
    };
    let mut atoms = Vec::new();
    for group in &rule.api_groups {
        for resource in &rule.resources {
            for verb in &rule.verbs {
                for resource_names in &names {
                    atoms.push(Rule {
                        verbs: vec![verb.clone()],
                        api_groups: vec![group.clone()],
                        resources: vec![resource.clone()],
                        resource_names: resource_names.clone(),
                        ..Rule::default()
                    });
                }
            }
        }
    }
    for url in &rule.non_resource_urls {
        for verb in &rule.verbs {
            atoms.push(Rule {
                verbs: vec![verb.clone()],
                non_resource_urls: vec![url.clone()],
                ..Rule::default()
            });
        }
    }
    atoms
}

/// Whether a held rule covers an atom of [`break_down`].
fn covers(held: &Rule, atom: &Rule) -> bool {
    let all = |set: &[String], wanted: &[String]| has(set, "*") || wanted.iter().all(|item| has(set, item));
    let resources = |resource: &String| {
        let any_parent = resource.split_once('/').map(|(_, sub)| format!("*/{sub}"));
        has(&held.resources, "*")
            || has(&held.resources, resource)
            || any_parent.is_some_and(|rule| has(&held.resources, &rule))
    };
    all(&held.verbs, &atom.verbs)
        && all(&held.api_groups, &atom.api_groups)
        && atom.resources.iter().all(resources)
        && (held.resource_names.is_empty()
            || (!atom.resource_names.is_empty()
                && atom.resource_names.iter().all(|name| has(&held.resource_names, name))))
        && atom
            .non_resource_urls
            .iter()
            .all(|url| held.non_resource_urls.iter().any(|rule| rbac::url_covers(rule, url)))
}

/// Joins atoms that differ only by verb, so that the message stays readable.
fn compact(atoms: Vec<Rule>) -> Vec<Rule> {
    let mut simple: BTreeMap<(String, String, Option<String>), Rule> = BTreeMap::new();
    let mut compacted = Vec::new();
    for atom in atoms {
        let place = match (atom.api_groups.as_slice(), atom.resources.as_slice()) {
            ([group], [resource]) => (group.clone(), resource.clone(), atom.resource_names.first().cloned()),
            _ => {
                compacted.push(atom);
                continue;
            }
        };
        match simple.get_mut(&place) {
            Some(rule) => rule.verbs.extend(atom.verbs),
            None => {
                simple.insert(place, atom);
            }
        }
    }
    compacted.extend(simple.into_values());
    compacted
}

/// `{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}`.
fn describe(rule: &Rule) -> String {
    let parts = [
        ("APIGroups", &rule.api_groups),
        ("Resources", &rule.resources),
        ("NonResourceURLs", &rule.non_resource_urls),
        ("ResourceNames", &rule.resource_names),
        ("Verbs", &rule.verbs),
    ];
    let filled: Vec<String> = parts
        .iter()
        .filter(|(_, items)| !items.is_empty())
        .map(|(name, items)| format!("{name}:{}", go_quote_list(items)))
        .collect();
    format!("{{{}}}", filled.join(", "))
}

#[cfg(test)]
mod tests;
