//! What to do next for a DaemonSet, and its status, as pure functions of nodes and pods.

use super::nodes::{self, Fit};
use crate::controllers::history::HASH_LABEL;
use crate::controllers::pods::{self, Availability};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{DaemonSet, DaemonSetSpec, DaemonSetStatus};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Nodes that get a pod, and pods that go.
#[derive(Debug, Default)]
pub struct Steps<'a> {
    pub create: Vec<&'a str>,
    pub delete: Vec<&'a Arc<Pod>>,
}

/// A set, the nodes and its pods on them at one moment.
pub struct World<'a> {
    set: &'a DaemonSet,
    spec: &'a DaemonSetSpec,
    /// What each node says, and the pods there, oldest first.
    places: BTreeMap<&'a str, (Fit, Vec<&'a Arc<Pod>>)>,
    hash: &'a str,
    now: Timestamp,
}

impl<'a> World<'a> {
    pub fn new(
        set: &'a DaemonSet,
        spec: &'a DaemonSetSpec,
        nodes: &'a [Arc<Node>],
        owned: &'a [Arc<Pod>],
        hash: &'a str,
        now: Timestamp,
    ) -> Self {
        let template = nodes::template_pod(set, spec);
        let mut places: BTreeMap<&str, (Fit, Vec<_>)> = BTreeMap::new();
        for node in nodes {
            let name = node.metadata.name.as_deref().unwrap_or_default();
            places.insert(name, (nodes::fit(&template, node), Vec::new()));
        }
        let mut sorted: Vec<&Arc<Pod>> = owned.iter().collect();
        sorted.sort_by_key(|pod| {
            let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
            (created, pod.metadata.name.clone())
        });
        for pod in sorted {
            if let Some(node) = nodes::node_of(pod) {
                // A node that is gone wants nothing any more.
                let place = places.entry(node).or_insert((Fit::Never, Vec::new()));
                place.1.push(pod);
            }
        }
        World {
            set,
            spec,
            places,
            hash,
            now,
        }
    }

    pub fn steps(&self) -> Steps<'a> {
        let mut steps = Steps::default();
        for (node, (fit, pods)) in &self.places {
            let (ended, alive): (Vec<_>, Vec<_>) = pods
                .iter()
                .copied()
                .filter(|pod| pod.metadata.deletion_timestamp.is_none())
                .partition(|pod| pods::has_ended(pod));
            match fit {
                Fit::Never => steps.delete.extend(alive.iter().chain(&ended)),
                Fit::Runs if pods.is_empty() => steps.create.push(node),
                Fit::Runs | Fit::Stays => {
                    steps.delete.extend(ended);
                    steps.delete.extend(self.surplus(&alive));
                }
            }
        }
        if self.is_rolling() {
            self.renew(&mut steps);
        }
        steps
    }

    /// One pod is enough for a node; during an update with surge the new one stands beside the old one.
    fn surplus(&self, alive: &[&'a Arc<Pod>]) -> Vec<&'a Arc<Pod>> {
        let (new, old): (Vec<_>, Vec<_>) = alive.iter().copied().partition(|pod| self.is_new(pod));
        let surging = self.is_rolling() && self.max_surge() > 0 && !new.is_empty() && !old.is_empty();
        if !surging {
            return alive.iter().copied().skip(1).collect();
        }
        let ready = new.iter().any(|pod| self.is_available(pod));
        let keep = if ready { 0 } else { 1 };
        let too_old = old.into_iter().skip(keep);
        too_old.chain(new.into_iter().skip(1)).collect()
    }

    /// Replaces pods of old templates, as many at once as may be missing, or beside them where surge is allowed.
    fn renew(&self, steps: &mut Steps<'a>) {
        let mut missing = 0;
        let mut surging = 0;
        let mut old = Vec::new();
        let wanted = self.places.iter().filter(|(_, (fit, _))| *fit == Fit::Runs);
        for (node, (_, pods)) in wanted {
            let alive: Vec<_> = pods.iter().copied().filter(|pod| pods::is_active(pod)).collect();
            missing += i32::from(!alive.iter().any(|pod| self.is_available(pod)));
            match alive.iter().find(|pod| !self.is_new(pod)) {
                Some(pod) if alive.len() == 1 => old.push((*node, *pod)),
                Some(_) => surging += 1,
                None => {}
            }
        }
        // Those that do not run anyway first: they cost nothing.
        old.sort_by_key(|(_, pod)| self.is_available(pod));
        for (node, pod) in old {
            let available = self.is_available(pod);
            if self.max_surge() > 0 {
                if surging < self.max_surge() {
                    surging += 1;
                    steps.create.push(node);
                }
            } else if !available || missing < self.max_unavailable() {
                missing += i32::from(available);
                steps.delete.push(pod);
            }
        }
    }

    /// The status that these pods make; `None` if it is there already.
    pub fn status(&self) -> Option<DaemonSetStatus> {
        let before = self.set.status.clone().unwrap_or_default();
        let mut after = DaemonSetStatus {
            observed_generation: self.set.metadata.generation,
            collision_count: before.collision_count,
            conditions: before.conditions.clone(),
            ..DaemonSetStatus::default()
        };
        let (mut available, mut updated) = (0, 0);
        for (fit, pods) in self.places.values() {
            let oldest = pods.iter().find(|pod| !pods::has_ended(pod));
            if *fit != Fit::Runs {
                after.number_misscheduled += i32::from(oldest.is_some());
                continue;
            }
            after.desired_number_scheduled += 1;
            after.current_number_scheduled += i32::from(oldest.is_some());
            after.number_ready += i32::from(pods.iter().any(|pod| pods::is_ready(pod)));
            available += i32::from(pods.iter().any(|pod| self.is_available(pod)));
            updated += i32::from(pods.iter().any(|pod| self.is_new(pod) && pods::is_active(pod)));
        }
        after.number_available = Some(available);
        after.updated_number_scheduled = Some(updated);
        after.number_unavailable = Some(after.desired_number_scheduled - available);
        let known = DaemonSetStatus {
            number_available: before.number_available.or(Some(0)),
            updated_number_scheduled: before.updated_number_scheduled.or(Some(0)),
            number_unavailable: before.number_unavailable.or(Some(0)),
            ..before
        };
        (after != known).then_some(after)
    }

    fn is_new(&self, pod: &Pod) -> bool {
        let labels = pod.metadata.labels.as_ref();
        labels.and_then(|labels| labels.get(HASH_LABEL)).map(String::as_str) == Some(self.hash)
    }

    fn is_available(&self, pod: &Pod) -> bool {
        let wait = self.spec.min_ready_seconds.unwrap_or(0);
        pods::is_active(pod) && pods::availability(pod, wait, self.now) == Availability::Available
    }

    fn is_rolling(&self) -> bool {
        let strategy = self.spec.update_strategy.as_ref();
        strategy.and_then(|strategy| strategy.type_.as_deref()) != Some("OnDelete")
    }

    fn max_unavailable(&self) -> i32 {
        let strategy = self
            .spec
            .update_strategy
            .as_ref()
            .and_then(|all| all.rolling_update.as_ref());
        let limit = strategy.and_then(|rolling| rolling.max_unavailable.as_ref());
        limit.map_or(1, |limit| self.share(limit)).max(1)
    }

    fn max_surge(&self) -> i32 {
        let strategy = self
            .spec
            .update_strategy
            .as_ref()
            .and_then(|all| all.rolling_update.as_ref());
        let limit = strategy.and_then(|rolling| rolling.max_surge.as_ref());
        limit.map_or(0, |limit| self.share(limit))
    }

    /// A number, or a share of the nodes that fit, rounded up.
    fn share(&self, limit: &IntOrString) -> i32 {
        let fitting = self.places.values().filter(|(fit, _)| *fit == Fit::Runs).count();
        pods::share(limit, i32::try_from(fitting).unwrap_or(i32::MAX))
    }
}
