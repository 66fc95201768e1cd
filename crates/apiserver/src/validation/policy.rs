//! What may be wrong with disruption budgets, roles and bindings.

use super::check::{Errors, Field};
use super::workloads::{count_or_percent, not_above_all};
use serde_json::Value;
use stead_machinery::names;

const RBAC: &str = "rbac.authorization.k8s.io";

pub fn disruption_budget(budget: &Field<'_>, errors: &mut Errors) {
    let spec = budget.at("spec");
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if least.is_set() && most.is_set() {
        errors.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
    }
    for share in [&least, &most] {
        count_or_percent(share, errors);
        not_above_all(share, errors);
    }
    errors.selector(&spec.at("selector"));
    errors.one_of_if_set(
        &spec.at("unhealthyPodEvictionPolicy"),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
}

pub fn disruption_status(budget: &Field<'_>, errors: &mut Errors) {
    let status = budget.at("status");
    for name in ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"] {
        errors.not_negative(&status.at(name));
    }
}

pub fn role(role: &Field<'_>, errors: &mut Errors) {
    for rule in role.at("rules").items() {
        policy_rule(&rule, errors);
        let urls = rule.at("nonResourceURLs");
        if !urls.is_empty() {
            errors.invalid(&urls, "namespaced rules cannot apply to non-resource URLs");
        }
    }
}

pub fn cluster_role(role: &Field<'_>, errors: &mut Errors) {
    for rule in role.at("rules").items() {
        policy_rule(&rule, errors);
        let urls = rule.at("nonResourceURLs");
        if !urls.is_empty() {
            resource_parts(&rule, errors);
        }
    }
    let rule = role.at("aggregationRule");
    if !rule.is_set() {
        return;
    }
    let selectors = rule.at("clusterRoleSelectors");
    if selectors.is_empty() {
        let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
        errors.required(&selectors, detail);
    }
    for selector in selectors.items() {
        let before = errors.0.len();
        errors.selector(&selector);
        if errors.0.len() > before {
            errors.invalid_value(&selector, Value::Null, "invalid label selector.");
        }
    }
}

/// A rule that names URLs may name nothing else.
fn resource_parts(rule: &Field<'_>, errors: &mut Errors) {
    let named = ["apiGroups", "resources", "resourceNames"]
        .iter()
        .any(|part| !rule.at(part).is_empty());
    if named {
        let urls = rule.at("nonResourceURLs");
        errors.invalid(
            &urls,
            "rules cannot apply to both regular resources and non-resource URLs",
        );
    }
}

fn policy_rule(rule: &Field<'_>, errors: &mut Errors) {
    if rule.at("verbs").is_empty() {
        errors.required(&rule.at("verbs"), "verbs must contain at least one value");
    }
    if !rule.at("nonResourceURLs").is_empty() {
        return;
    }
    if rule.at("apiGroups").is_empty() {
        errors.required(
            &rule.at("apiGroups"),
            "resource rules must supply at least one api group",
        );
    }
    if rule.at("resources").is_empty() {
        errors.required(
            &rule.at("resources"),
            "resource rules must supply at least one resource",
        );
    }
}

pub fn role_binding(binding: &Field<'_>, errors: &mut Errors) {
    bound(binding, &["Role", "ClusterRole"], errors);
}

pub fn cluster_role_binding(binding: &Field<'_>, errors: &mut Errors) {
    bound(binding, &["ClusterRole"], errors);
    for subject in binding.at("subjects").items() {
        if subject.at("kind").text() == "ServiceAccount" && subject.at("namespace").is_empty() {
            errors.required(&subject.at("namespace"), "");
        }
    }
}

fn bound(binding: &Field<'_>, kinds: &[&str], errors: &mut Errors) {
    let role = binding.at("roleRef");
    errors.one_of(&role.at("apiGroup"), &[RBAC]);
    errors.one_of(&role.at("kind"), kinds);
    errors.named(&role.at("name"), names::path_segment);
    for subject in binding.at("subjects").items() {
        let (kind, name, group) = (subject.at("kind"), subject.at("name"), subject.at("apiGroup"));
        errors.present(&name);
        match kind.text() {
            "ServiceAccount" => {
                errors.named_if_set(&name, names::dns1123_subdomain);
                if !group.is_empty() {
                    errors.unsupported(&group, &[""]);
                }
            }
            "User" | "Group" => {
                if group.text() != RBAC {
                    let value = if group.is_set() { group.value } else { &Value::Null };
                    let field = Field {
                        value,
                        path: group.path,
                    };
                    errors.unsupported(&field, &[RBAC]);
                }
            }
            _ => errors.unsupported(&kind, &["ServiceAccount", "User", "Group"]),
        }
    }
}
