//! Which of the nodes that fit is best. Pure.

pub mod neighbours;

use super::filter::{World, affinity, tolerates};
use super::ledger::NodeInfo;
use super::resources::{self, Resources};
use k8s_openapi::api::core::v1::{Node, Pod};
use neighbours::Neighbours;
use std::cmp::Reverse;

/// The most points of one wish: enough that one small pod on a large machine makes a difference.
const MOST: i64 = 10_000;
/// How much each wish counts.
const SPREAD_WEIGHT: i64 = 2;
const TAINT_WEIGHT: i64 = 3;
const AFFINITY_WEIGHT: i64 = 2;
const NEIGHBOUR_WEIGHT: i64 = 2;

/// The best node: the one with the most points, among equals the one with the fewest pods, and then the first by name.
pub fn best<'a>(
    pod: &Pod,
    nodes: &[(&'a String, &NodeInfo)],
    world: &World<'_>,
    wishes: &Neighbours,
) -> Option<&'a str> {
    let likings = nodes
        .iter()
        .filter_map(|(_, info)| Some(wishes.of(info.node.as_ref()?)));
    let (low, high) = likings.fold((0, 0), |(low, high), one| (low.min(one), high.max(one)));
    let company = |node: &Node| match high - low {
        0 => 0,
        range => (wishes.of(node) - low) * MOST / range,
    };
    let crowd = |info: &NodeInfo| info.node.as_ref().map_or(0, |node| world.spread.crowd(node));
    let most = nodes.iter().map(|(_, info)| crowd(info)).max().unwrap_or(0);
    let weight = resources::weight(pod);
    let points = |info: &NodeInfo| {
        let Some(node) = &info.node else { return 0 };
        let spread = if most == 0 {
            MOST
        } else {
            (most - crowd(info)) * MOST / most
        };
        free(&weight, info)
            + spread * SPREAD_WEIGHT
            + liked(pod, node) * MOST / 100 * AFFINITY_WEIGHT
            + company(node) * NEIGHBOUR_WEIGHT
            - disliked(pod, node) * MOST / 100 * TAINT_WEIGHT
    };
    nodes
        .iter()
        .max_by_key(|(name, info)| (points(info), Reverse(info.pods.len()), Reverse(*name)))
        .map(|(name, _)| name.as_str())
}

/// How much of processor and memory would be left.
fn free(weight: &Resources, info: &NodeInfo) -> i64 {
    let left = |name: &str| {
        let all = info.allocatable.get(name);
        let taken = info.weight.get(name) + weight.get(name);
        if all <= 0 {
            0
        } else {
            (all - taken).max(0).saturating_mul(MOST) / all
        }
    };
    (left("cpu") + left("memory")) / 2
}

/// Points for the node affinity that is preferred.
fn liked(pod: &Pod, node: &Node) -> i64 {
    let affinity = pod
        .spec
        .as_ref()
        .and_then(|spec| spec.affinity.as_ref()?.node_affinity.as_ref());
    let preferred = affinity
        .iter()
        .flat_map(|a| a.preferred_during_scheduling_ignored_during_execution.iter().flatten());
    preferred
        .filter(|term| affinity::matches_term(&term.preference, node))
        .map(|term| i64::from(term.weight))
        .sum()
}

/// Points for taints that would rather not have the pod.
fn disliked(pod: &Pod, node: &Node) -> i64 {
    let taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    let unwanted = taints
        .filter(|taint| taint.effect == "PreferNoSchedule" && !tolerates(pod, taint))
        .count();
    i64::try_from(unwanted).unwrap_or(0) * 10
}
