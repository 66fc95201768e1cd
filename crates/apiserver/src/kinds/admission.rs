//! Admission of what is special to built-in kinds: policies must have expressions that can be read.

use crate::admission::{self, Operation, Review};
use crate::error::{ApiError, Result};
use crate::verbs::Call;

pub async fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    admission::mutate(call, review).await
}

pub async fn validate(call: &Call, review: &mut Review) -> Result<()> {
    expressions(review)?;
    admission::validate(call, review).await
}

fn expressions(review: &Review) -> Result<()> {
    let resource = &review.resource;
    let writes = matches!(review.operation, Operation::Create | Operation::Update) && review.subresource.is_empty();
    let Some(object) = review.object.as_ref().filter(|_| writes) else {
        return Ok(());
    };
    // An expression that was accepted once does not make a later update fail.
    let old = review.old.as_deref();
    if old.is_some_and(|old| old["spec"] == object["spec"] && old["webhooks"] == object["webhooks"]) {
        return Ok(());
    }
    let errors = match (resource.group.as_str(), resource.plural.as_str()) {
        ("admissionregistration.k8s.io", "validatingadmissionpolicies" | "mutatingadmissionpolicies") => {
            admission::policy_errors(object)
        }
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations" | "mutatingwebhookconfigurations") => {
            admission::webhook_errors(object)
        }
        _ => return Ok(()),
    };
    if errors.is_empty() {
        return Ok(());
    }
    Err(ApiError::invalid(
        &resource.group,
        &resource.kind,
        &review.name,
        &errors,
    ))
}
