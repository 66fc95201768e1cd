//! Mutating and validating webhooks: the cluster's own admission, asked over TLS.

mod configuration;
mod exchange;

pub use configuration::Webhook;

use super::Review;
use super::matching::{self, WithoutRules};
use super::patched;
use super::policies;
use super::views::Phase;
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use configuration::{ConditionError, FailurePolicy, SideEffects};
use exchange::Answer;
use futures::future::join_all;
use serde_json::Value;
use std::sync::Arc;

/// Lets the webhooks change the object, one after the other. When one did, those that want to know are asked once
/// more. `before` is the object as the policies found it.
pub async fn mutate(call: &Call, review: &mut Review, before: Option<Value>) -> Result<()> {
    let configurations = asked(call, review, Phase::Mutating);
    if configurations.is_empty() {
        return Ok(());
    }
    let mut answered: Vec<(Arc<Vec<Webhook>>, usize, Option<Value>)> = Vec::new();
    for configuration in &configurations {
        for place in 0..configuration.len() {
            let webhook = &configuration[place];
            if meant(call, review, webhook).await? {
                ask_and_patch(call, review, webhook).await?;
                answered.push((configuration.clone(), place, review.object.clone()));
            }
        }
    }
    if review.object != before && !answered.is_empty() {
        let seen = review.object.clone();
        // Policies that want to see what the webhooks changed get their turn in this round as well.
        policies::mutate(call, review).await?;
        for (configuration, place, left) in answered {
            let webhook = &configuration[place];
            let changed = review.object != left || review.object != seen;
            if webhook.reinvocation && changed && meant(call, review, webhook).await? {
                ask_and_patch(call, review, webhook).await?;
            }
        }
    }
    Ok(())
}

/// Asks all webhooks at once; the first refusal, in the order of their names, is the answer.
pub async fn validate(call: &Call, review: &mut Review) -> Result<()> {
    let configurations = asked(call, review, Phase::Validating);
    let mut wanted = Vec::new();
    for configuration in &configurations {
        for webhook in configuration.iter() {
            if meant(call, review, webhook).await? {
                wanted.push(webhook);
            }
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let shared: &Review = review;
    let answers = join_all(
        wanted
            .iter()
            .map(|webhook| ask(call, shared, webhook, Phase::Validating)),
    )
    .await;
    let mut refused = None;
    for (webhook, answer) in wanted.iter().zip(answers) {
        match answer {
            Ok(Some(answer)) => {
                note(review, webhook, &answer);
                if let Some(error) = answer.refusal(&webhook.name) {
                    refused.get_or_insert(error);
                }
            }
            Ok(None) => {}
            Err(error) => {
                refused.get_or_insert(error);
            }
        }
    }
    refused.map_or(Ok(()), Err)
}

fn asked(call: &Call, review: &Review, phase: Phase) -> Vec<Arc<Vec<Webhook>>> {
    if matching::exempt(review) {
        return Vec::new();
    }
    call.shared.admission.webhooks(phase)
}

/// Whether the webhook's rules, selectors and conditions are about this write.
async fn meant(call: &Call, review: &Review, webhook: &Webhook) -> Result<bool> {
    if !webhook.matcher.matches(call, review, WithoutRules::Nothing) {
        return Ok(false);
    }
    match webhook.conditions_hold(call, review).await {
        Ok(hold) => Ok(hold),
        Err(ConditionError::Conversion(why)) => Err(ApiError::internal(why)),
        Err(ConditionError::Evaluation(_)) if webhook.failure == FailurePolicy::Ignore => Ok(false),
        Err(ConditionError::Evaluation(why)) => Err(ApiError::forbidden(
            &review.resource.group_resource(),
            &review.name,
            why,
        )),
    }
}

async fn ask_and_patch(call: &Call, review: &mut Review, webhook: &Webhook) -> Result<()> {
    let seen = webhook.matcher.seen_as(call, review);
    let Some(answer) = ask(call, review, webhook, Phase::Mutating).await? else {
        return Ok(());
    };
    note(review, webhook, &answer);
    if let Some(error) = answer.refusal(&webhook.name) {
        return Err(error);
    }
    let Some(patch) = &answer.patch else {
        return Ok(());
    };
    let Some(object) = &review.object else {
        return Err(ApiError::internal(format!(
            "admission webhook {:?} attempted to modify the object, which is not supported for this operation",
            webhook.name
        )));
    };
    let mut patched = object.clone();
    // The patch is for the version that the webhook saw.
    call.convert(&mut patched, &review.resource, &seen).await?;
    stead_machinery::patch::json::apply(&mut patched, patch).map_err(ApiError::internal)?;
    patched::take_in(call, review, &seen, patched, patched::Unknown::Dropped).await
}

/// The webhook's answer, or `None` where it need not be asked or may be ignored.
async fn ask(call: &Call, review: &Review, webhook: &Webhook, phase: Phase) -> Result<Option<Answer>> {
    if review.dry_run && webhook.side_effects == SideEffects::Some {
        let message = format!("admission webhook {:?} does not support dry run", webhook.name);
        return Err(ApiError::bad_request(message));
    }
    let uid = call.shared.environment.uid();
    match exchange::exchange(call, review, webhook, &uid, phase).await {
        Ok(answer) => Ok(Some(answer)),
        Err(why) if webhook.failure == FailurePolicy::Ignore => {
            tracing::warn!(webhook = webhook.name, %why, "a webhook failed and is ignored");
            Ok(None)
        }
        Err(why) => Err(ApiError::internal(format!(
            "failed calling webhook {:?}: {why}",
            webhook.name
        ))),
    }
}

fn note(review: &mut Review, webhook: &Webhook, answer: &Answer) {
    review.warnings.extend(answer.warnings.iter().cloned());
    for (key, value) in &answer.annotations {
        review
            .audit_annotations
            .push((format!("{}/{key}", webhook.name), value.clone()));
    }
}
