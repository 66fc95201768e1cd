//! What a Deployment's status says: counts, Available, and Progressing with its deadline.

use super::Sets;
use super::rolling::{self, desired, limits};
use crate::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::sync::Arc;
use std::time::Duration;

/// What a roll-out says that has made no progress within its deadline.
const LATE: &str = "ProgressDeadlineExceeded";

/// What the roll-out is doing, as the Progressing condition tells it.
struct Progress {
    status: &'static str,
    reason: &'static str,
    message: String,
    /// Whether the deadline starts anew.
    moved: bool,
}

/// The new status, if it differs, and when to look again for the deadline's sake.
pub fn of(deployment: &Deployment, sets: &Sets, now: Timestamp) -> (Option<DeploymentStatus>, Option<Duration>) {
    let before = deployment.status.clone().unwrap_or_default();
    let mut after = counts(deployment, sets, &before);
    after.conditions = before.conditions.clone();
    let (_, missing) = limits(deployment);
    let enough = after.available_replicas.unwrap_or(0) >= desired(deployment) - missing;
    let (status, reason, message) = if enough {
        (
            "True",
            "MinimumReplicasAvailable",
            "Deployment has minimum availability.",
        )
    } else {
        (
            "False",
            "MinimumReplicasUnavailable",
            "Deployment does not have minimum availability.",
        )
    };
    set(
        &mut after,
        "Available",
        status,
        reason,
        message.to_string(),
        Update::OnChange,
        now,
    );
    let next = progress_condition(deployment, sets, &before, &mut after, now);
    failure_condition(sets, &mut after, now);
    let differs = normal(&before) != normal(&after);
    (differs.then_some(after), next)
}

/// The status of a Deployment whose new ReplicaSet was refused, if that is news. Without a deadline nobody wants to
/// know how it goes.
pub fn refused(deployment: &Deployment, reason: &str, message: String, now: Timestamp) -> Option<DeploymentStatus> {
    let deadline = deployment.spec.as_ref()?.progress_deadline_seconds?;
    let before = deployment.status.clone().unwrap_or_default();
    let mut after = before.clone();
    set(
        &mut after,
        "Progressing",
        "False",
        reason,
        message,
        Update::OnChange,
        now,
    );
    (deadline != i32::MAX && after.conditions != before.conditions).then_some(after)
}

fn counts(deployment: &Deployment, sets: &Sets, before: &DeploymentStatus) -> DeploymentStatus {
    let sum = |pick: fn(&ReplicaSet) -> i32| sets.all().map(|set| pick(set)).sum::<i32>();
    let replicas = sum(|set| set.status.as_ref().map_or(0, |status| status.replicas));
    let available = sum(|set| {
        set.status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or(0)
    });
    let ready = sum(|set| {
        set.status
            .as_ref()
            .and_then(|status| status.ready_replicas)
            .unwrap_or(0)
    });
    let updated = sets
        .new
        .as_ref()
        .and_then(|new| new.status.as_ref())
        .map_or(0, |status| status.replicas);
    let terminating = |set: &Arc<ReplicaSet>| set.status.as_ref().and_then(|status| status.terminating_replicas);
    DeploymentStatus {
        terminating_replicas: Some(sets.all().filter_map(terminating).sum()),
        observed_generation: deployment.metadata.generation,
        replicas: Some(replicas),
        updated_replicas: Some(updated),
        ready_replicas: Some(ready),
        available_replicas: Some(available),
        unavailable_replicas: Some((rolling::total(sets.all()) - available).max(0)),
        collision_count: before.collision_count,
        ..DeploymentStatus::default()
    }
}

/// Absent counts are nought: the API leaves noughts out.
fn normal(status: &DeploymentStatus) -> DeploymentStatus {
    let mut status = status.clone();
    for count in [
        &mut status.replicas,
        &mut status.updated_replicas,
        &mut status.ready_replicas,
        &mut status.available_replicas,
        &mut status.unavailable_replicas,
        &mut status.terminating_replicas,
    ] {
        count.get_or_insert(0);
    }
    status
}

fn progress_condition(
    deployment: &Deployment,
    sets: &Sets,
    before: &DeploymentStatus,
    after: &mut DeploymentStatus,
    now: Timestamp,
) -> Option<Duration> {
    let spec = deployment.spec.as_ref()?;
    let deadline = spec.progress_deadline_seconds?;
    let name = deployment.metadata.name.as_deref().unwrap_or_default();
    let last = before
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "Progressing");
    let complete = is_complete(deployment, after);
    let said = last.and_then(|condition| condition.reason.as_deref());
    let turn = match spec.paused == Some(true) {
        // That it is late stays true while it is paused.
        true if said == Some(LATE) => return None,
        true => Some(("DeploymentPaused", "Deployment is paused")),
        false if said == Some("DeploymentPaused") => Some(("DeploymentResumed", "Deployment is resumed")),
        false => None,
    };
    if let Some((reason, message)) = turn {
        let message = message.to_string();
        set(after, "Progressing", "Unknown", reason, message, Update::OnChange, now);
        // The time for which it was paused does not count: the deadline is counted from now.
        return (spec.paused != Some(true)).then(|| Duration::from_secs(u64::try_from(deadline).unwrap_or(0)));
    }
    let since = last
        .and_then(|condition| condition.last_update_time.as_ref())
        .map_or(now, |time| time.0);
    let due = clock::after(since, SignedDuration::from_secs(i64::from(deadline)));
    let set_name = sets
        .new
        .as_ref()
        .and_then(|set| set.metadata.name.as_deref())
        .unwrap_or(name);
    let was_complete = said == Some("NewReplicaSetAvailable");
    let begins = sets.new.as_ref().is_none_or(is_fresh);
    // A roll-out that was complete is over. That it is scaled, or loses pods, is none of its business.
    if was_complete && !begins && after.updated_replicas == after.replicas {
        return None;
    }
    let was_late = said == Some(LATE);
    let moved = has_moved(before, after) || last.is_none();
    let progress = if complete {
        let message = format!("ReplicaSet \"{set_name}\" has successfully progressed.");
        Progress {
            status: "True",
            reason: "NewReplicaSetAvailable",
            message,
            moved: !was_complete || begins,
        }
    } else if sets.new.is_none() || moved || (was_complete && begins) {
        let message = format!("ReplicaSet \"{set_name}\" is progressing.");
        Progress {
            status: "True",
            reason: "ReplicaSetUpdated",
            message,
            moved: true,
        }
    } else if !was_complete && !was_late && now >= due {
        let message = format!("ReplicaSet \"{set_name}\" has timed out progressing.");
        Progress {
            status: "False",
            reason: LATE,
            message,
            moved: true,
        }
    } else {
        // Nothing to say: neither moved, nor done, nor late.
        return (!was_complete && !was_late).then(|| Duration::try_from(due.duration_since(now)).unwrap_or_default());
    };
    let update = if progress.moved {
        Update::Always
    } else {
        Update::OnChange
    };
    set(
        after,
        "Progressing",
        progress.status,
        progress.reason,
        progress.message,
        update,
        now,
    );
    (!complete && progress.status == "True").then(|| Duration::from_secs(u64::try_from(deadline).unwrap_or(0)))
}

/// What keeps the ReplicaSets from having their pods is told here too: of the new one, or else of the old ones.
fn failure_condition(sets: &Sets, after: &mut DeploymentStatus, now: Timestamp) {
    const KIND: &str = "ReplicaFailure";
    let failure = |set: &Arc<ReplicaSet>| {
        let conditions = set.status.as_ref()?.conditions.as_ref()?;
        conditions.iter().find(|one| one.type_ == KIND).cloned()
    };
    let found = sets.new.iter().chain(&sets.old).find_map(failure);
    match found {
        Some(found) => {
            let reason = found.reason.unwrap_or_default();
            let message = found.message.unwrap_or_default();
            set(after, KIND, &found.status, &reason, message, Update::OnChange, now);
        }
        None => after.conditions.get_or_insert_default().retain(|one| one.type_ != KIND),
    }
}

fn is_complete(deployment: &Deployment, status: &DeploymentStatus) -> bool {
    let wanted = Some(desired(deployment));
    status.updated_replicas == wanted && status.replicas == wanted && status.available_replicas == wanted
}

/// More pods of the new template, fewer of the old ones, or more that are ready or available.
fn has_moved(before: &DeploymentStatus, after: &DeploymentStatus) -> bool {
    let old = |status: &DeploymentStatus| status.replicas.unwrap_or(0) - status.updated_replicas.unwrap_or(0);
    after.updated_replicas > before.updated_replicas.or(Some(0))
        || old(after) < old(before)
        || after.ready_replicas > before.ready_replicas.or(Some(0))
        || after.available_replicas > before.available_replicas.or(Some(0))
}

/// Whether a ReplicaSet was made just now: nobody has looked at it yet.
fn is_fresh(set: &Arc<ReplicaSet>) -> bool {
    let seen = set.status.as_ref().and_then(|status| status.observed_generation);
    seen.unwrap_or(0) == 0
}

#[derive(Clone, Copy, PartialEq)]
enum Update {
    /// The time of the update moves even if the words stay.
    Always,
    OnChange,
}

fn set(
    status: &mut DeploymentStatus,
    kind: &str,
    value: &str,
    reason: &str,
    message: String,
    update: Update,
    now: Timestamp,
) {
    let conditions = status.conditions.get_or_insert_default();
    let time = Time(now);
    let position = conditions.iter().position(|condition| condition.type_ == kind);
    let old = position.map(|position| conditions.remove(position));
    let same = old
        .as_ref()
        .is_some_and(|old| old.status == value && old.reason.as_deref() == Some(reason));
    if let Some(old) = old.as_ref().filter(|_| same && update == Update::OnChange) {
        conditions.insert(position.unwrap_or(0), old.clone());
        return;
    }
    let transition = old
        .as_ref()
        .filter(|old| old.status == value)
        .and_then(|old| old.last_transition_time.clone());
    let condition = DeploymentCondition {
        type_: kind.to_string(),
        status: value.to_string(),
        reason: Some(reason.to_string()),
        message: Some(message),
        last_update_time: Some(time.clone()),
        last_transition_time: transition.or(Some(time)),
    };
    conditions.insert(position.unwrap_or(conditions.len()), condition);
}
