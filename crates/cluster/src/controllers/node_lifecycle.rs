//! The life of nodes: taints that follow their conditions, leases that run out, pods that leave lost nodes.

mod taints;

use super::abandoned::{self, Cause};
use super::{ownership, pods};
use crate::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, NodeCondition, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use parking_lot::Mutex;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use stead::{
    Change, Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Source, Store,
    Watch,
};
use taints::Others;

/// A node whose lease is older is taken for lost. Kubernetes waits as long.
const GRACE: SignedDuration = SignedDuration::from_secs(50);
/// Pods of a node that the cache does not show are left alone for so long, because the watch of nodes may be behind
/// that of pods. Kubernetes waits as long.
const QUARANTINE: SignedDuration = SignedDuration::from_secs(40);
/// The reason of events about a node that was well until now, and about its pods.
const NOT_READY: &str = "NodeNotReady";
/// Where nodes keep their leases.
const LEASES: &str = "metadata.namespace=kube-node-lease";

/// Adds the controller of nodes' lives.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let pods = cache.store::<Pod>();
    let by_node = pods.index(|pod: &Pod| pod.spec.iter().filter_map(|spec| spec.node_name.clone()).collect());
    let nodes = cache.store::<Node>();
    let reconciler = Nodes {
        nodes: nodes.clone(),
        leases: cache.watch(Watch::all().fields(LEASES)),
        pods,
        by_node,
        missed: Mutex::default(),
    };
    let controller = Controller::new("node-lifecycle", reconciler)
        .for_::<Node>()
        // Whether pods are driven from a silent node depends on whether another one is well.
        .watches_source(Source::<Node>::all().when(turns), move |_| silent(&nodes))
        .watches_source(Source::<Lease>::from(Watch::all().fields(LEASES)), |lease| {
            lease.metadata.name.as_deref().map(Key::cluster).into_iter().collect()
        })
        .watches_source(Source::<Pod>::all().when(arrives), |pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            node.map(Key::cluster).into_iter().collect()
        })
        .may(Rule::new("", &["nodes", "nodes/status", "pods/status"], &["patch"]))
        .may(Rule::new("", &["pods"], &["delete"]))
        .without_resync()
        .concurrency(2);
    manager.add(controller);
}

/// Whether a pod comes to a node or is to go from it, or changes what it bears there: what the node says of it does not
/// matter.
fn arrives(change: &Change<Pod>) -> bool {
    let Change::Updated { old, new } = change else {
        return !matches!(change, Change::Deleted(_));
    };
    let place = |pod: &Pod| {
        let spec = pod.spec.as_ref();
        spec.map(|spec| (spec.node_name.clone(), spec.tolerations.clone()))
    };
    let goes = |pod: &Pod| pod.metadata.deletion_timestamp.is_some();
    place(old) != place(new) || pods::is_ready(old) != pods::is_ready(new) || goes(old) != goes(new)
}

/// Whether a node becomes well, or stops being so.
fn turns(change: &Change<Node>) -> bool {
    match change {
        Change::Updated { old, new } => is_ready(old) != is_ready(new),
        Change::Listed(node) | Change::Created(node) | Change::Deleted(node) => is_ready(node),
    }
}

/// The nodes that are not well.
fn silent(nodes: &Store<Node>) -> Vec<Key> {
    let mut found = Vec::new();
    nodes.for_each(|key, node| {
        if !is_ready(node) {
            found.push(key.clone());
        }
    });
    found
}

struct Nodes {
    nodes: Store<Node>,
    leases: Store<Lease>,
    pods: Store<Pod>,
    by_node: stead::Index<Pod>,
    /// Since when pods are seen on nodes that are not.
    missed: Mutex<HashMap<Key, Timestamp>>,
}

impl Reconciler for Nodes {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let pods = || self.pods.by_index(&self.by_node, key.name());
        let Some(node) = self.nodes.get(key) else {
            return self.missing(context, key, &pods()).await;
        };
        self.missed.lock().remove(key);
        let now = context.now();
        let silent_at = clock::after(self.renewed(key.name(), &node), GRACE);
        if silent_at <= now && lost(context, &node, now).await? == Found::News {
            return Ok(Outcome::CheckAgain(Duration::ZERO));
        }
        let wanted = taints::of(&node, self.others(), now);
        if let Some(changed) = wanted.changed {
            context
                .writer()
                .patch(&*node, json!({"spec": {"taints": changed}}))
                .await?;
        }
        // A node that is silent is looked at again when it speaks, or when something of it changes.
        let mut next = (silent_at > now).then(|| left(silent_at, now));
        if let Some(since) = unready_since(&node) {
            unready(context, &pods(), since).await?;
        }
        if !wanted.expel.is_empty() {
            let pods = pods();
            for pod in pods.iter().filter(|pod| pods::is_active(pod)) {
                match taints::leaves_at(pod, &wanted.expel) {
                    Some(at) if at <= now => expel(context, pod).await?,
                    Some(at) => next = Some(next.map_or(left(at, now), |earlier| earlier.min(left(at, now)))),
                    None => {}
                }
            }
        }
        if is_out_of_service(&node) {
            // Somebody has seen to it that nothing runs there: what waits for the node to end its pods need not.
            let pods = pods();
            for pod in pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
                abandoned::end(context, pod, Cause::OutOfService).await?;
            }
        }
        Ok(match next {
            Some(next) => Outcome::CheckAgain(next.max(Duration::from_secs(1))),
            None => Outcome::Settled,
        })
    }
}

impl Nodes {
    /// Ends the pods of a node that is gone, since nobody is left to say that they have ended. That the cache does not
    /// show the node proves nothing: it must stay so for a while, and the API server must say the same.
    async fn missing(&self, context: &Context, key: &Key, pods: &[Arc<Pod>]) -> Result<Outcome, Error> {
        if pods.is_empty() {
            self.missed.lock().remove(key);
            return Ok(Outcome::Settled);
        }
        let now = context.now();
        let since = *self.missed.lock().entry(key.clone()).or_insert(now);
        let due = clock::after(since, QUARANTINE);
        if now < due {
            return Ok(Outcome::CheckAgain(left(due, now)));
        }
        let live: Api<Node> = Api::all(context.client());
        let found = live.get_metadata_opt(key.name()).await;
        let found = found.map_err(|error| Error::api(format!("get node {key}"), error))?;
        if found.is_none() {
            for pod in pods {
                abandoned::end(context, pod, Cause::NodeGone).await?;
            }
        }
        // Of a node that is there the watch will tell; pods that come later have a time of their own.
        self.missed.lock().remove(key);
        Ok(Outcome::Settled)
    }

    fn others(&self) -> Others {
        let mut all = Others::AllSilent;
        self.nodes.for_each(|_, node| {
            if is_ready(node) {
                all = Others::Well;
            }
        });
        all
    }

    /// When the node last gave a sign of life.
    fn renewed(&self, name: &str, node: &Node) -> Timestamp {
        let lease = self.leases.named(Some("kube-node-lease"), name);
        let renewed = lease.and_then(|lease| Some(lease.spec.as_ref()?.renew_time.as_ref()?.0));
        let ready = conditions(node).find(|condition| condition.type_ == "Ready");
        let beat = ready.and_then(|ready| Some(ready.last_heartbeat_time.as_ref()?.0));
        let created = node.metadata.creation_timestamp.as_ref().map(|time| time.0);
        renewed
            .into_iter()
            .chain(beat)
            .chain(created)
            .max()
            .unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

/// Whether something was written that will wake us again.
#[derive(PartialEq)]
enum Found {
    News,
    Nothing,
}

/// Says that nobody knows how a silent node is.
async fn lost(context: &Context, node: &Node, now: Timestamp) -> Result<Found, Error> {
    let all: Vec<NodeCondition> = conditions(node)
        .map(|condition| match condition.status.as_str() {
            "Unknown" => condition.clone(),
            _ => NodeCondition {
                status: "Unknown".to_string(),
                reason: Some("NodeStatusUnknown".to_string()),
                message: Some("Kubelet stopped posting node status.".to_string()),
                last_transition_time: Some(Time(now)),
                ..condition.clone()
            },
        })
        .collect();
    if conditions(node).eq(all.iter()) {
        return Ok(Found::Nothing);
    }
    context
        .writer()
        .patch_status(node, json!({"status": {"conditions": all}}))
        .await?;
    if is_ready(node) {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let note = format!("Node {name} status is now: {NOT_READY}");
        let about = ownership::about(node);
        context
            .events()
            .tell(about, Severity::Normal, NOT_READY, "Watching", &note);
    }
    Ok(Found::News)
}

/// Since when what a node's pods say of their readiness does not count; `None` while the node is well.
fn unready_since(node: &Node) -> Option<Timestamp> {
    let ready = conditions(node).find(|condition| condition.type_ == "Ready")?;
    match ready.status.as_str() {
        "True" => None,
        // It is alive and in trouble. What it says of a pod after that is known to it, and not undone here again.
        "False" => ready.last_transition_time.as_ref().map(|time| time.0),
        _ => Some(Timestamp::MAX),
    }
}

/// Pods on a node that is not well are not ready, whatever they said until then.
async fn unready(context: &Context, pods: &[Arc<Pod>], until: Timestamp) -> Result<(), Error> {
    let was_ready = |pod: &&Arc<Pod>| pods::ready_since(pod).is_some_and(|since| since <= until);
    for pod in pods.iter().filter(was_ready) {
        let mut conditions = pod
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        for condition in conditions.iter_mut().filter(|condition| condition.type_ == "Ready") {
            condition.status = "False".to_string();
            condition.last_transition_time = Some(Time(context.now()));
        }
        let patch = json!({"status": {"conditions": conditions}});
        match context.writer().patch_status(&**pod, patch).await {
            Err(error) if error.is_not_found() => continue,
            other => drop(other?),
        }
        let about = ownership::about(&**pod);
        let events = context.events();
        events.tell(about, Severity::Warning, NOT_READY, "Watching", "Node is not ready");
    }
    Ok(())
}

/// Deletes a pod that its node's taints drive away, with a word of why.
async fn expel(context: &Context, pod: &Pod) -> Result<(), Error> {
    let words = (
        "DeletionByTaintManager",
        "Taint manager: deleting due to NoExecute taint",
    );
    let conditions = abandoned::disrupted(context, pod, words);
    let patch = json!({"status": {"conditions": conditions}});
    let marked: Pod = match context.writer().patch_status(pod, patch).await {
        Err(error) if error.is_not_found() => return Ok(()),
        other => other?.object()?,
    };
    let note = format!("Marking for deletion Pod {}", Key::of(pod));
    let about = ownership::about(pod);
    context
        .events()
        .tell(about, Severity::Normal, "TaintManagerEviction", "Deleting", &note);
    context.writer().delete(&marked, Propagation::Background).await
}

fn is_ready(node: &Node) -> bool {
    conditions(node).any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Whether a person has said of a silent node that it is off for good.
fn is_out_of_service(node: &Node) -> bool {
    let mut taints = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten());
    !is_ready(node) && taints.any(|taint| taint.key == "node.kubernetes.io/out-of-service")
}

fn conditions(node: &Node) -> impl Iterator<Item = &NodeCondition> {
    node.status.iter().flat_map(|status| status.conditions.iter().flatten())
}

fn left(at: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)
}
