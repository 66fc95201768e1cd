//! Pods that nobody is left to end: their node is gone, is off for good, or never was.
//!
//! Each of them is said to have failed before it goes, so that who counts how pods end, as Jobs do, is not left
//! waiting for an end that no node will report.

use super::pods;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;
use stead::writer::{Draft, Verb};
use stead::{Context, Error, Key, Kind};

/// Why nobody ends a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// Its node does not exist any more.
    NodeGone,
    /// A person has said of its node that nothing runs there.
    OutOfService,
    /// It is deleted and has never had a node; a finalizer keeps it.
    NeverPlaced,
}

/// Says that a pod has failed, and removes it at once.
pub async fn end(context: &Context, pod: &Pod, cause: Cause) -> Result<(), Error> {
    if !pods::has_ended(pod) {
        let mut status = json!({"phase": "Failed"});
        if cause == Cause::NodeGone {
            let words = ("DeletionByPodGC", "PodGC: node no longer exists");
            status["conditions"] = json!(disrupted(context, pod, words));
        }
        match context.writer().patch_status(pod, json!({"status": status})).await {
            Err(error) if error.is_not_found() => return Ok(()),
            other => drop(other?),
        }
    }
    let options = json!({
        "apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0,
        "preconditions": {"uid": pod.metadata.uid},
    });
    let draft = Draft::new(Verb::Delete, Kind::of::<Pod>(), Key::of(pod), options);
    match context.writer().send(draft).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

/// A pod's conditions with a word of why somebody ends it: the reason and the message.
pub fn disrupted(context: &Context, pod: &Pod, words: (&str, &str)) -> Vec<PodCondition> {
    let condition = PodCondition {
        type_: "DisruptionTarget".to_string(),
        status: "True".to_string(),
        reason: Some(words.0.to_string()),
        message: Some(words.1.to_string()),
        last_transition_time: Some(Time(context.now())),
        ..PodCondition::default()
    };
    let status = pod.status.as_ref();
    let mut conditions = status.and_then(|status| status.conditions.clone()).unwrap_or_default();
    conditions.retain(|one| one.type_ != condition.type_);
    conditions.push(condition);
    conditions
}
