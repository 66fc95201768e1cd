//! The scheduler: a node for every pod that has none.
//!
//! Filters and scores are pure functions over what is known of the nodes ([`ledger`]). One worker decides, so that
//! two decisions never count on the same free space; a decision counts from the moment it is made, before the
//! cache has seen it.

pub mod filter;
pub mod ledger;
pub mod resources;
pub mod score;
#[cfg(test)]
mod tests;

use k8s_openapi::api::core::v1::{Node, Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ledger::Ledger;
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use stead::{Change, Context, Controller, Error, Key, Kind, Manager, Outcome, Reconciler, Rule, Severity, Store};

/// The name by which pods ask for this scheduler.
const NAME: &str = "default-scheduler";

/// Adds the scheduler to a manager.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let (pods, nodes) = (cache.store::<Pod>(), cache.store::<Node>());
    let ledger = Arc::new(Mutex::new(Ledger::default()));
    keep_current(&ledger, &pods, &nodes);
    let waiting = pods.clone();
    let controller = Controller::new("scheduler", Scheduler { pods, ledger })
        .for_::<Pod>()
        // Space may have come free: everything that waits is looked at again.
        .watches::<Node>(move |_| {
            let mut keys = Vec::new();
            waiting.for_each(|key, pod| {
                if wants_node(pod) {
                    keys.push(key.clone());
                }
            });
            keys
        })
        .may(Rule::new("", &["pods/binding"], &["create"]))
        .may(Rule::new("", &["pods/status"], &["patch"]))
        .without_resync()
        .concurrency(1);
    manager.add(controller);
}

struct Scheduler {
    pods: Store<Pod>,
    ledger: Arc<Mutex<Ledger>>,
}

impl Reconciler for Scheduler {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(pod) = self.pods.get(key).filter(|pod| wants_node(pod)) else {
            return Ok(Outcome::Settled);
        };
        if has_gates(&pod) {
            return Ok(Outcome::Settled);
        }
        let choice = self.ledger.lock().choose(&pod);
        match choice {
            Ok(node) => self.bind(context, &pod, &node).await?,
            Err(why) => tell_pending(context, &pod, &why).await?,
        }
        Ok(Outcome::Settled)
    }
}

impl Scheduler {
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
            .tell(reference(pod), Severity::Normal, "Scheduled", "Binding", &note);
        Ok(())
    }
}

/// Whether a pod waits for a node from us.
fn wants_node(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ours = spec.scheduler_name.as_deref().is_none_or(|name| name == NAME);
    spec.node_name.is_none() && ours && crate::controllers::pods::is_active(pod)
}

fn has_gates(pod: &Pod) -> bool {
    pod.spec
        .as_ref()
        .and_then(|spec| spec.scheduling_gates.as_ref())
        .is_some_and(|gates| !gates.is_empty())
}

/// Says in the pod's conditions and events why it has no node, once for each reason.
async fn tell_pending(context: &Context, pod: &Pod, why: &str) -> Result<(), Error> {
    let conditions = pod
        .status
        .as_ref()
        .and_then(|status| status.conditions.clone())
        .unwrap_or_default();
    let before = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
    if before.is_some_and(|before| before.status == "False" && before.message.as_deref() == Some(why)) {
        return Ok(());
    }
    let since = before
        .filter(|before| before.status == "False")
        .and_then(|before| before.last_transition_time.clone());
    let condition = PodCondition {
        type_: "PodScheduled".to_string(),
        status: "False".to_string(),
        reason: Some("Unschedulable".to_string()),
        message: Some(why.to_string()),
        last_transition_time: since.or(Some(Time(context.now()))),
        ..PodCondition::default()
    };
    let mut after: Vec<_> = conditions
        .into_iter()
        .filter(|condition| condition.type_ != "PodScheduled")
        .collect();
    after.push(condition);
    context
        .writer()
        .patch_status(pod, json!({"status": {"conditions": after}}))
        .await?;
    context
        .events()
        .tell(reference(pod), Severity::Warning, "FailedScheduling", "Scheduling", why);
    Ok(())
}

fn reference(pod: &Pod) -> k8s_openapi::api::core::v1::ObjectReference {
    k8s_openapi::api::core::v1::ObjectReference {
        api_version: Some("v1".to_string()),
        kind: Some("Pod".to_string()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        ..Default::default()
    }
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
