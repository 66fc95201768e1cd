//! What may be wrong with webhook configurations.

use super::check::{Errors, Field};
use stead_machinery::names;

pub fn validating(configuration: &Field<'_>, errors: &mut Errors) {
    errors.unique(&configuration.at("webhooks"), "name");
    for hook in configuration.at("webhooks").items() {
        webhook(&hook, errors);
    }
}

pub fn mutating(configuration: &Field<'_>, errors: &mut Errors) {
    errors.unique(&configuration.at("webhooks"), "name");
    for hook in configuration.at("webhooks").items() {
        webhook(&hook, errors);
        errors.one_of_if_set(&hook.at("reinvocationPolicy"), &["IfNeeded", "Never"]);
    }
}

fn webhook(hook: &Field<'_>, errors: &mut Errors) {
    let name = hook.at("name");
    match name.text() {
        "" => errors.required(&name, ""),
        text if text.split('.').count() < 3 => {
            errors.invalid(
                &name,
                "should be a domain with at least three segments separated by dots",
            );
        }
        text => errors.complaints(&name, names::dns1123_subdomain(text)),
    }
    for rule in hook.at("rules").items() {
        self::rule(&rule, errors);
    }
    errors.one_of_if_set(&hook.at("failurePolicy"), &["Fail", "Ignore"]);
    errors.one_of_if_set(&hook.at("matchPolicy"), &["Equivalent", "Exact"]);
    let effects = hook.at("sideEffects");
    match effects.is_set() {
        true => errors.one_of(&effects, &["None", "NoneOnDryRun"]),
        false => errors.required(&effects, "must specify one of None, NoneOnDryRun"),
    }
    let timeout = hook.at("timeoutSeconds");
    if timeout.number().is_some_and(|seconds| !(1..=30).contains(&seconds)) {
        errors.invalid(&timeout, "the timeout value must be between 1 and 30 seconds");
    }
    errors.selector(&hook.at("namespaceSelector"));
    errors.selector(&hook.at("objectSelector"));
    client(&hook.at("clientConfig"), errors);
    let versions = hook.at("admissionReviewVersions");
    if versions.is_empty() {
        errors.required(&versions, "must specify one of v1, v1beta1");
    } else if !versions
        .items()
        .any(|version| ["v1", "v1beta1"].contains(&version.text()))
    {
        errors.invalid(&versions, "must include at least one of v1, v1beta1");
    }
}

fn rule(rule: &Field<'_>, errors: &mut Errors) {
    let operations = rule.at("operations");
    errors.present(&operations);
    for operation in operations.items() {
        errors.one_of(&operation, &["*", "CONNECT", "CREATE", "DELETE", "UPDATE"]);
    }
    for part in ["apiGroups", "apiVersions", "resources"] {
        errors.present(&rule.at(part));
    }
    errors.one_of_if_set(&rule.at("scope"), &["*", "Cluster", "Namespaced"]);
}

fn client(config: &Field<'_>, errors: &mut Errors) {
    let (url, service) = (config.at("url"), config.at("service"));
    if url.is_set() == service.is_set() {
        errors.required(config, "exactly one of url or service is required");
        return;
    }
    if url.is_set() {
        let scheme = url.text().split("://").next().unwrap_or_default();
        if scheme != "https" {
            let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
            errors.invalid_value(&url, scheme, detail);
        }
    } else {
        errors.present(&service.at("name"));
        errors.present(&service.at("namespace"));
        if service.at("port").is_set() {
            errors.port_number(&service.at("port"));
        }
    }
}
