//! What a rule says besides its expression: messages, reasons and paths.
//!
//! These mistakes are told first: a schema that has them is not yet one whose expressions are worth reading.

use super::paths;
use stead_machinery::field::FieldError;
use stead_machinery::schema::{Rule, SchemaRef, Shape};

const REASONS: &[&str] = &[
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

/// What can be said of the rules of a schema without reading them.
pub(super) fn forms(schema: SchemaRef<'_>, at: &str, errors: &mut Vec<FieldError>) {
    let constraints = schema.node().constraints.as_deref();
    for (place, rule) in constraints.into_iter().flat_map(|c| &c.rules).enumerate() {
        form(schema, rule, &format!("{at}.x-kubernetes-validations[{place}]"), errors);
    }
    match schema.shape() {
        Shape::Object(object) => {
            for (name, property) in &object.properties {
                forms(schema.go(property.node), &format!("{at}.properties[{name}]"), errors);
            }
            if let Some(values) = object.additional {
                forms(schema.go(values), &format!("{at}.additionalProperties"), errors);
            }
        }
        Shape::List(list) => forms(schema.go(list.items), &format!("{at}.items"), errors),
        _ => {}
    }
}

/// What can be said of a rule without reading it.
fn form(schema: SchemaRef<'_>, rule: &Rule, path: &str, errors: &mut Vec<FieldError>) {
    let message = rule.message.as_deref().unwrap_or_default();
    let broken = |text: &str| text.contains(['\n', '\r']);
    if rule.rule.trim().is_empty() {
        errors.push(FieldError::required(format!("{path}.rule"), "rule is not specified"));
    } else if !message.is_empty() && message.trim().is_empty() {
        let why = "must be non-empty if specified";
        errors.push(FieldError::invalid(format!("{path}.message"), message, why));
    } else if broken(message.trim()) {
        let why = "must not contain line breaks";
        errors.push(FieldError::invalid(format!("{path}.message"), message, why));
    } else if broken(rule.rule.trim()) && message.trim().is_empty() {
        let why = "message must be specified if rule contains line breaks";
        errors.push(FieldError::required(format!("{path}.message"), why));
    }
    if rule
        .message_expression
        .as_deref()
        .is_some_and(|text| !text.is_empty() && text.trim().is_empty())
    {
        let why = "messageExpression must be non-empty if specified";
        errors.push(FieldError::required(format!("{path}.messageExpression"), why));
    }
    if let Some(reason) = rule.reason.as_deref()
        && !REASONS.contains(&reason)
    {
        errors.push(FieldError::not_supported(format!("{path}.reason"), reason, REASONS));
    }
    let Some(field) = rule.field_path.as_deref().filter(|field| !field.is_empty()) else {
        return;
    };
    let mut complain = |why: &str| errors.push(FieldError::invalid(format!("{path}.fieldPath"), field, why));
    if field.trim().is_empty() {
        complain("must be non-empty if specified");
    }
    if broken(field) {
        complain("must not contain line breaks");
    }
    if paths::normalized(field, schema).is_err() {
        complain("must be a valid path");
    }
}
