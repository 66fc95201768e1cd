//! Webhooks as they are stored.

use crate::admission::Review;
use crate::admission::expressions::{self, Inputs};
use crate::admission::matching::Matcher;
use crate::hooks::{Endpoint, Purpose};
use crate::store::Record;
use crate::verbs::Call;
use serde_json::Value;
use std::time::Duration;
use stead_cel::Program;
use stead_cel::admission::Names;

const DEFAULT_TIMEOUT: u64 = 10;

/// One webhook of a configuration.
#[derive(Debug)]
pub struct Webhook {
    pub name: String,
    pub matcher: Matcher,
    pub failure: FailurePolicy,
    pub side_effects: SideEffects,
    pub reinvocation: bool,
    pub endpoint: Endpoint,
    pub accepts_v1: bool,
    conditions: Vec<(String, Result<Program, String>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailurePolicy {
    Fail,
    Ignore,
}

/// Whether asking changes anything, so that a dry run must not ask.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SideEffects {
    None,
    Some,
}

impl Webhook {
    /// All webhooks of a configuration.
    pub fn all(record: &Record) -> Option<Vec<Webhook>> {
        let value = record.value();
        let webhooks = value["webhooks"].as_array()?;
        Some(webhooks.iter().map(Webhook::of).collect())
    }

    fn of(value: &Value) -> Webhook {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let timeout = Duration::from_secs(value["timeoutSeconds"].as_u64().unwrap_or(DEFAULT_TIMEOUT).clamp(1, 30));
        let env = Names::of_webhook().environment();
        let conditions = value["matchConditions"].as_array().into_iter().flatten();
        Webhook {
            name: text(&value["name"]),
            matcher: Matcher::of_webhook(value),
            failure: match value["failurePolicy"].as_str() {
                Some("Ignore") => FailurePolicy::Ignore,
                _ => FailurePolicy::Fail,
            },
            side_effects: match value["sideEffects"].as_str() {
                Some("None" | "NoneOnDryRun") => SideEffects::None,
                _ => SideEffects::Some,
            },
            reinvocation: value["reinvocationPolicy"] == "IfNeeded",
            endpoint: Endpoint::of(&value["clientConfig"], timeout, Purpose::Admission),
            accepts_v1: value["admissionReviewVersions"]
                .as_array()
                .is_none_or(|versions| versions.iter().any(|version| version == "v1")),
            conditions: conditions
                .map(|condition| {
                    let program = expressions::program(&text(&condition["expression"]), &env);
                    (text(&condition["name"]), program)
                })
                .collect(),
        }
    }

    /// Whether all match conditions hold of the write as the webhook's rules see it.
    pub async fn conditions_hold(&self, call: &Call, review: &Review) -> Result<bool, ConditionError> {
        if self.conditions.is_empty() {
            return Ok(true);
        }
        let seen = self.matcher.seen_as(call, review);
        let inputs = Inputs::of_condition(call, review, &seen)
            .await
            .map_err(ConditionError::Conversion)?;
        expressions::conditions_hold(&self.conditions, &inputs, &[]).map_err(ConditionError::Evaluation)
    }
}

/// Why it is not known whether a webhook is meant.
#[derive(Debug)]
pub enum ConditionError {
    /// The objects could not be converted to the version that its rules name; this is nothing that it may ignore.
    Conversion(String),
    Evaluation(String),
}
