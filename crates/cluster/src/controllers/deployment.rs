//! Deployments: a template rolled out through ReplicaSets, old ones shrinking while the new one grows.

mod revisions;
mod rolling;
mod status;
#[cfg(test)]
mod tests;

use super::ownership::{self, Family};
use super::pods;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use std::sync::Arc;
use stead::{Change, Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Source, Store};

/// Adds the controller of Deployments.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let reconciler = Deployments {
        deployments: cache.store(),
        sets: Family::new(cache.store()),
        pods: cache.store(),
    };
    let sets = cache.store::<ReplicaSet>();
    let controller = Controller::new("deployment", reconciler)
        .for_::<Deployment>()
        .owns::<ReplicaSet>()
        // Recreate waits for the last old pod to go.
        .watches_source(Source::<Pod>::all().when(leaves), move |pod| {
            let Some(owner) = ownership::controller_of(&pod.metadata).filter(|owner| owner.kind == "ReplicaSet") else {
                return Vec::new();
            };
            let namespace = pod.metadata.namespace.as_deref();
            let set = sets.named(namespace, &owner.name);
            let above = set.as_ref().and_then(|set| ownership::controller_of(&set.metadata));
            above
                .map(|above| Key::new(namespace, &above.name))
                .into_iter()
                .collect()
        })
        .may(Rule::root::<Deployment>())
        .may(Rule::new("apps", &["replicasets"], &["update", "patch"]))
        .without_resync()
        .concurrency(8);
    manager.add(controller);
}

/// Whether a pod is gone, or has ended: nothing else of a pod concerns its Deployment.
fn leaves(change: &Change<Pod>) -> bool {
    matches!(change, Change::Deleted(_)) || pods::has_ended(change.object())
}

struct Deployments {
    deployments: Store<Deployment>,
    sets: Family<ReplicaSet>,
    pods: Store<Pod>,
}

/// The ReplicaSets of one Deployment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sets {
    /// The one with the wanted template.
    pub new: Option<Arc<ReplicaSet>>,
    /// The others, oldest first.
    pub old: Vec<Arc<ReplicaSet>>,
}

impl Sets {
    fn all(&self) -> impl Iterator<Item = &Arc<ReplicaSet>> {
        self.old.iter().chain(&self.new)
    }
}

impl Reconciler for Deployments {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(deployment) = self.deployments.get(key) else {
            return Ok(Outcome::Settled);
        };
        let Some(spec) = &deployment.spec else {
            return Ok(Outcome::Settled);
        };
        let mut sets = self.claim(context, &deployment).await?;
        if deployment.metadata.deletion_timestamp.is_none() {
            let paused = spec.paused == Some(true);
            if sets.new.is_none() && !paused && self.may_create_new(&deployment, &sets) {
                let created = revisions::create(context, &deployment, &sets).await?;
                sets.new = Some(Arc::new(created));
            } else if let Some(new) = sets.new.clone().filter(|_| !paused) {
                sets.new = Some(revisions::renumber(context, &deployment, &sets, &new).await?);
            }
            let scales = if paused {
                rolling::spread(&deployment, &sets)
            } else {
                self.strategy(&deployment, &sets)
            };
            for scale in scales {
                revisions::scale(context, &deployment, &scale.set, scale.replicas).await?;
            }
            for stale in revisions::stale(&deployment, &sets) {
                context.writer().delete(&*stale, Propagation::Background).await?;
            }
        }
        let now = context.now();
        let (after, next) = status::of(&deployment, &sets, now);
        if let Some(after) = after {
            context
                .writer()
                .patch_status(&*deployment, json!({"status": after}))
                .await?;
        }
        Ok(next.map_or(Outcome::Settled, Outcome::CheckAgain))
    }
}

impl Deployments {
    /// The ReplicaSets that are this Deployment's, adopted and released by its selector.
    async fn claim(&self, context: &Context, deployment: &Arc<Deployment>) -> Result<Sets, Error> {
        let meta = &deployment.metadata;
        let uid = meta.uid.as_deref().unwrap_or_default();
        let Some(selector) = deployment.spec.as_ref().and_then(|spec| pods::selector(&spec.selector)) else {
            return Ok(Sets::default());
        };
        let fits = |set: &ReplicaSet| selector.matches(set.metadata.labels.as_ref().unwrap_or(&Default::default()));
        let mut claimed = Vec::new();
        for set in self.sets.controlled_by(uid) {
            if fits(&set) {
                claimed.push(set);
            } else if meta.deletion_timestamp.is_none() {
                ownership::release(context, &*set, uid).await?;
            }
        }
        for set in self.sets.orphans(meta.namespace.as_deref()) {
            let stays = meta.deletion_timestamp.is_none() && set.metadata.deletion_timestamp.is_none();
            if stays && fits(&set) {
                ownership::adopt(context, &*set, &**deployment).await?;
            }
        }
        claimed.sort_by_key(|set| {
            (
                set.metadata.creation_timestamp.as_ref().map(|time| time.0),
                set.metadata.name.clone(),
            )
        });
        Ok(revisions::sort(deployment, claimed))
    }

    /// With Recreate the new pods wait until the last old one is gone.
    fn may_create_new(&self, deployment: &Deployment, sets: &Sets) -> bool {
        !rolling::is_recreate(deployment)
            || (rolling::total(sets.old.iter()) == 0 && self.old_pods(sets) == rolling::OldPods::Gone)
    }

    fn strategy(&self, deployment: &Deployment, sets: &Sets) -> Vec<rolling::Scale> {
        if rolling::is_recreate(deployment) {
            return rolling::recreate(deployment, sets, self.old_pods(sets));
        }
        if rolling::is_scaled(deployment, sets) {
            let shares = rolling::spread(deployment, sets);
            if !shares.is_empty() {
                return shares;
            }
        }
        rolling::rolling(deployment, sets)
    }

    /// Whether old pods are left, in the cache or in what their sets tell: whoever adds those numbers up would see old and
    /// new pods side by side.
    fn old_pods(&self, sets: &Sets) -> rolling::OldPods {
        let told = |set: &ReplicaSet| set.status.as_ref().is_some_and(|status| status.replicas > 0);
        if sets.old.iter().any(|set| told(set)) {
            return rolling::OldPods::Left;
        }
        let uids = sets.old.iter().filter_map(|set| set.metadata.uid.as_deref());
        let mut all = uids.flat_map(|uid| self.pods.owned_by(uid));
        match all.any(|pod| !pods::has_ended(&pod)) {
            true => rolling::OldPods::Left,
            false => rolling::OldPods::Gone,
        }
    }
}
