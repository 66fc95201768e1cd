//! What may be wrong with webhook configurations.

use super::check::{Errors, Field};
use serde_json::Value;
use std::collections::BTreeSet;
use stead_machinery::field::FieldError;
use stead_machinery::names;

const MOST_CONDITIONS: usize = 64;

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
    let complaints = names::dns1123_subdomain(name.text());
    match name.text() {
        "" => errors.required(&name, ""),
        text if complaints.is_empty() && text.split('.').count() < 3 => {
            errors.invalid(
                &name,
                "should be a domain with at least three segments separated by dots",
            );
        }
        _ => errors.complaints(&name, complaints),
    }
    conditions(&hook.at("matchConditions"), errors);
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
    let mut seen = BTreeSet::new();
    for version in versions.items() {
        errors.complaints(&version, names::dns1035_label(version.text()));
        if !seen.insert(version.text()) {
            errors.invalid(&version, "duplicate version");
        }
    }
    if versions.is_empty() {
        errors.required(&versions, "must specify one of v1, v1beta1");
    } else if !versions
        .items()
        .any(|version| ["v1", "v1beta1"].contains(&version.text()))
    {
        errors.invalid(&versions, "must include at least one of v1, v1beta1");
    }
}

/// The conditions under which anybody is asked, beside their expressions.
pub fn conditions(list: &Field<'_>, errors: &mut Errors) {
    errors.count(list, MOST_CONDITIONS);
    let mut seen = BTreeSet::new();
    for condition in list.items() {
        let name = condition.at("name");
        if name.is_empty() {
            errors.required(&name, "");
            continue;
        }
        errors.label_name(&name);
        if !seen.insert(name.text()) {
            errors.duplicate(&name);
        }
    }
}

/// What somebody wants to be asked about.
pub fn rule(rule: &Field<'_>, errors: &mut Errors) {
    let operations = rule.at("operations");
    errors.present(&operations);
    for (name, others) in [
        ("operations", "operations"),
        ("apiGroups", "API groups"),
        ("apiVersions", "API versions"),
    ] {
        let list = rule.at(name);
        if list.items().count() > 1 && list.items().any(|item| item.text() == "*") {
            errors.invalid(&list, format!("if '*' is present, must not specify other {others}"));
        }
    }
    for name in ["apiVersions", "resources"] {
        for item in rule.at(name).items() {
            errors.present(&item);
        }
    }
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
        errors.0.extend(webhook_url(url.text(), &url.path));
    } else {
        errors.0.extend(webhook_service(service.value, &service.path));
    }
}

/// What is wrong with the URL of a webhook.
pub fn webhook_url(url: &str, at: &str) -> Vec<FieldError> {
    const FORM: &str = "; desired format: https://host[/path]";
    let mut errors = Vec::new();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    if scheme != "https" {
        let detail = format!("'https' is the only allowed URL scheme{FORM}");
        errors.push(FieldError::invalid(at, scheme, detail));
    }
    let (rest, fragment) = rest.split_once('#').unwrap_or((rest, ""));
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = if scheme.is_empty() {
        ""
    } else {
        rest.split('/').next().unwrap_or_default()
    };
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        errors.push(FieldError::invalid(at, "", format!("host must be specified{FORM}")));
    }
    if authority.contains('@') {
        errors.push(FieldError::invalid(
            at,
            user,
            "user information is not permitted in the URL",
        ));
    }
    if !fragment.is_empty() {
        errors.push(FieldError::invalid(
            at,
            fragment,
            "fragments are not permitted in the URL",
        ));
    }
    if !query.is_empty() {
        errors.push(FieldError::invalid(
            at,
            query,
            "query parameters are not permitted in the URL",
        ));
    }
    errors
}

/// What is wrong with the service that a webhook is behind.
pub fn webhook_service(service: &Value, at: &str) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let text = |field: &str| service[field].as_str().unwrap_or_default();
    for field in ["name", "namespace"] {
        if text(field).is_empty() {
            errors.push(FieldError::required(format!("{at}.{field}"), ""));
        }
    }
    let port = service["port"].as_i64().unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.push(FieldError::invalid(format!("{at}.port"), port, detail));
    }
    let (path, place) = (text("path"), format!("{at}.path"));
    if path.is_empty() || path == "/" {
        return errors;
    }
    if path == "//" {
        errors.push(FieldError::invalid(place, path, "segment[0] may not be empty"));
        return errors;
    }
    let below = path.strip_prefix('/');
    if below.is_none() {
        errors.push(FieldError::invalid(place.clone(), path, "must start with a '/'"));
    }
    // Kubernetes leaves out the first character whatever it is.
    let below = below.unwrap_or_else(|| path.get(1..).unwrap_or_default());
    for (index, step) in below.strip_suffix('/').unwrap_or(below).split('/').enumerate() {
        if step.is_empty() {
            let detail = format!("segment[{index}] may not be empty");
            errors.push(FieldError::invalid(place.clone(), path, detail));
            continue;
        }
        for complaint in names::dns1123_subdomain(step) {
            errors.push(FieldError::invalid(
                place.clone(),
                path,
                format!("segment[{index}]: {complaint}"),
            ));
        }
    }
    errors
}
