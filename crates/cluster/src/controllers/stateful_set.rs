//! StatefulSets: pods with names, storage and an order that they keep.

mod identity;
mod status;
mod steps;
#[cfg(test)]
mod tests;

use super::history::{self, History};
use super::ownership::Family;
use super::{created, ownership, pods, replicas};
use k8s_openapi::api::apps::v1::{ControllerRevision, StatefulSet};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::json;
use std::sync::Arc;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Store};
use steps::{Place, Step, World};

/// Adds the controller of StatefulSets.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let sets = cache.store::<StatefulSet>();
    let reconciler = StatefulSets {
        sets: sets.clone(),
        pods: Family::new(cache.store()),
        revisions: Family::new(cache.store()),
        claims: cache.store(),
    };
    let selector = |set: &StatefulSet| pods::selector(&set.spec.as_ref()?.selector);
    let controller = Controller::new("statefulset", reconciler)
        .for_::<StatefulSet>()
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches::<Pod>(ownership::adopters(sets, selector))
        .may(Rule::root::<StatefulSet>())
        .may(Rule::read::<PersistentVolumeClaim>())
        .may(Rule::write::<PersistentVolumeClaim>())
        .without_resync()
        .concurrency(8);
    manager.add(controller);
}

struct StatefulSets {
    sets: Store<StatefulSet>,
    pods: Family<Pod>,
    revisions: Family<ControllerRevision>,
    claims: Store<PersistentVolumeClaim>,
}

impl Reconciler for StatefulSets {
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
        let member = |pod: &Pod| pod.metadata.deletion_timestamp.is_none() && identity::ordinal_in(&set, pod).is_some();
        let claimed = ownership::claim_pods(context, &self.pods, &*set, &selector, member).await?;
        if set.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Settled);
        }
        let before = set.status.clone().unwrap_or_default();
        let history = history::sync(
            context,
            &self.revisions,
            &*set,
            &selector,
            &spec.template,
            before.collision_count,
        )
        .await?;
        let update = history.newest();
        let current = match before.current_revision.as_deref().filter(|name| !name.is_empty()) {
            Some(known) if history.template(known).is_some() => known,
            _ => update,
        };
        let now = context.now();
        let world = World::new(&set, &claimed, current, update, now);
        let went = self.advance(context, &set, &history, &world).await;
        // Whatever is in the way, users read in the status how far the set has come.
        if let Some(after) = status::of(&set, &world) {
            context.writer().patch_status(&*set, json!({"status": after})).await?;
        }
        let live = claimed
            .iter()
            .filter_map(|pod| pod.metadata.labels.as_ref()?.get(history::HASH_LABEL).cloned())
            .chain([current.to_string()]);
        history::forget(context, &history, &live.collect(), spec.revision_history_limit).await?;
        went?;
        let waits = replicas::next_available(&world.alive(), spec.min_ready_seconds.unwrap_or(0), now);
        Ok(waits.map_or(Outcome::Settled, Outcome::CheckAgain))
    }
}

impl StatefulSets {
    /// Does what can be done now; the first error, after everything that it does not forbid.
    async fn advance(
        &self,
        context: &Context,
        set: &Arc<StatefulSet>,
        history: &History,
        world: &World<'_>,
    ) -> Result<(), Error> {
        // Before the steps: a claim that goes with its pod must know it before the pod goes.
        self.keep_or_release_claims(context, set, world).await?;
        let went = self.keep_identity(context, set, world).await;
        for step in world.steps() {
            let made = match step {
                Step::Create { ordinal, revision } => self.create(context, set, history, ordinal, revision).await,
                Step::Delete(pod) => {
                    let deleted = context.writer().delete(&**pod, Propagation::Background).await;
                    tell(context, set, "Delete", &pod_words(pod), &deleted);
                    deleted
                }
            };
            if made.is_err() {
                // The order of the steps is the order of the pods: what comes after has to wait.
                return went.and(made);
            }
        }
        went
    }

    /// Creates the claims of a pod, then the pod: it would not start without them.
    async fn create(
        &self,
        context: &Context,
        set: &StatefulSet,
        history: &History,
        ordinal: i32,
        revision: &str,
    ) -> Result<(), Error> {
        self.create_claims(context, set, ordinal).await?;
        let Some(template) = history.template(revision) else {
            return Err(Error::transient(format!("revision {revision} is not known yet")));
        };
        let pod = identity::pod(set, &template, ordinal, revision);
        let made = context.writer().create(&pod).await.map(drop);
        tell(context, set, "Create", &pod_words(&pod), &made);
        created(made)?;
        // Under its name there may be a pod that is not ours, whose end nobody tells us: then this is tried again.
        let uid = set.metadata.uid.as_deref().unwrap_or_default();
        let known = self.pods.store.get(&Key::of(&pod));
        match known.filter(|known| !ownership::is_controlled_by(&known.metadata, uid)) {
            Some(_) => Err(Error::transient(format!(
                "pod {} exists and is not ours",
                Key::of(&pod)
            ))),
            None => Ok(()),
        }
    }

    async fn create_claims(&self, context: &Context, set: &StatefulSet, ordinal: i32) -> Result<(), Error> {
        let namespace = set.metadata.namespace.as_deref();
        for claim in identity::claims(set, ordinal) {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            match self.claims.named(namespace, name) {
                Some(found) if found.metadata.deletion_timestamp.is_some() => {
                    return Err(Error::transient(format!("claim {name} is still being deleted")));
                }
                Some(_) => {}
                None => {
                    let made = context.writer().create(&claim).await.map(drop);
                    tell(context, set, "Create", &claim_words(name, set, ordinal, &made), &made);
                    created(made)?;
                }
            }
        }
        Ok(())
    }

    /// Pods keep the labels that say who they are, and those that wait for their storage get what is missing of it.
    /// What goes wrong with one pod keeps no other one waiting.
    async fn keep_identity(&self, context: &Context, set: &StatefulSet, world: &World<'_>) -> Result<(), Error> {
        let mut kept = Ok(());
        for (ordinal, pod) in world.pods().filter(|(_, pod)| pods::is_active(pod)) {
            if let Some(labels) = identity::lost_labels(set, pod, ordinal) {
                let patch = json!({"metadata": {"labels": labels}});
                kept = kept.and(context.writer().patch(&**pod, patch).await.map(drop));
            }
            if pods::phase(pod) == "Pending" && world.place(ordinal) == Place::Kept {
                kept = kept.and(self.create_claims(context, set, ordinal).await);
            }
        }
        kept
    }

    /// Makes claims go with their set or their pod, where the retention policy says so.
    async fn keep_or_release_claims(
        &self,
        context: &Context,
        set: &Arc<StatefulSet>,
        world: &World<'_>,
    ) -> Result<(), Error> {
        let namespace = set.metadata.namespace.as_deref();
        for (ordinal, pod) in world.pods() {
            for wanted in identity::claims(set, ordinal) {
                let Some(claim) = self
                    .claims
                    .named(namespace, wanted.metadata.name.as_deref().unwrap_or_default())
                else {
                    continue;
                };
                if let Some(owners) = identity::claim_owners(set, pod, world.place(ordinal), &claim) {
                    let patch = json!({"metadata": {"ownerReferences": owners}});
                    context.writer().patch(&*claim, patch).await?;
                }
            }
        }
        Ok(())
    }
}

/// An event about what was done for the set, or not: the verb and its object in Kubernetes' words. That something is
/// there already is no news.
fn tell(context: &Context, set: &StatefulSet, verb: &str, what: &str, went: &Result<(), Error>) {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let (severity, reason, note) = match went {
        Ok(()) => {
            let end = if what.starts_with("Pod") {
                "successful"
            } else {
                "success"
            };
            let note = format!("{verb} {what} in StatefulSet {name} {end}");
            (Severity::Normal, format!("Successful{verb}"), note)
        }
        Err(error) if error.is_conflict() => return,
        Err(error) => {
            let note = format!("{verb} {what} in StatefulSet {name} failed error: {}", error.words());
            (Severity::Warning, format!("Failed{verb}"), note)
        }
    };
    let action = if verb == "Create" { "Creating" } else { "Deleting" };
    let about = ownership::about(set);
    context.events().tell(about, severity, &reason, action, &note);
}

fn pod_words(pod: &Pod) -> String {
    format!("Pod {}", pod.metadata.name.as_deref().unwrap_or_default())
}

fn claim_words(claim: &str, set: &StatefulSet, ordinal: i32, went: &Result<(), Error>) -> String {
    let pod = identity::pod_name(set, ordinal);
    match went {
        Ok(()) => format!("Claim {claim} Pod {pod}"),
        Err(_) => format!("Claim {claim} for Pod {pod}"),
    }
}
