//! Pods that are up but failing, or that sit on a bad node: which one is replaced now. Pure.
//!
//! One at a time, and the next one only when the replacement serves: what is wrong with one pod may be wrong with all, and
//! taking them all away would make it worse.

use crate::rollout::Rollout;
use crate::situation::Situation;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use stead::Plan;
use stead_apis::WebApp;
use stead_apis::webapp::autopilot::BadNodes;

/// A pod that should have ended so long ago is on a node that is dead, whether or not we may see nodes: nobody waits for
/// it.
const LATEST_END: SignedDuration = SignedDuration::from_secs(60);

/// The plan, with the pod that is to be replaced.
pub fn recover(app: &WebApp, situation: &Situation<'_>, now: Timestamp, plan: Plan) -> Plan {
    let Some(recovery) = &app.spec.recovery else {
        return plan;
    };
    let others_change = !matches!(
        situation.decision.rollout,
        Rollout::Whole { .. } | Rollout::RolledBack { .. }
    );
    let bad_nodes = &situation.seen.bad_nodes;
    let on_bad_node = |pod: &Pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_ref());
        node.is_some_and(|node| bad_nodes.contains(node))
    };
    // A replacement that does not come up holds the next one up, but not for ever: others may still be helped.
    let patience = SignedDuration::from_secs(i64::from(app.spec.strategy.progress_deadline_seconds));
    let awaited = |pod: &Pod| !on_bad_node(pod) && (is_ending(pod, now) || comes_up(pod, now, patience));
    if others_change || situation.seen.pods.iter().any(|pod| awaited(pod)) {
        return plan;
    }
    let limit = SignedDuration::from_secs(i64::from(recovery.restart_after_seconds));
    let there = situation.seen.pods.iter().filter(|pod| !is_going(pod));
    for pod in there {
        let Some(since) = not_ready_since(pod) else { continue };
        if recovery.bad_nodes == BadNodes::Leave && on_bad_node(pod) {
            return plan.delete(pod.as_ref(), "its node is not well");
        }
        if recovery.restart_after_seconds > 0 && now.duration_since(since) >= limit {
            return plan.delete(
                pod.as_ref(),
                format!("up and not ready for {} s", recovery.restart_after_seconds),
            );
        }
    }
    plan
}

fn is_going(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Whether a pod is on its way out and may still get there.
fn is_ending(pod: &Pod, now: Timestamp) -> bool {
    let end = pod.metadata.deletion_timestamp.as_ref();
    end.is_some_and(|end| now.duration_since(end.0) < LATEST_END)
}

/// Whether a pod has never been ready and may still become so.
fn comes_up(pod: &Pod, now: Timestamp, patience: SignedDuration) -> bool {
    let status = pod.status.as_ref();
    let over = status.is_some_and(|status| matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")));
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let ready = conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    let made = pod.metadata.creation_timestamp.as_ref();
    let young = made.is_some_and(|made| now.duration_since(made.0) < patience);
    young && !over && !ready && !is_going(pod) && not_ready_since(pod).is_none()
}

/// Since when a running pod that once was ready is not.
fn not_ready_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod
        .status
        .as_ref()
        .filter(|status| status.phase.as_deref() == Some("Running"))?;
    let ready = status
        .conditions
        .iter()
        .flatten()
        .find(|c| c.type_ == "Ready" && c.status == "False")?;
    let since = ready.last_transition_time.as_ref()?.0;
    // A pod that never was ready is the roll-out's affair; its condition is as old as the pod's start.
    let started = status.start_time.as_ref()?.0;
    (since.duration_since(started) > SignedDuration::from_secs(1)).then_some(since)
}
