//! Which pods have to go so that a more important one can run. Pure.
//!
//! A node where fewer, less important pods go is better than another; pods that a disruption budget protects are
//! taken last.

use super::filter::affinity::Namespaces;
use super::filter::volumes::Need;
use super::filter::{self, Hope, Reason, Refusal};
use super::ledger::{NodeInfo, Refused};
use crate::controllers::pods;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A node, and what has to go from it.
#[derive(Debug, Clone, PartialEq)]
pub struct Candidate {
    pub node: String,
    /// The most important first.
    pub victims: Vec<Arc<Pod>>,
    /// How many of them a budget protects.
    violations: usize,
}

/// Of so many nodes where room could be made the best is taken, as on Kubernetes: at least this many, and no fewer than
/// a tenth of all. Nobody else gets a node while they are compared.
const FEWEST_COMPARED: usize = 100;

/// The importance of a pod.
pub fn priority(pod: &Pod) -> i32 {
    pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0)
}

/// What has to be known of the cluster.
pub struct Cluster<'a> {
    pub nodes: &'a BTreeMap<String, NodeInfo>,
    pub namespaces: &'a Namespaces,
    pub budgets: &'a [Arc<PodDisruptionBudget>],
}

/// What to take away for a pod that no node has room for, or why nothing helps.
pub fn preempt(pod: &Pod, needs: &[Need], cluster: &Cluster<'_>, refused: &Refused) -> Result<Candidate, String> {
    let nodes = cluster.nodes;
    if let Some(why) = ineligible(pod, nodes) {
        return Err(format!("preemption: {why}"));
    }
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    let mut best: Option<Candidate> = None;
    let mut compared = 0;
    let most = FEWEST_COMPARED.max(refused.total / 10);
    let world = filter::World::new(pod, nodes.values(), needs, cluster.namespaces);
    for (name, refusal) in &refused.by_node {
        let found = match (nodes.get(name), refusal.hope) {
            (Some(info), Hope::IfPodsGo) => on_node(pod, &world, cluster, (name, info)),
            _ => Err(Refusal {
                reasons: vec![Reason("Preemption is not helpful for scheduling".to_string())],
                hope: Hope::None,
            }),
        };
        match found {
            Ok(candidate) => {
                if best.as_ref().is_none_or(|best| cost(&candidate) < cost(best)) {
                    best = Some(candidate);
                }
                compared += 1;
                // A node where a budget is broken is taken only if there is no other at all.
                if compared >= most && best.as_ref().is_some_and(|best| best.violations == 0) {
                    break;
                }
            }
            Err(refusal) => {
                for Reason(text) in refusal.reasons {
                    *reasons.entry(text).or_default() += 1;
                }
            }
        }
    }
    best.ok_or_else(|| {
        let sum: usize = reasons.values().sum();
        if sum < refused.total {
            let rest = "Preemption is not helpful for scheduling".to_string();
            *reasons.entry(rest).or_default() += refused.total - sum;
        }
        format!("preemption: {}", super::ledger::unavailable(refused.total, &reasons))
    })
}

/// Why a pod may not take anything away.
fn ineligible(pod: &Pod, nodes: &BTreeMap<String, NodeInfo>) -> Option<&'static str> {
    let policy = pod.spec.as_ref().and_then(|spec| spec.preemption_policy.as_deref());
    if policy == Some("Never") {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    // What it took away before is still on its way out: once is enough.
    let nominated = pod
        .status
        .as_ref()
        .and_then(|status| status.nominated_node_name.as_ref())?;
    let going = nodes.get(nominated)?.pods.values().any(|other| {
        other.metadata.deletion_timestamp.is_some() && priority(other) < priority(pod) && is_preempted(other)
    });
    going.then_some("not eligible due to a terminating pod on the nominated node.")
}

fn is_preempted(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| {
        one.type_ == "DisruptionTarget" && one.status == "True" && one.reason.as_deref() == Some(super::PREEMPTED)
    })
}

/// What decides between nodes, the lowest first: protected pods, then how important the most important one is, how
/// much importance goes in all, how many pods, and how long the most important one has been running.
fn cost(candidate: &Candidate) -> (usize, i32, i64, usize, Reverse<Option<Timestamp>>, &str) {
    let top = candidate.victims.first();
    let sum = candidate
        .victims
        .iter()
        .map(|pod| i64::from(priority(pod)) - i64::from(i32::MIN));
    (
        candidate.violations,
        top.map_or(i32::MIN, |pod| priority(pod)),
        sum.sum(),
        candidate.victims.len(),
        Reverse(top.and_then(|pod| started(pod))),
        &candidate.node,
    )
}

fn started(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    status.start_time.as_ref().map(|time| time.0)
}

/// The fewest and least important pods of one node that have to go.
fn on_node(
    pod: &Pod,
    world: &filter::World<'_>,
    cluster: &Cluster<'_>,
    (name, info): (&str, &NodeInfo),
) -> Result<Candidate, Refusal> {
    let mut lesser: Vec<Arc<Pod>> = info
        .pods
        .values()
        .filter(|other| priority(other) < priority(pod))
        .cloned()
        .collect();
    if lesser.is_empty() {
        return Err(Refusal {
            reasons: vec![Reason("No preemption victims found for incoming pod".to_string())],
            hope: Hope::None,
        });
    }
    // The most important, and of those the oldest, first: they are the first to be spared.
    lesser.sort_by_key(|other| (Reverse(priority(other)), started(other), other.metadata.name.clone()));
    let mut trial = info.clone();
    for other in &lesser {
        remove(&mut trial, other);
    }
    let fits = |trial: &NodeInfo| {
        if !world.rests_on_pods() {
            return filter::check(pod, trial, world);
        }
        let seen = cluster
            .nodes
            .iter()
            .map(|(known, info)| if known == name { trial } else { info });
        let world = filter::World::new(pod, seen, world.needs, cluster.namespaces);
        filter::check(pod, trial, &world)
    };
    fits(&trial)?;
    let (protected, free) = split_by_budgets(&lesser, cluster.budgets);
    let mut victims = Vec::new();
    let mut violations = 0;
    for (group, is_protected) in [(protected, 1), (free, 0)] {
        for other in group {
            trial.add(&other);
            if fits(&trial).is_err() {
                remove(&mut trial, &other);
                violations += is_protected;
                victims.push(other);
            }
        }
    }
    victims.sort_by_key(|other| (Reverse(priority(other)), started(other), other.metadata.name.clone()));
    Ok(Candidate {
        node: name.to_string(),
        victims,
        violations,
    })
}

fn remove(info: &mut NodeInfo, pod: &Pod) {
    info.remove(pod.metadata.uid.as_deref().unwrap_or_default());
}

/// Pods whose loss a budget does not allow any more, and the others.
fn split_by_budgets(all: &[Arc<Pod>], budgets: &[Arc<PodDisruptionBudget>]) -> (Vec<Arc<Pod>>, Vec<Arc<Pod>>) {
    let mut left: Vec<i32> = budgets
        .iter()
        .map(|budget| {
            budget
                .status
                .as_ref()
                .and_then(|status| status.disruptions_allowed)
                .unwrap_or(0)
        })
        .collect();
    let mut violates = |pod: &Arc<Pod>| {
        let mut over = false;
        for (budget, left) in budgets.iter().zip(&mut left) {
            let same = budget.metadata.namespace == pod.metadata.namespace;
            let selector = budget
                .spec
                .as_ref()
                .and_then(|spec| pods::selector(spec.selector.as_ref()?));
            if same && selector.is_some_and(|selector| pods::matches(&selector, pod)) {
                *left -= 1;
                over |= *left < 0;
            }
        }
        over
    };
    all.iter().cloned().partition(|pod| violates(pod))
}
