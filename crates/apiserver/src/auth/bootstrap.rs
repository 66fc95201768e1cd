//! The roles and bindings that every cluster starts with.
//!
//! They are data taken from a Kubernetes 1.36 API server as it bootstraps them (see NOTICE): users, tools and
//! upstream tests rely on their names and rules. What a server finds missing at its start it creates; rules
//! and subjects that were taken out of them by hand come back, as their `autoupdate` annotation promises.

use super::rbac::{GROUP, Rule};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One object a line, without the label and the annotation that all of them carry.
const DATA: &str = include_str!("../../data/rbac.jsonl");

/// The default ClusterRoles, ClusterRoleBindings, Roles and RoleBindings, aggregated roles filled in.
pub fn objects() -> Vec<Value> {
    let mut objects: Vec<Value> = DATA
        .lines()
        .map(|line| {
            let mut object: Value = serde_json::from_str(line).expect("the embedded data is JSON, which a test reads");
            object["apiVersion"] = format!("{GROUP}/v1").into();
            object["metadata"]["annotations"] = json!({"rbac.authorization.kubernetes.io/autoupdate": "true"});
            object["metadata"]["labels"]["kubernetes.io/bootstrapping"] = "rbac-defaults".into();
            object
        })
        .collect();
    aggregate(&mut objects);
    objects
}

/// Gives each role with an aggregation rule the rules of the roles that it selects, as the controller will
/// do from then on. The selected ones may aggregate themselves (`edit` holds `view`), hence the rounds.
fn aggregate(objects: &mut [Value]) {
    loop {
        let rules: Vec<(usize, Value)> = objects
            .iter()
            .enumerate()
            .filter_map(|(index, role)| Some((index, collected(role, objects)?)))
            .filter(|(index, rules)| objects[*index]["rules"] != *rules)
            .collect();
        if rules.is_empty() {
            return;
        }
        for (index, rules) in rules {
            objects[index]["rules"] = rules;
        }
    }
}

fn collected(role: &Value, objects: &[Value]) -> Option<Value> {
    let selectors = role["aggregationRule"]["clusterRoleSelectors"].as_array()?;
    let mut found: BTreeMap<&str, &Value> = BTreeMap::new();
    for selector in selectors {
        let labels = selector["matchLabels"].as_object()?;
        for object in objects.iter().filter(|object| object["kind"] == "ClusterRole") {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let own = &object["metadata"]["labels"];
            let matches = labels.iter().all(|(key, value)| own.get(key) == Some(value));
            if matches && object["metadata"]["name"] != role["metadata"]["name"] {
                found.insert(name, object);
            }
        }
    }
    let mut rules: Vec<Value> = Vec::new();
    for rule in found.values().filter_map(|object| object["rules"].as_array()).flatten() {
        if !rules.contains(rule) {
            rules.push(rule.clone());
        }
    }
    Some(rules.into())
}

/// What a stored default object lacks: the object to write instead, or `None` when it is complete.
///
/// Additions of the cluster's owner stay; an `autoupdate` annotation that is not `true` keeps the object as it is.
pub fn reconciled(stored: &Value, default: &Value) -> Option<Value> {
    let auto = &stored["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"];
    if auto.as_str().is_some_and(|auto| auto != "true") {
        return None;
    }
    let mut wanted = stored.clone();
    for list in ["rules", "subjects"] {
        let aggregated = list == "rules" && default["aggregationRule"].is_object();
        if default[list].is_null() || aggregated {
            continue;
        }
        let mut merged = stored[list].as_array().cloned().unwrap_or_default();
        for item in default[list].as_array().into_iter().flatten() {
            if !merged.iter().any(|have| same(list, have, item)) {
                merged.push(item.clone());
            }
        }
        wanted[list] = merged.into();
    }
    (wanted != *stored).then_some(wanted)
}

fn same(list: &str, have: &Value, item: &Value) -> bool {
    if list != "rules" {
        return have == item;
    }
    let parse = |value: &Value| serde_json::from_value::<Rule>(value.clone()).unwrap_or_default();
    parse(have) == parse(item)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
        let wanted = |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == name;
        objects.iter().find(wanted).expect("a default object")
    }

    #[test]
    fn aggregated_roles_start_with_the_rules_of_those_they_select() {
        let objects = objects();
        let rules = |name: &str| {
            find(&objects, "ClusterRole", name)["rules"]
                .as_array()
                .map_or(0, Vec::len)
        };
        assert_eq!(rules("view"), rules("system:aggregate-to-view"));
        assert!(rules("edit") > rules("view"));
        assert!(rules("admin") > rules("edit"));
    }

    #[test]
    fn every_binding_refers_to_a_role_that_is_there() {
        let objects = objects();
        for binding in objects.iter().filter(|object| object["roleRef"].is_object()) {
            let role = &binding["roleRef"];
            find(
                &objects,
                role["kind"].as_str().unwrap_or_default(),
                role["name"].as_str().unwrap_or_default(),
            );
        }
        assert_eq!(objects.len(), 133);
    }

    #[test]
    fn a_rule_taken_from_a_default_role_comes_back_and_an_added_one_stays() {
        let objects = objects();
        let default = find(&objects, "ClusterRole", "system:basic-user");
        assert_eq!(reconciled(default, default), None);
        let mut edited = default.clone();
        edited["rules"] = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]);
        let healed = reconciled(&edited, default).expect("a change");
        assert_eq!(healed["rules"].as_array().map(Vec::len), Some(3));
        edited["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] = "false".into();
        assert_eq!(reconciled(&edited, default), None);
    }
}
