//! What every controller of pods asks about them.

use crate::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::time::Duration;
use stead_machinery::selector::LabelSelector as Selector;

/// Letters and digits that make no words.
const ALPHABET: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";

/// Ten letters and digits that stand for a text, fit for a name.
pub fn hash(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    let letters = digest.iter().take(10);
    letters
        .map(|byte| char::from(ALPHABET[usize::from(*byte) % ALPHABET.len()]))
        .collect()
}

/// A number, or a percentage of the whole, rounded up.
pub fn share(limit: &IntOrString, whole: i32) -> i32 {
    match limit {
        IntOrString::Int(count) => *count,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let share = (i64::from(whole) * percent.clamp(0, 100) + 99) / 100;
            i32::try_from(share).unwrap_or(i32::MAX)
        }
    }
}

/// Whether a pod counts: it has not ended and is not going away.
pub fn is_active(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !has_ended(pod)
}

/// Whether all its containers have ended for good.
pub fn has_ended(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Whether it has a node.
pub fn is_placed(pod: &Pod) -> bool {
    node(pod).is_some()
}

/// Its node, if it has one.
pub fn node(pod: &Pod) -> Option<&str> {
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    node.filter(|node| !node.is_empty())
}

/// Its phase; `Pending` before any node has spoken of it.
pub fn phase(pod: &Pod) -> &str {
    pod.status
        .as_ref()
        .and_then(|status| status.phase.as_deref())
        .unwrap_or("Pending")
}

/// Since when it is ready, if it is.
pub fn ready_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready" && condition.status == "True")?;
    Some(
        ready
            .last_transition_time
            .as_ref()
            .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
    )
}

pub fn is_ready(pod: &Pod) -> bool {
    ready_since(pod).is_some()
}

/// Whether a pod has been ready for long enough to rely on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Unready,
    /// It will count after this long.
    In(Duration),
    Available,
}

/// Whether it has been ready for `min_ready_seconds`.
pub fn availability(pod: &Pod, min_ready_seconds: i32, now: Timestamp) -> Availability {
    let Some(since) = ready_since(pod) else {
        return Availability::Unready;
    };
    let due = clock::after(since, SignedDuration::from_secs(i64::from(min_ready_seconds)));
    match Duration::try_from(due.duration_since(now)) {
        Ok(left) if min_ready_seconds > 0 && !left.is_zero() => Availability::In(left),
        _ => Availability::Available,
    }
}

/// A selector object as something that matches. One that cannot be read matches nothing; validation refuses those.
pub fn selector(selector: &LabelSelector) -> Option<Selector> {
    Selector::from_object(&serde_json::to_value(selector).ok()?).ok()
}

/// Whether a pod has these labels.
pub fn matches(selector: &Selector, pod: &Pod) -> bool {
    selector.matches(pod.metadata.labels.as_ref().unwrap_or(&Default::default()))
}

/// A pod from a template, named by the server after `prefix`.
pub fn from_template(template: &PodTemplateSpec, namespace: Option<&str>, prefix: &str) -> Pod {
    let mut meta = template.metadata.clone().unwrap_or_default();
    meta.name = None;
    meta.generate_name = Some(format!("{prefix}-"));
    meta.namespace = namespace.map(str::to_string);
    Pod {
        metadata: meta,
        spec: template.spec.clone(),
        status: None,
    }
}

/// Pods in the order in which they are given up: unassigned before assigned, pending before running, not ready
/// before ready, doubled up on a node before alone, ready for a short time before ready for long, often restarted
/// before steady, newer before older.
pub fn by_worth(mut pods: Vec<&Pod>) -> Vec<&Pod> {
    let mut crowds: HashMap<Option<&str>, usize> = HashMap::new();
    for pod in &pods {
        *crowds.entry(node(pod)).or_default() += 1;
    }
    pods.sort_by_cached_key(|pod| {
        let assigned = is_placed(pod);
        let rank = match phase(pod) {
            "Pending" => 0,
            "Unknown" => 1,
            _ => 2,
        };
        let cost = deletion_cost(pod);
        let crowd = std::cmp::Reverse(crowds.get(&node(pod)).copied());
        let since = std::cmp::Reverse(ready_since(pod));
        let restarts = std::cmp::Reverse(restarts(pod));
        let age = std::cmp::Reverse(pod.metadata.creation_timestamp.as_ref().map(|time| time.0));
        (
            assigned,
            rank,
            is_ready(pod),
            cost,
            crowd,
            since,
            restarts,
            age,
            pod.metadata.name.clone(),
        )
    });
    pods
}

fn deletion_cost(pod: &Pod) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    let cost = annotations.and_then(|all| all.get("controller.kubernetes.io/pod-deletion-cost"));
    cost.and_then(|text| text.parse().ok()).unwrap_or(0)
}

fn restarts(pod: &Pod) -> i32 {
    let statuses = pod
        .status
        .as_ref()
        .and_then(|status| status.container_statuses.as_ref());
    statuses
        .into_iter()
        .flatten()
        .map(|container| container.restart_count)
        .max()
        .unwrap_or(0)
}
