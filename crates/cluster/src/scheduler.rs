//! The scheduler: a node for every pod that has none.
//!
//! Filters and scores are pure functions over what is known of the nodes ([`ledger`]). Decisions are made one at a
//! time, under the ledger's lock, and count from that moment, before the cache has seen them: two never count on the
//! same free space. What follows from them, writes to the API server, happens side by side.

mod claims;
pub mod filter;
pub mod ledger;
pub mod preempt;
pub mod resources;
pub mod score;
mod telling;
#[cfg(test)]
mod tests;

use crate::controllers::ownership::about;
use crate::controllers::pods::{is_active, is_placed};
use claims::Claims;
use filter::volumes::Need;
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::storage::v1::StorageClass;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ledger::{Ledger, Refused};
use parking_lot::Mutex;
use preempt::Candidate;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use stead::{
    Change, Context, Controller, Error, Key, Kind, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Source,
    Store,
};
use telling::Waiting;

/// The name by which pods ask for this scheduler.
const NAME: &str = "default-scheduler";
/// Pods whose bindings are under way at once: a write that is made durable takes its time, and many share it.
const AT_ONCE: usize = 64;
/// A pod that waits is looked at again after this long, whatever happened or did not: what wakes it may have been
/// forgotten here, and a pod must not wait for ever for that.
const LOOK_AGAIN: Duration = Duration::from_secs(300);
/// The reason in the condition of a pod that had to make room.
const PREEMPTED: &str = "PreemptionByScheduler";

/// Adds the scheduler to a manager.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    crate::controllers::trimming::for_scheduler(cache);
    let (pods, nodes) = (cache.store::<Pod>(), cache.store::<Node>());
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    keep_current(&ledger, &pods, &nodes);
    keep_namespaces(&ledger, &cache.store());
    let stuck = Stuck::default();
    let reconciler = Scheduler {
        pods,
        nodes,
        budgets: cache.store(),
        claims: Claims::new(manager),
        ledger,
        stuck: stuck.clone(),
    };
    let (by_node, by_pod, by_room, by_claim) = (stuck.clone(), stuck.clone(), stuck.clone(), stuck.clone());
    let (by_volume, by_class, by_namespace, leaves) = (stuck.clone(), stuck.clone(), stuck.clone(), stuck);
    let controller = Controller::new("scheduler", reconciler)
        .for_source(Source::<Pod>::all().when(concerns))
        // Space may have come free, or a place become acceptable: what found none is looked at again.
        .watches_source(Source::<Node>::all().when(matters), move |_| by_node.all())
        .watches_source(
            Source::<Pod>::all().when(move |change| leaves.is_room(change)),
            move |_| by_room.all(),
        )
        .watches_source(Source::<Pod>::all().when(is_new_company), move |_| by_pod.concerned())
        .watches::<PersistentVolumeClaim>(move |_| by_claim.all())
        .watches::<PersistentVolume>(move |_| by_volume.all())
        .watches::<StorageClass>(move |_| by_class.all())
        // Affinity may choose namespaces by their labels.
        .watches::<Namespace>(move |_| by_namespace.all())
        .may(Rule::read::<PodDisruptionBudget>())
        .may(Rule::new("", &["pods/binding"], &["create"]))
        .may(Rule::new("", &["pods/status"], &["patch"]))
        .may(Rule::new("", &["pods"], &["delete"]))
        .may(Rule::new(
            "",
            &["persistentvolumes", "persistentvolumeclaims"],
            &["patch"],
        ))
        .without_resync()
        .concurrency(AT_ONCE);
    manager.add(controller);
}

/// Pods that found no node.
#[derive(Clone, Default)]
struct Stuck(Arc<Mutex<Waiters>>);

#[derive(Default)]
struct Waiters {
    all: BTreeSet<Key>,
    /// Those whose place depends on where other pods are.
    concerned: BTreeSet<Key>,
    /// Those that count on a node already, and are not yet seen there.
    placing: BTreeSet<Key>,
}

impl Stuck {
    fn all(&self) -> Vec<Key> {
        self.0.lock().all.iter().cloned().collect()
    }

    /// Those for which a pod that was placed, or has other labels, may make a difference.
    fn concerned(&self) -> Vec<Key> {
        self.0.lock().concerned.iter().cloned().collect()
    }

    fn insert(&self, key: &Key, pod: &Pod) {
        let mut waiters = self.0.lock();
        if looks_at_others(pod) {
            waiters.concerned.insert(key.clone());
        }
        waiters.all.insert(key.clone());
    }

    /// From now on the pod takes space on a node.
    fn place(&self, key: &Key) {
        self.0.lock().placing.insert(key.clone());
    }

    /// Whether a pod's change gives something free on a node: it went, it ended, or it asks for something else. One that
    /// never had a place gives nothing, and must not wake all who wait.
    fn is_room(&self, change: &Change<Pod>) -> bool {
        let had_place = |pod: &Pod| {
            is_placed(pod) || ledger::nominated_node(pod).is_some() || self.0.lock().placing.contains(&Key::of(pod))
        };
        match change {
            Change::Deleted(pod) => had_place(pod),
            Change::Listed(_) | Change::Created(_) => false,
            Change::Updated { old, new } => {
                let left = is_active(old) && !is_active(new);
                left && had_place(old) || is_placed(old) && old.spec != new.spec
            }
        }
    }

    fn remove(&self, key: &Key) {
        let mut waiters = self.0.lock();
        waiters.placing.remove(key);
        waiters.all.remove(key);
        waiters.concerned.remove(key);
    }
}

/// Whether a pod's place depends on where other pods are: those that attract it, those that it keeps away from, and
/// those that it is spread with.
fn looks_at_others(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let affinity = spec.affinity.as_ref();
    affinity.is_some_and(|all| all.pod_affinity.is_some() || all.pod_anti_affinity.is_some())
        || spec.topology_spread_constraints.iter().flatten().next().is_some()
}

/// Whether a pod's change is a pod more, or another one, for those that look at where others are.
fn is_new_company(change: &Change<Pod>) -> bool {
    match change {
        Change::Deleted(_) => false,
        Change::Listed(pod) | Change::Created(pod) => is_placed(pod),
        Change::Updated { old, new } => {
            is_placed(new) && (!is_placed(old) || old.metadata.labels != new.metadata.labels)
        }
    }
}

/// Whether a pod's change concerns its place: what a node says of a pod that it runs does not.
fn concerns(change: &Change<Pod>) -> bool {
    match change {
        Change::Updated { old, new } => wants_node(old) || wants_node(new),
        Change::Listed(pod) | Change::Created(pod) => wants_node(pod),
        Change::Deleted(_) => true,
    }
}

/// Whether a node's change can let a pod in: a heartbeat cannot.
fn matters(change: &Change<Node>) -> bool {
    let Change::Updated { old, new } = change else {
        return true;
    };
    let allocatable = |node: &Node| node.status.as_ref().and_then(|status| status.allocatable.clone());
    old.metadata.labels != new.metadata.labels || old.spec != new.spec || allocatable(old) != allocatable(new)
}

struct Scheduler {
    pods: Store<Pod>,
    nodes: Store<Node>,
    budgets: Store<PodDisruptionBudget>,
    claims: Claims,
    ledger: Arc<Mutex<Ledger>>,
    stuck: Stuck,
}

impl Reconciler for Scheduler {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| wants_node(pod)) else {
            self.stuck.remove(key);
            return Ok(Outcome::Settled);
        };
        // Before anything is looked at: what changes in the meantime must wake it again.
        self.stuck.insert(key, &pod);
        if has_gates(&pod) {
            telling::pending(context, &pod, &Waiting::Gated).await?;
            return Ok(Outcome::Settled);
        }
        let needs = match self.claims.needs(&pod) {
            Ok(needs) => needs,
            Err(why) => {
                let total = self.ledger.lock().total();
                let why = format!(
                    "0/{total} nodes are available: {why}. preemption: 0/{total} nodes are available: {total} \
                     Preemption is not helpful for scheduling."
                );
                return self.tell(context, &pod, &why, None).await;
            }
        };
        let choice = self.ledger.lock().choose(&pod, &needs);
        match choice {
            Ok(node) if needs.iter().any(Need::is_open) => {
                // The pod is placed for good when its volumes are there: their arrival wakes it.
                self.ledger.lock().forget(&pod);
                if let Some(node) = self.nodes.named(None, &node) {
                    self.claims.reserve(context, &needs, &node).await?;
                }
            }
            Ok(node) => {
                self.stuck.place(key);
                self.bind(context, &pod, &node).await?;
                self.stuck.remove(key);
            }
            Err(refused) => return self.make_room(context, &pod, &needs, &refused).await,
        }
        Ok(Outcome::Settled)
    }
}

impl Scheduler {
    async fn tell(&self, context: &Context, pod: &Pod, why: &str, nominated: Option<&str>) -> Result<Outcome, Error> {
        telling::pending(context, pod, &Waiting::Unschedulable { why, nominated }).await?;
        Ok(Outcome::CheckAgain(LOOK_AGAIN))
    }

    /// Takes less important pods away where that helps, and says in any case why the pod waits.
    async fn make_room(
        &self,
        context: &Context,
        pod: &Arc<Pod>,
        needs: &[Need],
        refused: &Refused,
    ) -> Result<Outcome, Error> {
        let words = refused.words();
        if refused.total == 0 {
            return self.tell(context, pod, &words, None).await;
        }
        let budgets = self.budgets.list();
        let found = self.ledger.lock().make_room(pod, needs, refused, &budgets);
        match found {
            Ok(candidate) => {
                self.evict(context, pod, &candidate).await?;
                self.tell(context, pod, &words, Some(&candidate.node)).await
            }
            Err(why) => {
                let nominated = pod
                    .status
                    .as_ref()
                    .and_then(|status| status.nominated_node_name.as_deref());
                // While its room is being made it keeps its claim on it.
                let kept = nominated.filter(|_| why.contains("terminating pod on the nominated node"));
                self.tell(context, pod, &format!("{words} {why}"), kept).await
            }
        }
    }

    /// Sends the victims away, each with a word of why.
    async fn evict(&self, context: &Context, pod: &Pod, candidate: &Candidate) -> Result<(), Error> {
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        for victim in &candidate.victims {
            if victim.metadata.deletion_timestamp.is_some() {
                continue;
            }
            let condition = PodCondition {
                type_: "DisruptionTarget".to_string(),
                status: "True".to_string(),
                reason: Some(PREEMPTED.to_string()),
                message: Some(format!("{NAME}: preempting to accommodate a higher priority pod")),
                last_transition_time: Some(Time(context.now())),
                ..PodCondition::default()
            };
            let conditions = victim.status.as_ref().and_then(|status| status.conditions.clone());
            let conditions = telling::replaced(conditions.unwrap_or_default(), condition);
            let patch = json!({"status": {"conditions": conditions}});
            let marked = match context.writer().patch_status(&**victim, patch).await {
                Err(error) if error.is_not_found() => continue,
                other => other?.object()?,
            };
            context.writer().delete(&marked, Propagation::Background).await?;
            let note = format!("Preempted by pod {uid} on node {}", candidate.node);
            context
                .events()
                .tell(about(&**victim), Severity::Normal, "Preempted", "Preempting", &note);
        }
        Ok(())
    }

    async fn bind(&self, context: &Context, pod: &Pod, node: &str) -> Result<(), Error> {
        let key = Key::of(pod);
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": pod.metadata.name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        let bound = context
            .writer()
            .post_to(Kind::of::<Pod>(), key.clone(), "binding", binding)
            .await;
        if let Err(error) = bound {
            self.ledger.lock().forget(pod);
            return if error.is_not_found() { Ok(()) } else { Err(error) };
        }
        let note = format!("Successfully assigned {key} to {node}");
        context
            .events()
            .tell(about(pod), Severity::Normal, "Scheduled", "Binding", &note);
        Ok(())
    }
}

/// Whether a pod waits for a node from us.
fn wants_node(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ours = spec.scheduler_name.as_deref().is_none_or(|name| name == NAME);
    spec.node_name.is_none() && ours && is_active(pod)
}

fn has_gates(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref())
        .is_some_and(|gates| !gates.is_empty())
}

/// Feeds the ledger with the labels of namespaces.
fn keep_namespaces(ledger: &Arc<Mutex<Ledger>>, namespaces: &Store<Namespace>) {
    let ledger = ledger.clone();
    namespaces.subscribe(move |change| match change {
        Change::Deleted(namespace) => ledger.lock().forget_namespace(namespace),
        Change::Listed(namespace) | Change::Created(namespace) | Change::Updated { new: namespace, .. } => {
            ledger.lock().see_namespace(namespace)
        }
    });
}

/// Feeds the ledger from the cache, change by change.
fn keep_current(ledger: &Arc<Mutex<Ledger>>, pods: &Store<Pod>, nodes: &Store<Node>) {
    let on_pods = ledger.clone();
    pods.subscribe(move |change| match change {
        Change::Deleted(pod) => on_pods.lock().forget(pod),
        Change::Listed(pod) | Change::Created(pod) | Change::Updated { new: pod, .. } => on_pods.lock().see_pod(pod),
    });
    let on_nodes = ledger.clone();
    nodes.subscribe(move |change| match change {
        Change::Deleted(node) => on_nodes.lock().forget_node(node),
        Change::Listed(node) | Change::Created(node) | Change::Updated { new: node, .. } => {
            on_nodes.lock().see_node(node)
        }
    });
}
