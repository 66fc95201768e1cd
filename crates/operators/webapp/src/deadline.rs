//! How long a new version may make no progress, counted by the operator from what it noted in the status.
//!
//! What a Deployment says of its own deadline is not enough. It counts nothing once a template was complete, and so
//! nothing while a canary grows from step to step or an application wakes up; and what it said of one template stays
//! when an earlier one is taken back.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use stead_apis::WebApp;
use stead_apis::webapp::status::RolloutStatus;

/// How it stands with the deadline of a version that is not complete.
#[derive(Debug, Clone, PartialEq)]
pub enum Deadline {
    /// Its pods are not to run yet, or their controller has never looked: that is no fault of the version.
    NotCounted,
    /// It has time left, counted from here.
    Running(RolloutStatus),
    /// It made no progress for too long.
    Over,
}

/// The deadline of this revision, in this step of its canary (0 where it is to run on all pods), by how far the
/// Deployment that runs it is.
pub fn of(app: &WebApp, revision: i64, step: i32, deployment: &Deployment, now: Timestamp) -> Deadline {
    let Some((replicas, status)) = at_work(deployment) else {
        return Deadline::NotCounted;
    };
    let noted = app.status.as_ref().and_then(|status| status.rollout.as_ref());
    let noted = noted.filter(|noted| noted.revision == revision && noted.step == step);
    if status.observed_generation < deployment.metadata.generation {
        // Its controller has not looked at the last change. That may be an autoscaler's, of which there are many: what
        // was noted stays, or the time would begin anew with each of them.
        return noted.map_or(Deadline::NotCounted, |noted| Deadline::Running(noted.clone()));
    }
    let came = RolloutStatus {
        revision,
        step,
        replicas: Some(replicas),
        progress: progress(status, replicas),
        moved_at: Time(now),
    };
    let Some(noted) = noted else {
        return Deadline::Running(came);
    };
    let same_goal = noted.replicas.is_none_or(|then| then == replicas);
    if same_goal && came.progress > noted.progress {
        return Deadline::Running(came);
    }
    // The furthest it came counts: pods that come and go make no progress, however often they come. Of fewer pods it may
    // never come so far again, so with another number of them this is counted anew, and only the time goes on.
    let progress = match same_goal {
        true => noted.progress,
        false => came.progress,
    };
    let waits = RolloutStatus {
        progress,
        moved_at: noted.moved_at.clone(),
        ..came
    };
    match now >= due(app, &waits) {
        true => Deadline::Over,
        false => Deadline::Running(waits),
    }
}

/// When the time of this roll-out is over unless it moves.
pub fn due(app: &WebApp, rollout: &RolloutStatus) -> Timestamp {
    rollout.moved_at.0 + SignedDuration::from_secs(i64::from(app.spec.strategy.progress_deadline_seconds))
}

/// How many pods the Deployment is to have, and what its controller says of them, where it is to have any.
fn at_work(deployment: &Deployment) -> Option<(i32, &DeploymentStatus)> {
    let (spec, status) = deployment.spec.as_ref().zip(deployment.status.as_ref())?;
    let replicas = spec.replicas.unwrap_or(1);
    (spec.paused != Some(true) && replicas > 0).then_some((replicas, status))
}

/// How far a Deployment is with its newest template. This never shrinks while all goes well: a new pod, an old one
/// that is gone, and a new one that is available each make it grow.
fn progress(status: &DeploymentStatus, replicas: i32) -> i32 {
    let updated = status.updated_replicas.unwrap_or(0);
    let old = status.replicas.unwrap_or(0) - updated;
    // Nobody counts the available pods of the newest template; at least so many of them are.
    let fresh = status.available_replicas.unwrap_or(0) - old;
    // Pods of either kind that are too many after a change of scale go anyway: that is no progress.
    let (updated, old) = (updated.clamp(0, replicas), old.min(replicas));
    updated - old + fresh.clamp(0, updated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_rolling_update_that_goes_well_always_moves() {
        // Of ten pods, two or three at a time: all of them, those of the newest template, and those available.
        let steps = [
            (10, 0, 10),
            (13, 3, 8),
            (11, 3, 8),
            (11, 3, 11),
            (8, 3, 8),
            (13, 8, 8),
            (13, 8, 13),
            (8, 8, 8),
            (10, 10, 8),
            (10, 10, 10),
        ];
        let mut before = i32::MIN;
        for (replicas, updated, available) in steps {
            let status = json!({"replicas": replicas, "updatedReplicas": updated, "availableReplicas": available});
            let now = progress(&serde_json::from_value(status).expect("a status"), 10);
            assert!(
                now >= before,
                "{before} becomes {now} at {replicas} {updated} {available}"
            );
            before = now;
        }
        assert_eq!(before, 20);
    }
}
