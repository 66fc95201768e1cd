//! DaemonSets: one pod on each node that fits.

mod nodes;
mod steps;
#[cfg(test)]
mod tests;

use super::history::{self, HASH_LABEL};
use super::ownership::Family;
use super::pod_control::PodControl;
use super::{ownership, pods, replicas};
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::{Node, Pod};
use serde_json::json;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};
use steps::World;

/// Adds the controller of DaemonSets.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let sets = cache.store::<DaemonSet>();
    let reconciler = DaemonSets {
        sets: sets.clone(),
        pods: Family::new(cache.store()),
        nodes: cache.store(),
        revisions: Family::new(cache.store()),
    };
    let all = sets.clone();
    let selector = |set: &DaemonSet| pods::selector(&set.spec.as_ref()?.selector);
    let controller = Controller::new("daemonset", reconciler)
        .for_::<DaemonSet>()
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches::<Pod>(ownership::adopters(sets, selector))
        // A node that comes, goes or changes its labels or taints may matter to every set.
        .watches::<Node>(move |_| all.list().iter().map(|set| Key::of(&**set)).collect())
        .may(Rule::root::<DaemonSet>())
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

struct DaemonSets {
    sets: Store<DaemonSet>,
    pods: Family<Pod>,
    nodes: Store<Node>,
    revisions: Family<ControllerRevision>,
}

impl Reconciler for DaemonSets {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(set) = self.sets.get(key) else {
            return Ok(Outcome::Settled);
        };
        let Some(spec) = &set.spec else {
            return Ok(Outcome::Settled);
        };
        let Some(selector) = pods::selector(&spec.selector) else {
            return Ok(Outcome::Settled);
        };
        let free = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        let claimed = ownership::claim_pods(context, &self.pods, &*set, &selector, free).await?;
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Settled);
        }
        let collisions = set.status.as_ref().and_then(|status| status.collision_count);
        let history = history::sync(context, &self.revisions, &*set, &selector, &spec.template, collisions).await?;
        let hash = history.newest_hash().to_string();
        let now = context.now();
        let nodes = self.nodes.list();
        let world = World::new(&set, spec, &nodes, &claimed, &hash, now);
        let steps = world.steps();
        let control = PodControl::new(context, &*set);
        let mut went = control.delete(steps.delete.iter().map(|pod| &***pod)).await;
        let fresh: Vec<Pod> = steps
            .create
            .iter()
            .map(|node| nodes::pod(&set, spec, node, &hash))
            .collect();
        went = went.and(control.create(&fresh.iter().collect::<Vec<_>>()).await);
        // Whatever was refused, users read in the status how far the set has come.
        if let Some(after) = world.status() {
            context.writer().patch_status(&*set, json!({"status": after})).await?;
        }
        let live = claimed
            .iter()
            .filter_map(|pod| pod.metadata.labels.as_ref()?.get(HASH_LABEL).cloned());
        history::forget(context, &history, &live.collect(), spec.revision_history_limit).await?;
        let active: Vec<&Pod> = claimed
            .iter()
            .map(AsRef::as_ref)
            .filter(|pod| pods::is_active(pod))
            .collect();
        went?;
        let waits = replicas::next_available(&active, spec.min_ready_seconds.unwrap_or(0), now);
        Ok(waits.map_or(Outcome::Settled, Outcome::CheckAgain))
    }
}
