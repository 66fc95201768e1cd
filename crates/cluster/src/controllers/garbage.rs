//! Garbage collection: objects whose owners are gone go too, foreground and orphan deletion as they were asked for.
//!
//! A graph of who owns whom is built from the metadata of every kind that is served. It only suggests; before an
//! object is deleted, its owners are asked for at the API server itself, because a cache may be old and a wrong
//! delete cannot be undone.

mod graph;

use super::discovery;
use graph::{Graph, Node};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;
use stead::writer::{Draft, Verb};
use stead::{Cache, Change, Context, Controller, Error, Key, Kind, Manager, Outcome, Propagation, Reconciler, Rule};
use stead::{Scope, Trigger, Watch};

/// The key that stands for looking at which kinds there are. All other keys are UIDs.
const DISCOVERY: &str = "discovery";
/// New kinds are found at the latest after this long; a changed definition wakes it at once.
const DISCOVERY_PAUSE: Duration = Duration::from_secs(120);
/// A definition is served a moment after it is written.
const DISCOVERY_SOON: Duration = Duration::from_secs(1);
const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

type Metadata = PartialObjectMeta<DynamicObject>;

/// Adds the garbage collector.
pub fn add_to(manager: &Manager) {
    let (shared, cache) = (Arc::new(Shared::default()), manager.cache().clone());
    let wake = Arc::new(std::sync::OnceLock::new());
    let collector = Collector {
        cache,
        shared,
        wake: wake.clone(),
    };
    let mut controller = Controller::new("garbagecollector", collector)
        .watches::<CustomResourceDefinition>(|_| vec![Key::cluster(DISCOVERY)])
        // Every cluster has namespaces: their first list starts the work.
        .watches::<k8s_openapi::api::core::v1::Namespace>(|_| vec![Key::cluster(DISCOVERY)])
        .may(Rule::new(
            "*",
            &["*"],
            &["get", "list", "watch", "patch", "update", "delete"],
        ))
        .without_resync()
        .concurrency(8);
    // Set once, before the controller can run.
    let _ = wake.set(controller.trigger());
    manager.add(controller);
}

struct Collector {
    cache: Cache,
    shared: Arc<Shared>,
    wake: Arc<std::sync::OnceLock<Trigger>>,
}

/// What watchers and workers share.
#[derive(Default)]
struct Shared {
    graph: Mutex<Graph>,
    /// Kinds that are watched, by group and kind.
    kinds: Mutex<HashMap<(String, String), Kind>>,
}

/// What is known of the owners of an object.
#[derive(Debug, Default)]
struct Owners {
    /// They exist and stay.
    solid: Vec<OwnerReference>,
    /// They wait for their dependents to be deleted.
    waiting: Vec<OwnerReference>,
    gone: Vec<OwnerReference>,
}

impl Reconciler for Collector {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        if key.name() == DISCOVERY {
            return self.discover(context).await;
        }
        let Some(node) = self.shared.graph.lock().get(key.name()).cloned() else {
            return Ok(Outcome::Settled);
        };
        if node.waits_for(ORPHAN) {
            self.orphan(context, &node).await?;
        } else if node.waits_for(FOREGROUND) {
            self.delete_dependents(context, &node).await?;
        }
        if node.owners.is_empty() || (node.deleting && !node.waits_for(FOREGROUND)) {
            return Ok(Outcome::Settled);
        }
        self.judge(context, &node).await
    }
}

impl Collector {
    /// Watches the metadata of every kind that can be listed, watched and deleted.
    async fn discover(&self, context: &Context) -> Result<Outcome, Error> {
        let mut news = BTreeSet::new();
        for served in discovery::kinds(&context.client()).await? {
            let id = (served.kind.group.to_string(), served.kind.kind.to_string());
            let ephemeral = served.kind.kind == "Event";
            // A definition may stop serving the version that was found first; then the next one is watched.
            let known =
                |kinds: &HashMap<(String, String), Kind>| kinds.get(&id).is_some_and(|kind| *kind == served.kind);
            if ephemeral || !served.can(&["list", "watch", "delete"]) || known(&self.shared.kinds.lock()) {
                continue;
            }
            news.insert(id.clone());
            self.shared.kinds.lock().insert(id, served.kind.clone());
            self.watch(served.kind);
        }
        // Nothing could be said of objects whose owners are of a kind that nobody served.
        let concerned = self.shared.graph.lock().owned_by_kinds(&news);
        for uid in concerned {
            if let Some(trigger) = self.wake.get() {
                trigger.wake(Key::cluster(&uid), "the kind of its owner is served now");
            }
        }
        Ok(Outcome::CheckAgain(match news.is_empty() {
            true => DISCOVERY_PAUSE,
            false => DISCOVERY_SOON,
        }))
    }

    fn watch(&self, kind: Kind) {
        let only_bonds = Watch::all().transform(|object: &mut Metadata| {
            object.metadata.managed_fields = None;
            object.metadata.labels = None;
            object.metadata.annotations = None;
        });
        let store = self.cache.watch_dynamic::<Metadata>(kind.clone(), only_bonds);
        let (shared, wake) = (self.shared.clone(), self.wake.clone());
        store.subscribe(move |change| {
            let look = match change {
                Change::Deleted(object) => {
                    let uid = object.metadata.uid.as_deref().unwrap_or_default();
                    let mut graph = shared.graph.lock();
                    // A version that is no longer served takes its watch along, and not the objects.
                    match graph.get(uid).is_some_and(|node| node.kind != kind) {
                        true => Vec::new(),
                        false => graph.remove(uid),
                    }
                }
                Change::Listed(object) | Change::Created(object) | Change::Updated { new: object, .. } => {
                    let node = Node::new(&kind, &object.metadata);
                    node.map(|node| shared.graph.lock().put(node)).unwrap_or_default()
                }
            };
            for uid in look {
                if let Some(trigger) = wake.get() {
                    trigger.wake(Key::cluster(&uid), "its owners or dependents changed");
                }
            }
        });
    }

    /// Decides about an object that has owners.
    async fn judge(&self, context: &Context, node: &Node) -> Result<Outcome, Error> {
        let Some(live) = context.writer().read_dynamic(&node.kind, &node.key).await? else {
            return Ok(Outcome::Settled);
        };
        let meta: ObjectMeta = serde_json::from_value(live["metadata"].clone()).unwrap_or_default();
        if meta.uid.as_deref() != Some(node.uid.as_str()) {
            return Ok(Outcome::Settled);
        }
        let owners = self.look_up(context, node, &meta).await?;
        match (owners.solid.is_empty(), owners.waiting.is_empty()) {
            // Somebody keeps it: only the references to those who are gone go.
            (false, _) if owners.gone.is_empty() && owners.waiting.is_empty() => {}
            (false, _) => {
                let keep = json!({"metadata": {"ownerReferences": owners.solid, "uid": node.uid, "resourceVersion": meta.resource_version}});
                patch(context, node, keep).await?;
            }
            // An owner waits for it, and its own dependents may have to go before it.
            (true, false) => {
                let dependents = self.dependents(node);
                if dependents.iter().any(|dependent| dependent.waits_for(FOREGROUND)) {
                    // Perhaps a circle of owners, each of which waits for the next.
                    unblock(context, node, &meta).await?;
                }
                let how = match dependents.is_empty() {
                    true => Propagation::Background,
                    false => Propagation::Foreground,
                };
                self.delete(context, node, &meta, how).await?;
            }
            (true, true) if owners.gone.is_empty() => {}
            (true, true) => {
                // As the object was asked to be deleted, if it was; else in the background.
                let how = match (node.has_finalizer(ORPHAN), node.has_finalizer(FOREGROUND)) {
                    (true, _) => Propagation::Orphan,
                    (_, true) => Propagation::Foreground,
                    _ => Propagation::Background,
                };
                self.delete(context, node, &meta, how).await?;
            }
        }
        Ok(Outcome::Settled)
    }

    /// Asks the API server for each owner that the graph does not know.
    async fn look_up(&self, context: &Context, node: &Node, meta: &ObjectMeta) -> Result<Owners, Error> {
        let mut owners = Owners::default();
        for owner in meta.owner_references.iter().flatten() {
            let known = self.shared.graph.lock().get(&owner.uid).cloned();
            if known.is_some_and(|known| known.waits_for(FOREGROUND)) {
                owners.waiting.push(owner.clone());
                continue;
            }
            let Some(kind) = self.kind_of(owner) else {
                // A kind that nobody serves: its objects may come back with it.
                owners.solid.push(owner.clone());
                continue;
            };
            if kind.scope == Scope::Namespaced && node.key.namespace().is_none() {
                // An owner in a namespace cannot own what is in none; nothing is done about it.
                owners.solid.push(owner.clone());
                continue;
            }
            let namespace = node.key.namespace().filter(|_| kind.scope == Scope::Namespaced);
            let found = context
                .writer()
                .read_dynamic(&kind, &Key::new(namespace, &owner.name))
                .await?;
            let alive = match found {
                Some(found) => found["metadata"]["uid"].as_str() == Some(owner.uid.as_str()),
                // An answer that there is no such object, and not that there is no such path.
                None => !self.is_served(context, &kind).await?,
            };
            if alive {
                owners.solid.push(owner.clone())
            } else {
                owners.gone.push(owner.clone())
            };
        }
        Ok(owners)
    }

    /// Whether the kind is still served in this version: where it is not, no answer says anything of its objects.
    async fn is_served(&self, context: &Context, kind: &Kind) -> Result<bool, Error> {
        // Only definitions come and go.
        if !kind.group.contains('.') || kind.group.ends_with(".k8s.io") {
            return Ok(true);
        }
        let served = discovery::kinds(&context.client()).await?;
        Ok(served.iter().any(|served| served.kind == *kind))
    }

    fn kind_of(&self, owner: &OwnerReference) -> Option<Kind> {
        let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
        self.shared
            .kinds
            .lock()
            .get(&(group.to_string(), owner.kind.clone()))
            .cloned()
    }

    /// Lets go of all dependents, then of the object.
    async fn orphan(&self, context: &Context, node: &Node) -> Result<(), Error> {
        for dependent in self.dependents(node) {
            let Some(live) = context.writer().read_dynamic(&dependent.kind, &dependent.key).await? else {
                continue;
            };
            let meta: ObjectMeta = serde_json::from_value(live["metadata"].clone()).unwrap_or_default();
            if meta.uid.as_deref() != Some(dependent.uid.as_str()) {
                continue;
            }
            let owners: Vec<_> = meta.owner_references.iter().flatten().collect();
            let others: Vec<_> = owners.iter().filter(|owner| owner.uid != node.uid).collect();
            if others.len() < owners.len() {
                let change = json!({"metadata": {
                    "ownerReferences": others, "uid": dependent.uid, "resourceVersion": meta.resource_version,
                }});
                patch(context, &dependent, change).await?;
            }
        }
        self.drop_finalizer(context, node, ORPHAN).await
    }

    /// Wakes the dependents that hold the object up; when none is left, lets the object go.
    async fn delete_dependents(&self, context: &Context, node: &Node) -> Result<(), Error> {
        let blocking: Vec<Node> = self
            .dependents(node)
            .into_iter()
            .filter(|dependent| {
                let mut owners = dependent.owners.iter();
                owners.any(|owner| owner.uid == node.uid && owner.block_owner_deletion == Some(true))
            })
            .collect();
        if blocking.is_empty() {
            return self.drop_finalizer(context, node, FOREGROUND).await;
        }
        for dependent in blocking.iter().filter(|dependent| !dependent.deleting) {
            if let Some(trigger) = self.wake.get() {
                trigger.wake(Key::cluster(&dependent.uid), "its owner waits for it to go");
            }
        }
        Ok(())
    }

    fn dependents(&self, node: &Node) -> Vec<Node> {
        let graph = self.shared.graph.lock();
        graph
            .dependents_of(&node.uid)
            .iter()
            .filter_map(|uid| graph.get(uid).cloned())
            .collect()
    }

    /// Deletes the object in the state that was judged: one that was adopted since is judged again.
    async fn delete(&self, context: &Context, node: &Node, meta: &ObjectMeta, how: Propagation) -> Result<(), Error> {
        let only_this = json!({"uid": node.uid, "resourceVersion": meta.resource_version});
        context
            .writer()
            .delete_dynamic(node.kind.clone(), node.key.clone(), only_this, how)
            .await
    }

    async fn drop_finalizer(&self, context: &Context, node: &Node, name: &str) -> Result<(), Error> {
        let Some(live) = context.writer().read_dynamic(&node.kind, &node.key).await? else {
            return Ok(());
        };
        let meta: ObjectMeta = serde_json::from_value(live["metadata"].clone()).unwrap_or_default();
        if meta.uid.as_deref() != Some(node.uid.as_str()) {
            return Ok(());
        }
        let left: Vec<_> = meta.finalizers.iter().flatten().filter(|have| *have != name).collect();
        let change =
            json!({"metadata": {"finalizers": left, "uid": node.uid, "resourceVersion": meta.resource_version}});
        patch(context, node, change).await
    }
}

/// Lets the owners of an object go before it.
async fn unblock(context: &Context, node: &Node, meta: &ObjectMeta) -> Result<(), Error> {
    let mut owners = meta.owner_references.clone().unwrap_or_default();
    if owners.iter().all(|owner| owner.block_owner_deletion != Some(true)) {
        return Ok(());
    }
    for owner in &mut owners {
        owner.block_owner_deletion = Some(false);
    }
    let change = json!({"metadata": {
        "ownerReferences": owners, "uid": node.uid, "resourceVersion": meta.resource_version,
    }});
    patch(context, node, change).await
}

async fn patch(context: &Context, node: &Node, change: Value) -> Result<(), Error> {
    let mut draft = Draft::new(Verb::Patch, node.kind.clone(), node.key.clone(), change);
    draft.patch = Some("application/merge-patch+json");
    match context.writer().send(draft).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}
