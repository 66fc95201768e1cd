//! What mutating policies change.

use super::checks::{FailurePolicy, Mutation, MutationKind};
use super::validate::denied;
use super::{Binding, Policy, meant, params};
use crate::admission::Review;
use crate::admission::expressions::{self, Inputs, Scope};
use crate::admission::patched;
use crate::admission::views::Phase;
use crate::catalogue::Resource;
use crate::error::{ApiError, Result};
use crate::verbs::{Call, object};
use jiff::Timestamp;
use serde_json::Value as Json;
use stead_cel::Budget;
use stead_cel::value::to_json;
use stead_machinery::apply::{self, FieldSet, Force, Kind, Writer};
use stead_machinery::patch;
use stead_machinery::schema::{SchemaRef, Shape};

/// How the refusal of a patch ends when a test in it failed.
const TEST_FAILED: &str = "failed: test failed";

/// Lets the policies change the object in the order of their names; those that want to see later changes run once
/// more when there were any.
pub async fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    let policies = meant(call, review, Phase::Mutating);
    if policies.is_empty() || review.object.is_none() {
        return Ok(());
    }
    let mut seen = Vec::new();
    for (policy, bindings) in &policies {
        for binding in bindings {
            run(call, review, policy, binding).await?;
        }
        seen.push(review.object.clone());
    }
    for ((policy, bindings), before) in policies.iter().zip(seen) {
        if policy.reinvocation && review.object != before {
            for binding in bindings {
                run(call, review, policy, binding).await?;
            }
        }
    }
    Ok(())
}

async fn run(call: &Call, review: &mut Review, policy: &Policy, binding: &Binding) -> Result<()> {
    match try_apply(call, review, policy, binding).await {
        Ok(()) => Ok(()),
        Err(Failed::Refused(error)) => Err(error),
        Err(Failed::Policy(_)) if policy.failure == FailurePolicy::Ignore => Ok(()),
        Err(Failed::Policy(why)) => {
            let message = format!(
                "policy '{}' with binding '{}' denied request: {why}",
                policy.name, binding.name
            );
            let mut error = denied(review, message.clone(), "Invalid");
            // Unlike a policy that validates, one that fails to change speaks for itself, and with this code.
            error.code = 403;
            error.message = message;
            Err(error)
        }
    }
}

/// Why a policy changed nothing.
enum Failed {
    /// Whether that matters is for the policy to say.
    Policy(String),
    /// It made something that is no object of its kind, which no policy can pass over.
    Refused(ApiError),
}

impl From<String> for Failed {
    fn from(why: String) -> Self {
        Failed::Policy(why)
    }
}

async fn try_apply(call: &Call, review: &mut Review, policy: &Policy, binding: &Binding) -> Result<(), Failed> {
    if let Some(why) = &policy.broken {
        return Err(why.clone().into());
    }
    let seen = policy.matcher.seen_as(call, review);
    for param in params::collect(call, review, policy, binding).await? {
        for mutation in &policy.mutations {
            let inputs = Inputs::seen_as(call, review, &seen, param.as_ref()).await?;
            if !expressions::conditions_hold(&policy.conditions, &inputs, &policy.variables)? {
                break;
            }
            let patch = evaluate(policy, mutation, &inputs)?;
            let Some(object) = &review.object else {
                return Ok(());
            };
            // What the policy makes is for the version that it saw.
            let mut changed = object.clone();
            call.convert(&mut changed, &review.resource, &seen)
                .await
                .map_err(|error| error.message)?;
            match mutation.kind {
                MutationKind::JsonPatch => match patch::json::apply(&mut changed, &patch) {
                    // A test that fails says that the rest is not for this object.
                    Err(error) if error.to_string().ends_with(TEST_FAILED) => continue,
                    outcome => outcome.map_err(|error| format!("JSON Patch: {error}"))?,
                },
                MutationKind::Apply if patched::is_whole(review) => {
                    changed = merged(&changed, patch, &seen, call.now)
                        .map_err(|why| format!("error applying patch: {why}"))?;
                }
                MutationKind::Apply => patch::strategic::apply(&mut changed, patch, seen.schema())
                    .map_err(|error| format!("error applying patch: {error}"))?,
            }
            patched::take_in(call, review, &seen, changed, patched::Unknown::Refused)
                .await
                .map_err(Failed::Refused)?;
        }
    }
    Ok(())
}

/// An object with a configuration merged in, as an apply merges it; nobody comes to own what a policy sets.
fn merged(object: &Json, mut configuration: Json, seen: &Resource, now: Timestamp) -> Result<Json, String> {
    if !configuration.is_object() {
        return Err("unsupported return type from ApplyConfiguration expression".to_string());
    }
    configuration["apiVersion"] = seen.api_version().into();
    configuration["kind"] = seen.kind.as_str().into();
    let owners = object["metadata"].get("managedFields").cloned();
    let mut live = object.clone();
    object::metadata_mut(&mut live).remove("managedFields");
    let (reset, fresh) = (FieldSet::default(), || Json::Object(serde_json::Map::new()));
    let kind = Kind {
        schema: seen.schema(),
        reset: &reset,
        fresh: &fresh,
    };
    let api_version = seen.api_version();
    let writer = Writer {
        manager: "policy",
        subresource: "",
        api_version: &api_version,
        now,
    };
    let merging = apply::apply(Some(&live), &configuration, &kind, &writer, Force::Yes).map_err(|error| {
        let why = error.to_string();
        // The words of an apply, without the name of the object that a request would have.
        match why.split_once("): ") {
            Some((typed, why)) if typed.starts_with("failed to create typed patch object") => {
                format!("failed to convert patch object to typed object: {why}")
            }
            _ => why,
        }
    });
    let mut merged = merging?;
    let mut pieces = Vec::new();
    find_pieces(&configuration, seen.schema(), "", &mut pieces);
    if !pieces.is_empty() {
        let which = pieces.join(", ");
        return Err(format!(
            "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {which}"
        ));
    }
    let metadata = object::metadata_mut(&mut merged);
    match owners {
        Some(owners) => metadata.insert("managedFields".to_string(), owners),
        None => metadata.remove("managedFields"),
    };
    Ok(merged)
}

/// Fields that are replaced as one piece: whoever sets a part of one would take the rest away. Lists of this sort are
/// taken all the same.
fn find_pieces(value: &Json, schema: SchemaRef<'_>, path: &str, found: &mut Vec<String>) {
    let (Json::Object(fields), Shape::Object(object)) = (value, schema.shape()) else {
        return;
    };
    if object.atomic {
        found.push(path.to_string());
    }
    for (name, value) in fields {
        if let Some(property) = object.properties.get(name.as_str()) {
            find_pieces(value, schema.go(property.node), &format!("{path}.{name}"), found);
        }
    }
}

fn evaluate(policy: &Policy, mutation: &Mutation, inputs: &Inputs) -> Result<Json, String> {
    let program = mutation.program.as_ref().map_err(Clone::clone)?;
    let mut scope = Scope::new(inputs, &policy.variables);
    let made = scope
        .evaluate(program, Budget::PER_OBJECT)
        .map_err(|error| error.to_string())?;
    to_json(&made).ok_or_else(|| "the expression made a value that no object can hold".to_string())
}
