//! Admission of what is special to built-in kinds: policies must have expressions that can be read.

use crate::admission::{self, Operation, Review};
use crate::error::{ApiError, Result};
use crate::verbs::Call;

pub async fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    admission::mutate(call, review).await
}

pub async fn validate(call: &Call, review: &mut Review) -> Result<()> {
    policy_expressions(review)?;
    admission::validate(call, review).await
}

fn policy_expressions(review: &Review) -> Result<()> {
    let resource = &review.resource;
    let is_policy = resource.group == "admissionregistration.k8s.io"
        && matches!(
            resource.plural.as_str(),
            "validatingadmissionpolicies" | "mutatingadmissionpolicies"
        );
    let writes = matches!(review.operation, Operation::Create | Operation::Update) && review.subresource.is_empty();
    let Some(policy) = review.object.as_ref().filter(|_| is_policy && writes) else {
        return Ok(());
    };
    // An expression that was accepted once does not make a later update fail.
    if review.old.as_ref().is_some_and(|old| old["spec"] == policy["spec"]) {
        return Ok(());
    }
    let errors = admission::policy_errors(policy);
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
