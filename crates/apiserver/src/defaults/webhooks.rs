//! Defaults of admission webhooks and policies, and of custom resource definitions.

use super::{Defaulter, Fields, child, each, is_unset, set, text};
use serde_json::{Value, json};

pub const TYPES: &[(&str, Defaulter)] = &[
    ("api.admissionregistration.v1.ValidatingWebhook", webhook),
    ("api.admissionregistration.v1.MutatingWebhook", mutating_webhook),
    ("api.admissionregistration.v1.RuleWithOperations", rule),
    ("api.admissionregistration.v1.NamedRuleWithOperations", rule),
    ("api.admissionregistration.v1.ServiceReference", service_reference),
    ("api.admissionregistration.v1.ValidatingAdmissionPolicySpec", policy),
    ("api.admissionregistration.v1.MutatingAdmissionPolicySpec", policy),
    ("api.admissionregistration.v1.MatchResources", match_resources),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition",
        definition,
    ),
    (
        "apiextensions-apiserver.pkg.apis.apiextensions.v1.ServiceReference",
        service_reference,
    ),
    (
        "kube-aggregator.pkg.apis.apiregistration.v1.ServiceReference",
        service_reference,
    ),
];

fn webhook(webhook: &mut Fields) {
    set(webhook, "failurePolicy", "Fail");
    match_resources(webhook);
    set(webhook, "timeoutSeconds", 10);
}

fn mutating_webhook(hook: &mut Fields) {
    webhook(hook);
    set(hook, "reinvocationPolicy", "Never");
}

fn rule(rule: &mut Fields) {
    set(rule, "scope", "*");
}

fn service_reference(reference: &mut Fields) {
    set(reference, "port", 443);
}

fn policy(spec: &mut Fields) {
    set(spec, "failurePolicy", "Fail");
}

fn match_resources(resources: &mut Fields) {
    set(resources, "matchPolicy", "Equivalent");
    set(resources, "namespaceSelector", json!({}));
    set(resources, "objectSelector", json!({}));
}

fn definition(definition: &mut Fields) {
    let mut stored = None;
    if let Some(spec) = child(definition, "spec") {
        if let Some(names) = child(spec, "names") {
            let kind = text(names, "kind").to_string();
            set(names, "singular", kind.to_lowercase());
            if !kind.is_empty() {
                set(names, "listKind", format!("{kind}List"));
            }
        }
        set(spec, "conversion", json!({"strategy": "None"}));
        stored = each(spec, "versions")
            .find(|version| version.get("storage") == Some(&Value::Bool(true)))
            .map(|version| json!([text(version, "name")]));
    }
    if let (Some(stored), Some(status)) = (stored, child(definition, "status"))
        && (is_unset(status, "storedVersions") || status.get("storedVersions") == Some(&json!([])))
    {
        status.insert("storedVersions".into(), stored);
    }
}
