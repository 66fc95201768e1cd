//! The taints that a node's conditions make, and when they drive a pod away. Pure.

use crate::clock;
use crate::scheduler::filter::covers;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod, Taint, Toleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";
/// Conditions that keep new pods away while they hold.
const PRESSURES: &[(&str, &str)] = &[
    ("MemoryPressure", "node.kubernetes.io/memory-pressure"),
    ("DiskPressure", "node.kubernetes.io/disk-pressure"),
    ("PIDPressure", "node.kubernetes.io/pid-pressure"),
    ("NetworkUnavailable", "node.kubernetes.io/network-unavailable"),
];

/// What the node's taints shall be.
pub struct Wanted {
    /// All taints, if they differ from what is there.
    pub changed: Option<Vec<Taint>>,
    /// Those that drive pods away.
    pub expel: Vec<Taint>,
}

/// Whether any node of the cluster is well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Others {
    Well,
    /// Then it is rather we who cannot see them, and there is no place to move to.
    AllSilent,
}

/// The taints of a node: those that conditions make, and those that others put there. While no node at all is well
/// no pod is driven away.
pub fn of(node: &Node, others: Others, now: Timestamp) -> Wanted {
    let have: Vec<Taint> = node
        .spec
        .as_ref()
        .and_then(|spec| spec.taints.clone())
        .unwrap_or_default();
    let mut wanted: Vec<(&str, &str)> = Vec::new();
    let status = |kind: &str| {
        let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions
            .into_iter()
            .find(|condition| condition.type_ == kind)
            .map(|condition| condition.status.as_str())
    };
    match status("Ready") {
        Some("True") => {}
        Some("Unknown") => wanted.extend([(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]),
        _ => wanted.extend([(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]),
    }
    if others == Others::AllSilent {
        wanted.retain(|(_, effect)| *effect != "NoExecute");
    }
    for (condition, taint) in PRESSURES {
        if status(condition) == Some("True") {
            wanted.push((taint, "NoSchedule"));
        }
    }
    if node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true) {
        wanted.push((UNSCHEDULABLE, "NoSchedule"));
    }
    let mut after: Vec<Taint> = have
        .iter()
        .filter(|taint| !is_ours(taint) || is_wanted(taint, &wanted))
        .cloned()
        .collect();
    for (key, effect) in wanted {
        if !after.iter().any(|taint| taint.key == key && taint.effect == effect) {
            after.push(Taint {
                key: key.to_string(),
                effect: effect.to_string(),
                time_added: Some(Time(now)),
                value: None,
            });
        }
    }
    let expel = after
        .iter()
        .filter(|taint| taint.effect == "NoExecute")
        .cloned()
        .collect();
    Wanted {
        changed: (after != have).then_some(after),
        expel,
    }
}

/// When a pod has to leave a node with these taints; `None` if it may stay.
pub fn leaves_at(pod: &Pod, expel: &[Taint]) -> Option<Timestamp> {
    let tolerations: Vec<&Toleration> = pod
        .spec
        .iter()
        .flat_map(|spec| spec.tolerations.iter().flatten())
        .collect();
    let leaves = |taint: &Taint| {
        let since = taint.time_added.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        let covering: Vec<_> = tolerations
            .iter()
            .filter(|toleration| covers(toleration, taint))
            .collect();
        if covering.is_empty() {
            return Some(Timestamp::UNIX_EPOCH);
        }
        let seconds = covering
            .iter()
            .filter_map(|toleration| toleration.toleration_seconds)
            .min()?;
        let stay = SignedDuration::from_secs(seconds.max(0));
        Some(clock::after(since, stay))
    };
    expel.iter().filter_map(leaves).min()
}

fn is_ours(taint: &Taint) -> bool {
    let pressure = PRESSURES.iter().any(|(_, key)| taint.key == *key);
    pressure || [NOT_READY, UNREACHABLE, UNSCHEDULABLE].contains(&taint.key.as_str())
}

fn is_wanted(taint: &Taint, wanted: &[(&str, &str)]) -> bool {
    wanted
        .iter()
        .any(|(key, effect)| taint.key == *key && taint.effect == *effect)
}
