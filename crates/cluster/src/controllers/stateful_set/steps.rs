//! What to do next for a StatefulSet, as a pure function of its pods.

use super::identity;
use crate::controllers::history;
use crate::controllers::pods::{self, Availability};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{StatefulSet, StatefulSetSpec};
use k8s_openapi::api::core::v1::Pod;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One write that brings a set further.
#[derive(Debug, Clone, PartialEq)]
pub enum Step<'a> {
    Create { ordinal: i32, revision: &'a str },
    Delete(&'a Arc<Pod>),
}

/// Whether an ordinal is one of the set's, or was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Kept,
    Condemned,
}

/// A set and its pods at one moment.
pub struct World<'a> {
    set: &'a StatefulSet,
    pods: BTreeMap<i32, &'a Arc<Pod>>,
    /// The revision that the set is coming from.
    pub current: &'a str,
    /// The revision that the set is going to.
    pub update: &'a str,
    now: Timestamp,
}

/// What a pass over the ordinals came to.
enum Pass {
    /// Everything is as it should be so far.
    Through,
    /// The order demands to wait here.
    Wait,
}

impl<'a> World<'a> {
    pub fn new(set: &'a StatefulSet, pods: &'a [Arc<Pod>], current: &'a str, update: &'a str, now: Timestamp) -> Self {
        let numbered = pods
            .iter()
            .filter_map(|pod| Some((identity::ordinal_in(set, pod)?, pod)));
        World {
            set,
            pods: numbered.collect(),
            current,
            update,
            now,
        }
    }

    /// Everything that can be done now.
    pub fn steps(&self) -> Vec<Step<'a>> {
        let mut steps = Vec::new();
        if let Pass::Wait = self.fill(&mut steps) {
            return steps;
        }
        if let Pass::Wait = self.shrink(&mut steps) {
            return steps;
        }
        if self.is_rolling() {
            self.renew(&mut steps);
        }
        steps
    }

    /// Creates what is missing, from the lowest ordinal; in order, each waits for the one before.
    fn fill(&self, steps: &mut Vec<Step<'a>>) -> Pass {
        let mut all = Pass::Through;
        for ordinal in self.start()..self.end() {
            let fine = match self.pods.get(&ordinal) {
                None => {
                    steps.push(Step::Create {
                        ordinal,
                        revision: self.revision_for(ordinal),
                    });
                    false
                }
                Some(pod) if pods::has_ended(pod) => {
                    if pod.metadata.deletion_timestamp.is_none() {
                        steps.push(Step::Delete(pod));
                    }
                    false
                }
                Some(pod) => self.is_healthy(pod),
            };
            if !fine && self.is_ordered() {
                return Pass::Wait;
            }
            if !fine && steps.iter().any(|step| matches!(step, Step::Create { .. })) {
                all = Pass::Wait;
            }
        }
        all
    }

    /// Deletes what is too much, from the highest ordinal.
    fn shrink(&self, steps: &mut Vec<Step<'a>>) -> Pass {
        for (ordinal, pod) in self.pods.iter().rev() {
            if self.place(*ordinal) == Place::Kept {
                continue;
            }
            // In order, one that is not well goes only if it is the first that is not.
            let below = || self.pods.range(..ordinal).any(|(_, other)| !self.is_healthy(other));
            let held = self.is_ordered() && !self.is_healthy(pod) && below();
            if pod.metadata.deletion_timestamp.is_none() && !held {
                steps.push(Step::Delete(pod));
            }
            if self.is_ordered() {
                return Pass::Wait;
            }
        }
        Pass::Through
    }

    /// Deletes pods of an old revision, from the highest ordinal down to the partition, as many as may be missing.
    fn renew(&self, steps: &mut Vec<Step<'a>>) {
        let allowed = self.max_unavailable();
        let mut missing = 0;
        let lowest = self.start().saturating_add(self.partition());
        for ordinal in (lowest.min(self.end())..self.end()).rev() {
            let Some(pod) = self.pods.get(&ordinal) else {
                missing += 1;
                continue;
            };
            if missing >= allowed {
                return;
            }
            let going = pod.metadata.deletion_timestamp.is_some();
            if revision_of(pod) != self.update && !going {
                if !steps.contains(&Step::Delete(pod)) {
                    steps.push(Step::Delete(pod));
                }
                missing += 1;
            } else if !self.is_healthy(pod) {
                missing += 1;
            }
        }
    }

    /// Pods below the partition stay at the revision that the set comes from.
    fn revision_for(&self, ordinal: i32) -> &'a str {
        if self.is_rolling() && ordinal < self.start().saturating_add(self.partition()) {
            return self.current;
        }
        self.update
    }

    fn spec(&self) -> Option<&'a StatefulSetSpec> {
        self.set.spec.as_ref()
    }

    fn start(&self) -> i32 {
        let ordinals = self.spec().and_then(|spec| spec.ordinals.as_ref());
        ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0)
    }

    pub fn wanted(&self) -> i32 {
        self.spec().and_then(|spec| spec.replicas).unwrap_or(1).max(0)
    }

    fn end(&self) -> i32 {
        self.start().saturating_add(self.wanted())
    }

    /// Whether the set still has room for this ordinal.
    pub fn place(&self, ordinal: i32) -> Place {
        match (self.start()..self.end()).contains(&ordinal) {
            true => Place::Kept,
            false => Place::Condemned,
        }
    }

    fn is_ordered(&self) -> bool {
        self.spec().and_then(|spec| spec.pod_management_policy.as_deref()) != Some("Parallel")
    }

    pub fn is_rolling(&self) -> bool {
        let strategy = self.spec().and_then(|spec| spec.update_strategy.as_ref());
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    fn partition(&self) -> i32 {
        let strategy = self.spec().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        rolling.and_then(|rolling| rolling.partition).unwrap_or(0).max(0)
    }

    fn max_unavailable(&self) -> i32 {
        let strategy = self.spec().and_then(|spec| spec.update_strategy.as_ref());
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let limit = rolling.and_then(|rolling| rolling.max_unavailable.as_ref());
        let limit = limit.map_or(1, |limit| pods::share(limit, self.wanted()));
        limit.max(1)
    }

    fn min_ready(&self) -> i32 {
        self.spec().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    pub fn is_available(&self, pod: &Pod) -> bool {
        is_running_and_ready(pod) && pods::availability(pod, self.min_ready(), self.now) == Availability::Available
    }

    fn is_healthy(&self, pod: &Pod) -> bool {
        self.is_available(pod) && pod.metadata.deletion_timestamp.is_none()
    }

    pub fn pods(&self) -> impl Iterator<Item = (i32, &'a Arc<Pod>)> {
        self.pods.iter().map(|(ordinal, pod)| (*ordinal, *pod))
    }

    pub fn alive(&self) -> Vec<&'a Pod> {
        self.pods
            .values()
            .map(|pod| &***pod)
            .filter(|pod| pods::is_active(pod))
            .collect()
    }
}

/// The revision that a pod was made from.
pub fn revision_of(pod: &Pod) -> &str {
    let labels = pod.metadata.labels.as_ref();
    labels
        .and_then(|labels| labels.get(history::HASH_LABEL))
        .map_or("", String::as_str)
}

pub fn is_running_and_ready(pod: &Pod) -> bool {
    pods::phase(pod) == "Running" && pods::is_ready(pod)
}
