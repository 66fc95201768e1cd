//! What may be wrong with admission policies and their bindings, beside their expressions.

use super::admission::{conditions, rule};
use super::check::{Errors, Field};
use std::collections::BTreeSet;
use stead_machinery::names;

/// Operations that a policy may change objects of.
const MUTATING: &[&str] = &["CREATE", "UPDATE"];

const MOST_ANNOTATIONS: usize = 20;

pub fn validating(policy: &Field<'_>, errors: &mut Errors) {
    let spec = policy.at("spec");
    any(&spec, errors);
    let (validations, annotations) = (spec.at("validations"), spec.at("auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        for field in [&validations, &annotations] {
            let why = "validations or auditAnnotations must contain at least one item";
            errors.required(field, why);
        }
    }
    for validation in validations.items() {
        let reason = validation.at("reason");
        errors.one_of_if_set(&reason, &["Forbidden", "Invalid", "RequestEntityTooLarge"]);
    }
    if annotations.items().count() > MOST_ANNOTATIONS {
        errors.invalid(&annotations, "must not have more than 20 auditAnnotations");
    }
    let mut seen = BTreeSet::new();
    for annotation in annotations.items() {
        let key = annotation.at("key");
        let whole = format!("{}/{}", policy.at("metadata").at("name").text(), key.text());
        for complaint in names::qualified_name(&whole) {
            errors.invalid_value(&key, whole.as_str(), complaint);
        }
        if !seen.insert(key.text()) {
            errors.duplicate(&key);
        }
    }
}

pub fn mutating(policy: &Field<'_>, errors: &mut Errors) {
    let spec = policy.at("spec");
    any(&spec, errors);
    only_changes(&spec.at("matchConstraints"), errors);
    if spec.at("mutations").is_empty() {
        errors.required(&spec.at("mutations"), "mutations must contain at least one item");
    }
    let again = spec.at("reinvocationPolicy");
    match again.is_empty() {
        true => errors.required(&again, ""),
        false => errors.one_of(&again, &["IfNeeded", "Never"]),
    }
}

pub fn validating_binding(binding: &Field<'_>, errors: &mut Errors) {
    let spec = binding.at("spec");
    binding_of(&spec, errors);
    let actions = spec.at("validationActions");
    if actions.is_empty() {
        errors.required(&actions, "at least one validation action is required");
    }
    let mut seen = BTreeSet::new();
    for action in actions.items() {
        errors.one_of(&action, &["Audit", "Deny", "Warn"]);
        if !seen.insert(action.text()) {
            errors.duplicate(&action);
        }
    }
    if seen.contains("Deny") && seen.contains("Warn") {
        let why = "must not contain both Deny and Warn (repeating the same validation failure information in \
                   the API response and headers serves no purpose)";
        errors.invalid(&actions, why);
    }
}

pub fn mutating_binding(binding: &Field<'_>, errors: &mut Errors) {
    let spec = binding.at("spec");
    binding_of(&spec, errors);
    only_changes(&spec.at("matchResources"), errors);
}

/// What policies of both sorts have.
fn any(spec: &Field<'_>, errors: &mut Errors) {
    errors.one_of_if_set(&spec.at("failurePolicy"), &["Fail", "Ignore"]);
    kind_of_parameters(&spec.at("paramKind"), errors);
    let constraints = spec.at("matchConstraints");
    if constraints.is_set() {
        matched(&constraints, errors);
        errors.present(&constraints.at("resourceRules"));
    } else {
        errors.required(&constraints, "");
    }
    conditions(&spec.at("matchConditions"), errors);
    for variable in spec.at("variables").items() {
        let name = variable.at("name");
        let mut letters = name.text().chars();
        let first = letters.next();
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.text().trim().is_empty() {
            errors.required(&name, "name is not specified");
        } else if !first.is_some_and(|c| word(c) && !c.is_ascii_digit()) || !letters.all(word) {
            errors.invalid(&name, "must be a valid CEL identifier");
        }
    }
}

fn binding_of(spec: &Field<'_>, errors: &mut Errors) {
    errors.named(&spec.at("policyName"), names::dns1123_subdomain);
    parameters(&spec.at("paramRef"), errors);
    matched(&spec.at("matchResources"), errors);
}

/// What is asked about; a change can only be made to what is written.
fn only_changes(constraints: &Field<'_>, errors: &mut Errors) {
    let rules = constraints.at("resourceRules");
    for rule in rules.items() {
        for operation in rule.at("operations").items() {
            let shown = Field {
                value: operation.value,
                path: rules.at("operations").path,
            };
            errors.one_of(&shown, MUTATING);
        }
    }
}

fn matched(constraints: &Field<'_>, errors: &mut Errors) {
    errors.one_of_if_set(&constraints.at("matchPolicy"), &["Equivalent", "Exact"]);
    errors.selector(&constraints.at("namespaceSelector"));
    errors.selector(&constraints.at("objectSelector"));
    for list in ["resourceRules", "excludeResourceRules"] {
        for found in constraints.at(list).items() {
            let mut seen = BTreeSet::new();
            for name in found.at("resourceNames").items() {
                errors.complaints(&name, names::path_segment(name.text()));
                if !seen.insert(name.text()) {
                    errors.duplicate(&name);
                }
            }
            rule(&found, errors);
        }
    }
}

fn kind_of_parameters(kind: &Field<'_>, errors: &mut Errors) {
    if !kind.is_set() {
        return;
    }
    let (version, name) = (kind.at("apiVersion"), kind.at("kind"));
    if version.is_empty() {
        errors.required(&version, "");
    } else {
        let number = version.text().rsplit('/').next().unwrap_or_default();
        let complaints = names::dns1035_label(number);
        if !complaints.is_empty() {
            errors.invalid_value(&version, number, complaints.join(","));
        }
    }
    if name.is_empty() {
        errors.required(&name, "");
        return;
    }
    let complaints = names::dns1035_label(&name.text().to_lowercase());
    if !complaints.is_empty() {
        let why = format!(
            "may have mixed case, but should otherwise match: {}",
            complaints.join(",")
        );
        errors.invalid(&name, why);
    }
}

fn parameters(reference: &Field<'_>, errors: &mut Errors) {
    if !reference.is_set() {
        return;
    }
    let (name, selector) = (reference.at("name"), reference.at("selector"));
    errors.named_if_set(&name, names::path_segment);
    errors.selector(&selector);
    match (name.is_empty(), selector.is_set()) {
        (false, true) => {
            for field in [&name, &selector] {
                errors.forbidden(field, "name and selector are mutually exclusive");
            }
        }
        (true, false) => errors.required(reference, "one of name or selector must be specified"),
        _ => {}
    }
    let missing = reference.at("parameterNotFoundAction");
    match missing.is_empty() {
        true => errors.required(&missing, ""),
        false => errors.one_of(&missing, &["Deny", "Allow"]),
    }
}
