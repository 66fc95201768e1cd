//! Admission around a write.

use super::Call;
use super::object;
use super::write_options::{Commit, WriteOptions};
use crate::admission::{Operation, Review};
use crate::error::{ApiError, Result};
use crate::server::decode::FieldValidation;
use serde_json::Value;
use std::sync::Arc;

/// The write as admission sees it.
pub fn review(
    call: &Call,
    operation: Operation,
    object: Value,
    old: Option<Arc<Value>>,
    options: &WriteOptions,
) -> Review {
    let kind = match operation {
        Operation::Create | Operation::Connect => "CreateOptions",
        Operation::Update => "UpdateOptions",
        Operation::Delete => "DeleteOptions",
    };
    Review {
        operation,
        resource: call.resource.clone(),
        subresource: call.path.subresource.clone(),
        namespace: match call.resource.plural.as_str() {
            "namespaces" if call.resource.group.is_empty() => object::name(&object).to_string(),
            _ => call.namespace().to_string(),
        },
        // A name that is still to be generated shows as its prefix.
        name: match object::name(&object) {
            "" => object::meta(&object, "generateName").to_string(),
            name => name.to_string(),
        },
        object: Some(object),
        old,
        options: options.as_object(kind),
        dry_run: options.commit == Commit::DryRun,
        user: call.user.clone(),
        warnings: Vec::new(),
        audit_annotations: Vec::new(),
    }
}

/// Lets admission change the object.
pub async fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    let outcome = crate::kinds::admission::mutate(call, review).await;
    hand_over(call, review);
    outcome.map_err(|error| named(call, review, error))
}

/// Lets admission refuse a connection; `options` say what for.
pub async fn connect(call: &Call, options: Value) -> Result<()> {
    let nothing = WriteOptions {
        commit: Commit::Store,
        field_manager: String::new(),
        validation: FieldValidation::Ignore,
        force: false,
    };
    let mut review = review(call, Operation::Connect, options, None, &nothing);
    review.name = call.path.name.clone();
    review.options = Value::Null;
    let outcome = crate::admission::connect(call, &mut review).await;
    hand_over(call, &mut review);
    outcome
}

/// Lets admission refuse the object.
pub async fn validate(call: &Call, review: &mut Review) -> Result<()> {
    let outcome = crate::kinds::admission::validate(call, review).await;
    hand_over(call, review);
    outcome.map_err(|error| named(call, review, error))
}

/// Says of an object without any name that it has none, where it is forbidden.
fn named(call: &Call, review: &Review, mut error: ApiError) -> ApiError {
    const NAMELESS: &str = "Unknown";
    let bare = format!("{} is forbidden: ", call.group_resource());
    if review.name.is_empty()
        && let Some(why) = error.message.strip_prefix(&bare)
    {
        error.message = format!("{} \"{NAMELESS}\" is forbidden: {why}", call.group_resource());
        error.details["name"] = NAMELESS.into();
    }
    error
}

fn hand_over(call: &Call, review: &mut Review) {
    for warning in std::mem::take(&mut review.warnings) {
        call.warn(warning);
    }
    call.annotations.lock().append(&mut review.audit_annotations);
}
