//! What may be wrong with autoscalers, disruption budgets, roles and bindings.

use super::check::{Errors, Field};
use super::workloads::count_or_percent;
use serde_json::Value;
use stead_machinery::names;

const RBAC: &str = "rbac.authorization.k8s.io";

pub fn autoscaler(autoscaler: &Field<'_>, errors: &mut Errors) {
    let spec = autoscaler.at("spec");
    let (least, most, target) = (
        spec.at("minReplicas"),
        spec.at("maxReplicas"),
        spec.at("scaleTargetRef"),
    );
    let metrics = spec.at("metrics");
    if least.number().is_some_and(|replicas| replicas < 1) {
        errors.invalid(&least, "must be greater than or equal to 1");
        let outside = |metric: Field<'_>| ["Object", "External"].contains(&metric.at("type").text());
        if !metrics.items().any(outside) {
            errors.forbidden(
                &metrics,
                "must specify at least one Object or External metric to support scaling to zero replicas",
            );
        }
    }
    let bound = most.number().unwrap_or_default();
    if bound < 1 {
        errors.required(&most, "must be set and greater than 0");
    } else if least.number().is_some_and(|replicas| replicas > bound) {
        errors.invalid(&most, "must be greater than or equal to `minReplicas`");
    }
    errors.named(&target.at("kind"), names::path_segment);
    errors.named(&target.at("name"), names::path_segment);
    let api_version = target.at("apiVersion");
    if api_version.text() != "v1" && !api_version.text().contains('/') {
        errors.invalid_value(&api_version, api_version.text(), "apiVersion must specify API group");
    }
    for metric in metrics.items() {
        let source = match metric.at("type").text() {
            "ContainerResource" => "containerResource",
            "External" => "external",
            "Object" => "object",
            "Pods" => "pods",
            "Resource" => "resource",
            "" => {
                errors.required(&metric.at("type"), "must specify a metric source type");
                continue;
            }
            _ => {
                let kinds = &["ContainerResource", "External", "Object", "Pods", "Resource"];
                errors.unsupported(&metric.at("type"), kinds);
                continue;
            }
        };
        if !metric.at(source).is_set() {
            errors.required(
                &metric.at(source),
                "must populate information for the given metric source",
            );
        }
    }
}

pub fn disruption_budget(budget: &Field<'_>, errors: &mut Errors) {
    let spec = budget.at("spec");
    let (least, most) = (spec.at("minAvailable"), spec.at("maxUnavailable"));
    if least.is_set() && most.is_set() {
        errors.invalid(&spec, "minAvailable and maxUnavailable cannot be both set");
    }
    count_or_percent(&least, errors);
    count_or_percent(&most, errors);
    errors.selector(&spec.at("selector"));
    errors.one_of_if_set(
        &spec.at("unhealthyPodEvictionPolicy"),
        &["AlwaysAllow", "IfHealthyBudget"],
    );
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
    for selector in role.at("aggregationRule").at("clusterRoleSelectors").items() {
        errors.selector(&selector);
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
