//! ClusterRoles that gather the rules of others by their labels.

use super::pods;
use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};
use serde_json::json;
use std::sync::Arc;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};

/// Adds the controller of aggregated ClusterRoles.
pub fn add_to(manager: &Manager) {
    let roles = manager.cache().store::<ClusterRole>();
    let gathering = roles.clone();
    let controller = Controller::new("clusterrole-aggregation", Roles { roles })
        .for_::<ClusterRole>()
        // Any role may be one that an aggregated role gathers, or no longer does.
        .watches::<ClusterRole>(move |_| {
            let mut keys = Vec::new();
            gathering.for_each(|key, role| {
                if role.aggregation_rule.is_some() {
                    keys.push(key.clone());
                }
            });
            keys
        })
        .may(Rule::root::<ClusterRole>())
        // It hands on rights that it does not have itself.
        .may(Rule::new("rbac.authorization.k8s.io", &["clusterroles"], &["escalate"]))
        .without_resync()
        .concurrency(1);
    manager.add(controller);
}

struct Roles {
    roles: Store<ClusterRole>,
}

impl Reconciler for Roles {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(role) = self.roles.get(key) else {
            return Ok(Outcome::Settled);
        };
        if let Some(rules) = gathered(&role, self.roles.list()) {
            context.writer().patch(&*role, json!({"rules": rules})).await?;
        }
        Ok(Outcome::Settled)
    }
}

/// The rules that a role gathers, in the order of the roles' names, if they are not there already.
fn gathered(role: &ClusterRole, mut all: Vec<Arc<ClusterRole>>) -> Option<Vec<PolicyRule>> {
    let selectors = role.aggregation_rule.as_ref()?.cluster_role_selectors.as_ref()?;
    all.sort_by(|one, other| one.metadata.name.cmp(&other.metadata.name));
    let mut rules: Vec<PolicyRule> = Vec::new();
    for selector in selectors.iter().filter_map(pods::selector) {
        for other in &all {
            let itself = other.metadata.name == role.metadata.name;
            if itself || !selector.matches(other.metadata.labels.as_ref().unwrap_or(&Default::default())) {
                continue;
            }
            for rule in other.rules.iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    (role.rules.as_deref().unwrap_or_default() != rules).then_some(rules)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_gathers_the_rules_of_those_that_it_selects() {
        let role = |name: &str, resource: &str| -> Arc<ClusterRole> {
            let rules = json!([{"apiGroups": [""], "resources": [resource], "verbs": ["get"]}]);
            let meta = json!({"name": name, "labels": {"to": resource}});
            Arc::new(serde_json::from_value(json!({"metadata": meta, "rules": rules})).unwrap())
        };
        let selectors = json!([{"matchLabels": {"to": "pods"}}]);
        let mut sum: ClusterRole = serde_json::from_value(
            json!({"metadata": {"name": "sum"}, "aggregationRule": {"clusterRoleSelectors": selectors}}),
        )
        .unwrap();
        let all = vec![role("b", "pods"), role("a", "nodes"), role("c", "pods")];
        let rules = gathered(&sum, all.clone()).unwrap();
        assert_eq!(rules.len(), 1, "two with the same rule make one: {rules:?}");
        assert_eq!(rules[0].resources.as_ref().unwrap(), &["pods"]);
        sum.rules = Some(rules);
        assert_eq!(gathered(&sum, all), None);
    }
}
