//! Role-based access control: which rules bind a user, and whether one of them allows a request.
//!
//! A [`Policy`] is one moment's roles and bindings. Everything on it is a pure function, so that reviews,
//! escalation checks and the authorizer itself cannot disagree.

use super::{Attributes, Decision, Target, User, go_quote};
use crate::store::Key;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const GROUP: &str = "rbac.authorization.k8s.io";
pub const CLUSTER_ROLES: &str = "rbac.authorization.k8s.io/clusterroles";
pub const CLUSTER_ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/clusterrolebindings";
pub const ROLES: &str = "rbac.authorization.k8s.io/roles";
pub const ROLE_BINDINGS: &str = "rbac.authorization.k8s.io/rolebindings";

/// One `rules` entry of a role.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Rule {
    #[serde(deserialize_with = "null_is_default")]
    pub verbs: Vec<String>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub api_groups: Vec<String>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<String>,
    #[serde(deserialize_with = "null_is_default", skip_serializing_if = "Vec::is_empty")]
    pub resource_names: Vec<String>,
    #[serde(
        rename = "nonResourceURLs",
        deserialize_with = "null_is_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub non_resource_urls: Vec<String>,
}

/// A Role or ClusterRole, as far as authorisation needs it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Role {
    #[serde(deserialize_with = "null_is_default")]
    pub rules: Vec<Rule>,
}

/// A RoleBinding or ClusterRoleBinding.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Binding {
    #[serde(deserialize_with = "null_is_default")]
    pub subjects: Vec<Subject>,
    pub role_ref: RoleRef,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    pub kind: String,
    pub name: String,
    pub namespace: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RoleRef {
    pub api_group: String,
    pub kind: String,
    pub name: String,
}

/// All roles and bindings at one moment.
#[derive(Debug, Clone, Default)]
pub struct Policy {
    pub cluster_roles: Arc<BTreeMap<Key, Arc<Role>>>,
    pub cluster_role_bindings: Arc<BTreeMap<Key, Arc<Binding>>>,
    pub roles: Arc<BTreeMap<Key, Arc<Role>>>,
    pub role_bindings: Arc<BTreeMap<Key, Arc<Binding>>>,
}

/// The rules that bind a user, and what stood in the way of finding more of them.
#[derive(Debug, Default)]
pub struct Bound<'a> {
    pub rules: Vec<&'a Rule>,
    pub errors: Vec<String>,
}

/// Go prints absent lists as `null`, and clients send them so.
fn null_is_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(source: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(source)?.unwrap_or_default())
}

impl Policy {
    /// Whether some rule that binds the user allows this.
    pub fn authorize(&self, user: &User, wanted: &Attributes) -> Decision {
        if user.is_master() {
            return Decision::Allow { reason: String::new() };
        }
        let namespace = match &wanted.target {
            Target::Resource { namespace, .. } => namespace.as_str(),
            Target::Path(_) => "",
        };
        let mut reason = None;
        let errors = self.visit(user, namespace, |rule, source| {
            if !rule.allows(wanted) {
                return Visit::GoOn;
            }
            reason = Some(format!("RBAC: allowed by {source}"));
            Visit::Stop
        });
        match reason {
            Some(reason) => Decision::Allow { reason },
            None if errors.is_empty() => Decision::Deny { reason: String::new() },
            None => Decision::Deny {
                reason: format!("RBAC: {}", aggregate(&errors)),
            },
        }
    }

    /// Every rule that binds a user in a namespace (empty: those of the whole cluster).
    pub fn rules_for(&self, user: &User, namespace: &str) -> Bound<'_> {
        let mut rules = Vec::new();
        let errors = self.visit(user, namespace, |rule, _| {
            rules.push(rule);
            Visit::GoOn
        });
        Bound { rules, errors }
    }

    /// The rules of the role that a binding in this namespace (empty: a cluster role binding) refers to.
    pub fn rules_of(&self, role: &RoleRef, namespace: &str) -> Result<&[Rule], String> {
        let (found, kind) = match role.kind.as_str() {
            "Role" => (self.roles.get(&key(ROLES, namespace, &role.name)), "role"),
            "ClusterRole" => (
                self.cluster_roles.get(&key(CLUSTER_ROLES, "", &role.name)),
                "clusterrole",
            ),
            other => return Err(format!("unsupported role reference kind: {}", go_quote(other))),
        };
        match found {
            Some(role) => Ok(&role.rules),
            None => Err(format!("{kind}.{GROUP} {} not found", go_quote(&role.name))),
        }
    }

    /// Shows each rule that binds the user to the visitor until it stops; gives the errors met on the way.
    fn visit<'a>(
        &'a self,
        user: &User,
        namespace: &str,
        mut visitor: impl FnMut(&'a Rule, Source<'a>) -> Visit,
    ) -> Vec<String> {
        let mut errors = Vec::new();
        let everywhere = self.cluster_role_bindings.iter();
        let first = key(ROLE_BINDINGS, namespace, "");
        let here = self
            .role_bindings
            .range(first..)
            .take_while(|(key, _)| !namespace.is_empty() && key.namespace == namespace);
        for (key, binding) in everywhere.chain(here) {
            let Some(subject) = binding.subjects.iter().find(|subject| subject.is(user, &key.namespace)) else {
                continue;
            };
            match self.rules_of(&binding.role_ref, &key.namespace) {
                Err(error) => errors.push(error),
                Ok(rules) => {
                    for rule in rules {
                        let source = Source { key, binding, subject };
                        if matches!(visitor(rule, source), Visit::Stop) {
                            return errors;
                        }
                    }
                }
            }
        }
        errors
    }
}

pub(super) fn key(resource: &str, namespace: &str, name: &str) -> Key {
    Key {
        resource: resource.to_string(),
        namespace: namespace.to_string(),
        name: name.to_string(),
    }
}

enum Visit {
    GoOn,
    Stop,
}

/// Where a rule came from; prints as the reason of a decision.
struct Source<'a> {
    key: &'a Key,
    binding: &'a Binding,
    subject: &'a Subject,
}

impl std::fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Source { key, binding, subject } = self;
        let role = &binding.role_ref;
        let (kind, name) = if key.namespace.is_empty() {
            ("ClusterRoleBinding", key.name.clone())
        } else {
            ("RoleBinding", format!("{}/{}", key.name, key.namespace))
        };
        let bound = if subject.kind == "ServiceAccount" {
            let namespace = subject.namespace_in(&key.namespace);
            format!("{}/{namespace}", subject.name)
        } else {
            subject.name.clone()
        };
        write!(
            f,
            "{kind} {} of {} {} to {} {}",
            go_quote(&name),
            role.kind,
            go_quote(&role.name),
            subject.kind,
            go_quote(&bound)
        )
    }
}

impl Subject {
    fn is(&self, user: &User, binding_namespace: &str) -> bool {
        match self.kind.as_str() {
            "User" => user.name == self.name,
            "Group" => user.in_group(&self.name),
            "ServiceAccount" => {
                super::split_service_account(&user.name) == Some((self.namespace_in(binding_namespace), &self.name))
            }
            _ => false,
        }
    }

    /// A service account without a namespace is one of the binding's own.
    fn namespace_in<'a>(&'a self, binding_namespace: &'a str) -> &'a str {
        if self.namespace.is_empty() {
            binding_namespace
        } else {
            &self.namespace
        }
    }
}

impl Rule {
    pub fn allows(&self, wanted: &Attributes) -> bool {
        if !has(&self.verbs, "*") && !has(&self.verbs, &wanted.verb) {
            return false;
        }
        match &wanted.target {
            Target::Path(path) => self.non_resource_urls.iter().any(|rule| url_covers(rule, path)),
            Target::Resource {
                group,
                resource,
                subresource,
                name,
                ..
            } => {
                (has(&self.api_groups, "*") || has(&self.api_groups, group))
                    && self
                        .resources
                        .iter()
                        .any(|rule| resource_matches(rule, resource, subresource))
                    && (self.resource_names.is_empty() || has(&self.resource_names, name))
            }
        }
    }
}

/// `*`, `pods`, `pods/log` or `*/log`.
fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    match rule.split_once('/') {
        Some((rule_resource, rule_subresource)) => {
            rule_subresource == subresource && (rule_resource == "*" || rule_resource == resource)
        }
        None => false,
    }
}

/// `/healthz`, or `/api/*` for all that begins so.
pub(super) fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || (rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*')))
}

pub(super) fn has(set: &[String], wanted: &str) -> bool {
    set.iter().any(|item| item == wanted)
}

/// Several errors as Kubernetes joins them; equal ones count once.
pub(super) fn aggregate(errors: &[String]) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for error in errors {
        if !unique.contains(&error.as_str()) {
            unique.push(error);
        }
    }
    match unique.as_slice() {
        [only] => (*only).to_string(),
        many => format!("[{}]", many.join(", ")),
    }
}

#[cfg(test)]
pub(crate) mod tests;
