//! What validating policies say of a write.

use super::checks::{FailurePolicy, Validation};
use super::{Binding, Policy, meant, params};
use crate::admission::Review;
use crate::admission::expressions::{self, Inputs, Scope};
use crate::admission::views::Phase;
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use serde_json::{Value as Json, json};
use stead_cel::{Budget, EvalError, Value};

/// The longest message or annotation that an expression may make.
const MESSAGE_LIMIT: usize = 5 * 1024;
const ANNOTATION_LIMIT: usize = 10 * 1024;

/// One reason to refuse.
struct Denial {
    message: String,
    reason: String,
}

/// Refuses a write that a policy with `Deny` refuses; tells the client of the others.
pub async fn validate(call: &Call, review: &mut Review) -> Result<()> {
    let mut refused: Option<(String, Denial)> = None;
    for (policy, bindings) in meant(call, review, Phase::Validating) {
        for binding in bindings {
            let denials = evaluate_binding(call, review, &policy, &binding).await;
            for (place, denial) in denials {
                for action in &binding.actions {
                    match action.as_str() {
                        "Deny" if refused.is_none() => {
                            let message = format!(
                                "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {}",
                                policy.name, binding.name, denial.message
                            );
                            let copy = Denial {
                                message: denial.message.clone(),
                                reason: denial.reason.clone(),
                            };
                            refused = Some((message, copy));
                        }
                        "Warn" => review.warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {}",
                            policy.name, binding.name, denial.message
                        )),
                        "Audit" => {
                            let value = json!([{
                                "message": denial.message, "policy": policy.name, "binding": binding.name,
                                "expressionIndex": place, "validationActions": binding.actions,
                            }]);
                            let key = "validation.policy.admission.k8s.io/validation_failure".to_string();
                            review.audit_annotations.push((key, value.to_string()));
                        }
                        _ => {}
                    }
                }
            }
        }
    }
    match refused {
        None => Ok(()),
        Some((message, denial)) => Err(denied(review, message, &denial.reason)),
    }
}

/// A refusal has the form of a forbidden request, and the reason that the policy chose.
pub(super) fn denied(review: &Review, message: String, reason: &str) -> ApiError {
    let (code, reason) = match reason {
        "Forbidden" => (403, "Forbidden"),
        "Unauthorized" => (401, "Unauthorized"),
        "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
        _ => (422, "Invalid"),
    };
    let mut error = ApiError::forbidden(&review.resource.group_resource(), &review.name, &message);
    error.code = code;
    error.reason = reason;
    if let Json::Object(details) = &mut error.details {
        details.insert("causes".to_string(), json!([{"message": message}]));
    }
    error
}

/// All denials of one binding, with the places of their expressions.
async fn evaluate_binding(
    call: &Call,
    review: &mut Review,
    policy: &Policy,
    binding: &Binding,
) -> Vec<(usize, Denial)> {
    let on_error = |message: String| match policy.failure {
        FailurePolicy::Ignore => Vec::new(),
        FailurePolicy::Fail => vec![(0, invalid(message))],
    };
    if let Some(why) = &policy.broken {
        return on_error(why.clone());
    }
    let params = match params::collect(call, review, policy, binding).await {
        Ok(params) => params,
        Err(why) => return on_error(format!("failed to configure binding: {why}")),
    };
    let seen = policy.matcher.seen_as(call, review);
    let mut denials = Vec::new();
    let mut annotations = Vec::new();
    for param in params {
        let inputs = match Inputs::seen_as(call, review, &seen, param.as_ref()).await {
            Ok(inputs) => inputs,
            Err(why) => {
                denials.extend(on_error(why));
                continue;
            }
        };
        match expressions::conditions_hold(&policy.conditions, &inputs, &policy.variables) {
            Ok(true) => {}
            Ok(false) => continue,
            Err(why) => {
                denials.extend(on_error(why));
                continue;
            }
        }
        let mut scope = Scope::new(&inputs, &policy.variables);
        let mut run = |program: &stead_cel::Program| scope.evaluate(program, Budget::PER_OBJECT);
        for (place, validation) in policy.validations.iter().enumerate() {
            match judge(validation, &mut run) {
                Ok(None) => {}
                Ok(Some(denial)) => denials.push((place, denial)),
                Err(_) if policy.failure == FailurePolicy::Ignore => {}
                Err(why) => denials.push((place, invalid(why))),
            }
        }
        for (key, program) in &policy.annotations {
            if let Ok(program) = program
                && let Ok(Value::String(text)) = run(program)
                && !text.trim().is_empty()
            {
                let text: String = text.trim().chars().take(ANNOTATION_LIMIT).collect();
                annotations.push((format!("{}/{key}", policy.name), text));
            }
        }
    }
    for annotation in annotations {
        if !review.audit_annotations.contains(&annotation) {
            review.audit_annotations.push(annotation);
        }
    }
    denials
}

fn invalid(message: String) -> Denial {
    Denial {
        message,
        reason: "Invalid".to_string(),
    }
}

/// The denial of one validation, if it does not hold.
fn judge<'a>(
    validation: &Validation,
    run: &mut dyn FnMut(&stead_cel::Program) -> Result<Value<'a>, EvalError>,
) -> Result<Option<Denial>, String> {
    let program = validation.program.as_ref().map_err(Clone::clone)?;
    match run(program) {
        Ok(Value::Bool(true)) => return Ok(None),
        Ok(_) => {}
        Err(EvalError::CostLimit) => {
            return Err(
                "validation failed due to running out of cost budget, no further validation rules will be run"
                    .to_string(),
            );
        }
        Err(error) => return Err(format!("expression '{}' resulted in error: {error}", validation.source)),
    }
    let made = validation
        .message_program
        .as_ref()
        .and_then(|program| match run(program) {
            Ok(Value::String(text)) => {
                let text = text.trim().to_string();
                (!text.is_empty() && text.len() <= MESSAGE_LIMIT && !text.contains('\n')).then_some(text)
            }
            _ => None,
        });
    let message = match (made, validation.message.trim()) {
        (Some(made), _) => made,
        (None, "") => format!("failed expression: {}", validation.source.trim()),
        (None, message) => message.to_string(),
    };
    Ok(Some(Denial {
        message,
        reason: validation.reason.clone(),
    }))
}
