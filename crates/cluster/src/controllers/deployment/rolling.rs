//! How many pods each ReplicaSet of a Deployment shall have next. Pure.
//!
//! Two limits hold at every moment: no more than wanted plus surge exist, and no fewer than wanted minus
//! unavailable are available. Each step goes as far as the limits allow; the next look goes on from there.

use super::Sets;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::sync::Arc;

/// A ReplicaSet and the number of pods it shall have.
#[derive(Debug, Clone)]
pub struct Scale {
    pub set: Arc<ReplicaSet>,
    pub replicas: i32,
}

/// The number of pods that the Deployment asks for.
pub fn desired(deployment: &Deployment) -> i32 {
    deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The number of pods that a ReplicaSet asks for.
pub fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

/// The number of pods that ReplicaSets ask for together.
pub fn total<'a>(sets: impl Iterator<Item = &'a Arc<ReplicaSet>>) -> i32 {
    sets.map(|set| wanted(set)).sum()
}

pub fn is_recreate(deployment: &Deployment) -> bool {
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("Recreate")
}

/// How many pods there may be beyond the wanted number, and how many of them may be missing.
pub fn limits(deployment: &Deployment) -> (i32, i32) {
    if is_recreate(deployment) {
        return (0, 0);
    }
    let strategy = deployment.spec.as_ref().and_then(|spec| spec.strategy.as_ref());
    let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
    let quarter = IntOrString::String("25%".to_string());
    let desired = desired(deployment);
    let surge = part(
        rolling.and_then(|r| r.max_surge.as_ref()).unwrap_or(&quarter),
        desired,
        Round::Up,
    );
    let missing = part(
        rolling.and_then(|r| r.max_unavailable.as_ref()).unwrap_or(&quarter),
        desired,
        Round::Down,
    );
    // Nothing could ever move with both at nought.
    if surge == 0 && missing == 0 {
        (0, 1)
    } else {
        (surge, missing.min(desired))
    }
}

/// The next step of a rolling update.
pub fn rolling(deployment: &Deployment, sets: &Sets) -> Vec<Scale> {
    let Some(new) = &sets.new else { return Vec::new() };
    let desired = desired(deployment);
    let (surge, missing) = limits(deployment);
    let mut scales = Vec::new();
    let all = total(sets.all());
    let current = wanted(new);
    let grown = if current > desired {
        desired
    } else {
        current + (desired + surge - all).clamp(0, desired - current)
    };
    if grown != current {
        scales.push(Scale {
            set: new.clone(),
            replicas: grown,
        });
        // The old ones shrink with the next look, when the new one's growth is seen.
        return scales;
    }
    let old_total = total(sets.old.iter());
    if old_total == 0 {
        return scales;
    }
    let fewest = desired - missing;
    let new_unavailable = current - available(new);
    let mut room = all - fewest - new_unavailable;
    if room <= 0 {
        return scales;
    }
    // Pods that are not available help nobody: they go first, and count only against what may exist.
    for set in &sets.old {
        let (have, unhealthy) = (wanted(set), wanted(set) - available(set));
        let gone = unhealthy.clamp(0, room.min(have));
        if gone > 0 {
            scales.push(Scale {
                set: set.clone(),
                replicas: have - gone,
            });
            room -= gone;
        }
    }
    let healthy: i32 = sets.all().map(|set| available(set)).sum();
    let mut surplus = (healthy - fewest).max(0);
    for set in &sets.old {
        let planned = scales.iter_mut().find(|scale| Arc::ptr_eq(&scale.set, set));
        let have = planned.as_ref().map_or(wanted(set), |scale| scale.replicas);
        let gone = surplus.min(have).max(0);
        if gone == 0 {
            continue;
        }
        surplus -= gone;
        match planned {
            Some(scale) => scale.replicas = have - gone,
            None => scales.push(Scale {
                set: set.clone(),
                replicas: have - gone,
            }),
        }
    }
    scales
}

/// Whether pods of an earlier version are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OldPods {
    Left,
    Gone,
}

/// The next step of a Recreate: first the old ones to nought, then the new one in full.
pub fn recreate(deployment: &Deployment, sets: &Sets, old_pods: OldPods) -> Vec<Scale> {
    let shrinking: Vec<Scale> = sets
        .old
        .iter()
        .filter(|set| wanted(set) > 0)
        .map(|set| Scale {
            set: set.clone(),
            replicas: 0,
        })
        .collect();
    if !shrinking.is_empty() || old_pods == OldPods::Left {
        return shrinking;
    }
    let desired = desired(deployment);
    sets.new
        .iter()
        .filter(|new| wanted(new) != desired)
        .map(|new| Scale {
            set: new.clone(),
            replicas: desired,
        })
        .collect()
}

/// Whether the wanted number has changed in the middle of a roll-out, which several ReplicaSets are part of.
pub fn is_scaled(deployment: &Deployment, sets: &Sets) -> bool {
    let active: Vec<&Arc<ReplicaSet>> = sets.all().filter(|set| wanted(set) > 0).collect();
    active.len() > 1 && active.iter().any(|set| was_scaled_for_another_number(deployment, set))
}

fn was_scaled_for_another_number(deployment: &Deployment, set: &ReplicaSet) -> bool {
    annotated(set, "desired-replicas").is_some_and(|number| number != desired(deployment))
}

/// A change of the wanted number while the roll-out stands still: every ReplicaSet that has pods takes its share.
pub fn spread(deployment: &Deployment, sets: &Sets) -> Vec<Scale> {
    let mut active: Vec<&Arc<ReplicaSet>> = sets.all().filter(|set| wanted(set) > 0).collect();
    let desired = desired(deployment);
    if active.is_empty() {
        // One that was at nought grows again in its newest ReplicaSet.
        active.extend(sets.all().last());
    }
    if let [only] = active[..] {
        let differs = wanted(only) != desired;
        return differs
            .then(|| Scale {
                set: only.clone(),
                replicas: desired,
            })
            .into_iter()
            .collect();
    }
    let (surge, _) = limits(deployment);
    let have = total(sets.all());
    let limit = if desired > 0 { desired + surge } else { 0 };
    let mut left = limit - have;
    let before = active
        .first()
        .and_then(|set| annotated(set, "max-replicas"))
        .unwrap_or(have);
    if before == limit || have == 0 {
        return Vec::new();
    }
    // The largest first: what rounding leaves over is the least to it. Among equals newer ones grow first, and older
    // ones shrink first.
    if left > 0 {
        active.reverse();
    }
    active.sort_by_key(|set| std::cmp::Reverse(wanted(set)));
    let mut scales = Vec::new();
    for set in &active {
        let share = (f64::from(wanted(set)) * f64::from(limit) / f64::from(before.max(1))).round() as i32 - wanted(set);
        let change = if left >= 0 {
            share.clamp(0, left)
        } else {
            share.clamp(left, 0)
        };
        left -= change;
        // One that keeps its size is written too, so that the next look knows that it has had its share.
        if change != 0 || was_scaled_for_another_number(deployment, set) {
            scales.push(Scale {
                set: (*set).clone(),
                replicas: (wanted(set) + change).max(0),
            });
        }
    }
    // What rounding has left over.
    if let Some(first) = scales.first_mut() {
        first.replicas = (first.replicas + left).max(0);
    }
    scales
}

/// A number that the last scaling of a ReplicaSet has left on it.
fn annotated(set: &ReplicaSet, name: &str) -> Option<i32> {
    let annotations = set.metadata.annotations.as_ref()?;
    annotations
        .get(&format!("deployment.kubernetes.io/{name}"))?
        .parse()
        .ok()
}

fn available(set: &ReplicaSet) -> i32 {
    set.status
        .as_ref()
        .and_then(|status| status.available_replicas)
        .unwrap_or(0)
}

#[derive(Clone, Copy)]
enum Round {
    Up,
    Down,
}

/// A number, or a percentage of the whole.
fn part(value: &IntOrString, whole: i32, round: Round) -> i32 {
    match value {
        IntOrString::Int(number) => *number,
        IntOrString::String(text) => {
            let percent: i64 = text.trim_end_matches('%').parse().unwrap_or(0);
            let product = percent * i64::from(whole);
            let part = match round {
                Round::Up => (product + 99) / 100,
                Round::Down => product / 100,
            };
            i32::try_from(part).unwrap_or(whole)
        }
    }
}
