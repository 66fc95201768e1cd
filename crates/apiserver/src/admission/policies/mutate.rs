//! What mutating policies change.

use super::checks::{FailurePolicy, Mutation, MutationKind};
use super::validate::denied;
use super::{Binding, Policy, meant, params};
use crate::admission::Review;
use crate::admission::expressions::{self, Inputs, Scope};
use crate::admission::patched;
use crate::admission::views::Phase;
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use serde_json::Value as Json;
use stead_cel::Budget;
use stead_cel::value::to_json;
use stead_machinery::patch;

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
            apply(call, review, policy, binding).await?;
        }
        seen.push(review.object.clone());
    }
    for ((policy, bindings), before) in policies.iter().zip(seen) {
        if policy.reinvocation && review.object != before {
            for binding in bindings {
                apply(call, review, policy, binding).await?;
            }
        }
    }
    Ok(())
}

async fn apply(call: &Call, review: &mut Review, policy: &Policy, binding: &Binding) -> Result<()> {
    match try_apply(call, review, policy, binding).await {
        Ok(()) => Ok(()),
        Err(Failed::Refused(error)) => Err(error),
        Err(Failed::Policy(_)) if policy.failure == FailurePolicy::Ignore => Ok(()),
        Err(Failed::Policy(why)) => {
            let message = format!(
                "policy '{}' with binding '{}' denied request: {why}",
                policy.name, binding.name
            );
            Err(denied(review, message, "Invalid"))
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
                MutationKind::JsonPatch => patch::json::apply(&mut changed, &patch),
                MutationKind::Apply => patch::strategic::apply(&mut changed, patch, seen.schema()),
            }
            .map_err(|error| error.to_string())?;
            let taken = patched::take_in(call, review, &seen, changed).await;
            taken.map_err(|error| match mutation.kind {
                MutationKind::JsonPatch => Failed::Refused(error),
                // Kubernetes looks at the types of what is applied before it applies it.
                MutationKind::Apply => Failed::Policy(format!("error applying patch: {}", error.message)),
            })?;
        }
    }
    Ok(())
}

fn evaluate(policy: &Policy, mutation: &Mutation, inputs: &Inputs) -> Result<Json, String> {
    let program = mutation.program.as_ref().map_err(Clone::clone)?;
    let mut scope = Scope::new(inputs, &policy.variables);
    let made = scope
        .evaluate(program, Budget::PER_OBJECT)
        .map_err(|error| error.to_string())?;
    to_json(&made).ok_or_else(|| "the expression made a value that no object can hold".to_string())
}
