//! ReplicaSets and ReplicationControllers: so many pods of a template, no more and no fewer.
//!
//! The two kinds differ only in their types, so one reconciler serves both through [`ReplicaOwner`].

mod status;

use super::ownership::{self, Family};
use super::pod_control::PodControl;
use super::pods::{self, Availability};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::{Pod, PodTemplateSpec, ReplicationController};
use serde::Serialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store, Typed};
use stead_machinery::selector::LabelSelector as Selector;

/// What a kind must say of itself to have replicas.
pub trait ReplicaOwner: Typed + Serialize {
    fn wanted(&self) -> i32;
    fn selector(&self) -> Option<Selector>;
    fn template(&self) -> Option<&PodTemplateSpec>;
    fn min_ready_seconds(&self) -> i32;
    /// How many pods are on their way out, for a kind whose status tells that.
    fn terminating(_claimed: &[Arc<Pod>]) -> Option<i32> {
        None
    }
    /// The status that was last written.
    fn status(&self) -> Value;
}

/// What kept an owner from having its pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub reason: &'static str,
    pub message: String,
}

/// What a look did about the number of pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Balance {
    /// There were enough of them.
    Kept,
    /// Those that were missing are made.
    Filled,
}

/// What is counted of the pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub replicas: i32,
    pub fully_labeled: i32,
    pub ready: i32,
    pub available: i32,
    /// `None` for a kind that does not tell.
    pub terminating: Option<i32>,
}

/// Adds the controller of ReplicaSets.
pub fn add_replica_sets(manager: &Manager) {
    add::<ReplicaSet>(manager, "replicaset");
}

/// Adds the controller of ReplicationControllers.
pub fn add_replication_controllers(manager: &Manager) {
    add::<ReplicationController>(manager, "replicationcontroller");
}

fn add<K: ReplicaOwner>(manager: &Manager, name: &'static str) {
    let cache = manager.cache();
    let owners = cache.store::<K>();
    let reconciler = Replicas {
        owners: owners.clone(),
        pods: Family::new(cache.store()),
    };
    let controller = Controller::new(name, reconciler)
        .for_::<K>()
        .owns::<Pod>()
        // A pod that nobody controls may be one that an owner with a fitting selector should adopt.
        .watches::<Pod>(ownership::adopters(owners, K::selector))
        .may(Rule::root::<K>())
        .without_resync()
        .concurrency(8);
    manager.add(controller);
}

struct Replicas<K> {
    owners: Store<K>,
    pods: Family<Pod>,
}

/// Whether nobody who reads a status takes it for more than a beginning.
fn tells_nothing(status: &Value) -> bool {
    status["replicas"].as_i64().unwrap_or_default() == 0 && status["conditions"].is_null()
}

impl<K: ReplicaOwner> Reconciler for Replicas<K> {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(owner) = self.owners.get(key) else {
            return Ok(Outcome::Settled);
        };
        let Some(selector) = owner.selector() else {
            return Ok(Outcome::Settled);
        };
        let going = owner.meta().deletion_timestamp.is_some();
        let claimed = ownership::claim_pods(context, &self.pods, &*owner, &selector, pods::is_active).await?;
        let active: Vec<&Pod> = claimed
            .iter()
            .map(AsRef::as_ref)
            .filter(|pod| pods::is_active(pod))
            .collect();
        let balanced = match going {
            true => Ok(Balance::Kept),
            false => self.balance(context, &owner, &active).await,
        };
        if matches!(balanced, Ok(Balance::Filled)) && active.is_empty() && tells_nothing(&owner.status()) {
            // The new pods wake their owner when they are seen, and then there is something to tell. A status before that
            // would make their nodes wait for the disk.
            return Ok(Outcome::Settled);
        }
        let now = context.now();
        let failure = balanced.as_ref().err().map(|error| Failure {
            reason: failure_reason(owner.wanted(), active.len()),
            message: error.words(),
        });
        let counts = Counts {
            terminating: K::terminating(&claimed),
            ..count(&*owner, &active, now)
        };
        let generation = owner.meta().generation;
        if let Some(patch) = status::patch(&owner.status(), generation, &counts, failure.as_ref(), now) {
            context.writer().patch_status(&*owner, json!({"status": patch})).await?;
        }
        // Users read in the status what went wrong before the queue tries again.
        balanced?;
        Ok(match next_available(&active, owner.min_ready_seconds(), now) {
            Some(after) => Outcome::CheckAgain(after),
            None => Outcome::Settled,
        })
    }
}

impl<K: ReplicaOwner> Replicas<K> {
    /// Creates what is missing, or deletes what is too much, the least worth first.
    async fn balance(&self, context: &Context, owner: &Arc<K>, active: &[&Pod]) -> Result<Balance, Error> {
        let wanted = usize::try_from(owner.wanted()).unwrap_or(0);
        let missing = wanted.saturating_sub(active.len());
        let surplus = active.len().saturating_sub(wanted);
        let control = PodControl::new(context, &**owner);
        if let Some(template) = owner.template().filter(|_| missing > 0) {
            let meta = owner.meta();
            let name = meta.name.as_deref().unwrap_or_default();
            let mut pod = pods::from_template(template, meta.namespace.as_deref(), name);
            pod.metadata.owner_references = Some(vec![ownership::controller_reference(&**owner)]);
            control.create(&vec![&pod; missing]).await?;
            return Ok(Balance::Filled);
        }
        if surplus > 0 {
            let victims = pods::by_worth(active.to_vec());
            control.delete(victims.into_iter().take(surplus)).await?;
        }
        Ok(Balance::Kept)
    }
}

fn failure_reason(wanted: i32, active: usize) -> &'static str {
    match usize::try_from(wanted).unwrap_or(0) > active {
        true => "FailedCreate",
        false => "FailedDelete",
    }
}

fn count<K: ReplicaOwner>(owner: &K, active: &[&Pod], now: Timestamp) -> Counts {
    let wanted_labels = owner
        .template()
        .and_then(|template| template.metadata.as_ref()?.labels.clone());
    let labelled = |pod: &&&Pod| {
        let labels = pod.metadata.labels.as_ref();
        wanted_labels
            .iter()
            .flatten()
            .all(|(key, value)| labels.and_then(|all| all.get(key)) == Some(value))
    };
    let size = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    let available = |pod: &&&Pod| pods::availability(pod, owner.min_ready_seconds(), now) == Availability::Available;
    Counts {
        replicas: size(active.len()),
        fully_labeled: size(active.iter().filter(labelled).count()),
        ready: size(active.iter().filter(|pod| pods::is_ready(pod)).count()),
        available: size(active.iter().filter(available).count()),
        terminating: None,
    }
}

/// When the next ready pod will have been ready for long enough.
pub(super) fn next_available(active: &[&Pod], min_ready_seconds: i32, now: Timestamp) -> Option<Duration> {
    let waits = active
        .iter()
        .filter_map(|pod| match pods::availability(pod, min_ready_seconds, now) {
            Availability::In(left) => Some(left),
            Availability::Unready | Availability::Available => None,
        });
    waits.min()
}

impl ReplicaOwner for ReplicaSet {
    fn terminating(claimed: &[Arc<Pod>]) -> Option<i32> {
        let going = |pod: &&Arc<Pod>| pod.metadata.deletion_timestamp.is_some() && !pods::has_ended(pod);
        i32::try_from(claimed.iter().filter(going).count()).ok()
    }

    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn selector(&self) -> Option<Selector> {
        pods::selector(&self.spec.as_ref()?.selector)
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn status(&self) -> Value {
        json!(self.status)
    }
}

impl ReplicaOwner for ReplicationController {
    fn wanted(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
    }

    fn selector(&self) -> Option<Selector> {
        let labels = self.spec.as_ref()?.selector.as_ref()?;
        Selector::from_object(&json!({"matchLabels": labels})).ok()
    }

    fn template(&self) -> Option<&PodTemplateSpec> {
        self.spec.as_ref()?.template.as_ref()
    }

    fn min_ready_seconds(&self) -> i32 {
        self.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0)
    }

    fn status(&self) -> Value {
        json!(self.status)
    }
}
