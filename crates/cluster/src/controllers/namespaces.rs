//! Namespaces that are going away: everything in them goes first.

use super::discovery::{self, Served};
use http::Request;
use k8s_openapi::api::core::v1::{Namespace, NamespaceCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Kind, Manager, Outcome, Reconciler, Rule, Scope, Store};

/// How often what is left is counted again.
const PAUSE: Duration = Duration::from_millis(200);
/// What the namespace's own finalizer is called.
const FINALIZER: &str = "kubernetes";

/// Adds the controller of namespaces.
pub fn add_to(manager: &Manager) {
    let reconciler = Namespaces {
        namespaces: manager.cache().store(),
    };
    let controller = Controller::new("namespace", reconciler)
        .for_::<Namespace>()
        .may(Rule::new("", &["namespaces/finalize"], &["update"]))
        .may(Rule::root::<Namespace>())
        .may(Rule::new("*", &["*"], &["get", "list", "deletecollection", "delete"]))
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

struct Namespaces {
    namespaces: Store<Namespace>,
}

/// What is left in a namespace.
#[derive(Debug, Default)]
struct Remains {
    /// Objects of each kind.
    content: BTreeMap<String, usize>,
    /// How many objects wait for each finalizer.
    finalizers: BTreeMap<String, usize>,
}

impl Reconciler for Namespaces {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(namespace) = self.namespaces.get(key) else {
            return Ok(Outcome::Settled);
        };
        let held = namespace
            .spec
            .iter()
            .flat_map(|spec| spec.finalizers.iter().flatten())
            .any(|name| name == FINALIZER);
        if namespace.metadata.deletion_timestamp.is_none() || !held {
            return Ok(Outcome::Settled);
        }
        let remains = empty(&context.client(), key.name()).await?;
        self.tell(context, &namespace, &remains).await?;
        if !remains.content.is_empty() {
            return Ok(Outcome::CheckAgain(PAUSE));
        }
        finalize(context, &namespace).await?;
        Ok(Outcome::Settled)
    }
}

impl Namespaces {
    /// Says in the conditions what the deletion waits for.
    async fn tell(&self, context: &Context, namespace: &Namespace, remains: &Remains) -> Result<(), Error> {
        let content: Vec<String> = remains
            .content
            .iter()
            .map(|(kind, n)| format!("{kind} has {n} resource instances"))
            .collect();
        let held: Vec<String> = remains
            .finalizers
            .iter()
            .map(|(name, n)| format!("{name} in {n} resource instances"))
            .collect();
        let wanted = [
            (
                "NamespaceDeletionDiscoveryFailure",
                "False",
                "ResourcesDiscovered",
                "All resources successfully discovered".to_string(),
            ),
            (
                "NamespaceDeletionGroupVersionParsingFailure",
                "False",
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed".to_string(),
            ),
            (
                "NamespaceDeletionContentFailure",
                "False",
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization".to_string(),
            ),
            if content.is_empty() {
                (
                    "NamespaceContentRemaining",
                    "False",
                    "ContentRemoved",
                    "All content successfully removed".to_string(),
                )
            } else {
                (
                    "NamespaceContentRemaining",
                    "True",
                    "SomeResourcesRemain",
                    format!("Some resources are remaining: {}", content.join(", ")),
                )
            },
            if held.is_empty() {
                (
                    "NamespaceFinalizersRemaining",
                    "False",
                    "ContentHasNoFinalizers",
                    "All content-preserving finalizers finished".to_string(),
                )
            } else {
                (
                    "NamespaceFinalizersRemaining",
                    "True",
                    "SomeFinalizersRemain",
                    format!(
                        "Some content in the namespace has finalizers remaining: {}",
                        held.join(", ")
                    ),
                )
            },
        ];
        let before = namespace
            .status
            .as_ref()
            .and_then(|status| status.conditions.clone())
            .unwrap_or_default();
        let mut after = before.clone();
        for (kind, status, reason, message) in wanted {
            let old = after
                .iter()
                .position(|condition| condition.type_ == kind)
                .map(|position| after.remove(position));
            let since = old
                .filter(|old| old.status == status)
                .and_then(|old| old.last_transition_time);
            after.push(NamespaceCondition {
                type_: kind.to_string(),
                status: status.to_string(),
                reason: Some(reason.to_string()),
                message: Some(message),
                last_transition_time: since.or(Some(Time(context.now()))),
            });
        }
        if after != before && !remains.content.is_empty() {
            context
                .writer()
                .patch_status(namespace, json!({"status": {"conditions": after}}))
                .await?;
        }
        Ok(())
    }
}

/// Deletes everything in the namespace and counts what is left. Pods go first, and nothing else goes while one is
/// left: a pod that ends may still need its network policies and its secrets.
async fn empty(client: &kube::Client, namespace: &str) -> Result<Remains, Error> {
    let mut remains = Remains::default();
    let mut kinds = discovery::kinds(client).await?;
    kinds.retain(|served| served.kind.scope == Scope::Namespaced && served.can(&["list", "delete"]));
    let is_pod = |served: &Served| served.kind.group.is_empty() && served.kind.kind == "Pod";
    let (pods, others): (Vec<Served>, Vec<Served>) = kinds.into_iter().partition(is_pod);
    for part in [pods, others] {
        for served in part {
            clear(client, &served, namespace, &mut remains).await?;
        }
        if !remains.content.is_empty() {
            break;
        }
    }
    Ok(remains)
}

/// Deletes all objects of one kind and adds what is left of them.
async fn clear(client: &kube::Client, served: &Served, namespace: &str, remains: &mut Remains) -> Result<(), Error> {
    let path = served.kind.path(Some(namespace));
    let mut left = list(client, &path).await?;
    if left.is_empty() {
        return Ok(());
    }
    if served.can(&["deletecollection"]) {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
        send(client, Request::delete(&path), options).await?;
        left = list(client, &path).await?;
    }
    if !left.is_empty() {
        remains.content.insert(served.kind.resource(), left.len());
    }
    for object in &left {
        let finalizers = object["metadata"]["finalizers"].as_array().into_iter().flatten();
        for name in finalizers.filter_map(Value::as_str) {
            *remains.finalizers.entry(name.to_string()).or_default() += 1;
        }
    }
    Ok(())
}

async fn list(client: &kube::Client, path: &str) -> Result<Vec<Value>, Error> {
    let accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let answer = send(client, Request::get(path).header("Accept", accept), Value::Null).await?;
    Ok(answer["items"].as_array().cloned().unwrap_or_default())
}

async fn finalize(context: &Context, namespace: &Namespace) -> Result<(), Error> {
    let mut freed = namespace.clone();
    if let Some(finalizers) = freed.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|name| name != FINALIZER);
    }
    let kind = Kind::of::<Namespace>();
    let path = format!("{}/finalize", kind.path_of(&Key::of(namespace)));
    let mut body = json!(freed);
    body["apiVersion"] = json!("v1");
    body["kind"] = json!("Namespace");
    match send(&context.client(), Request::put(path), body).await {
        Err(error) if error.is_not_found() => Ok(()),
        other => other.map(drop),
    }
}

async fn send(client: &kube::Client, request: http::request::Builder, body: Value) -> Result<Value, Error> {
    let bytes = if body.is_null() {
        Vec::new()
    } else {
        body.to_string().into_bytes()
    };
    let request = request.header("Content-Type", "application/json").body(bytes);
    let request = request.map_err(|error| Error::api("namespace deletion", kube::Error::HttpError(error)))?;
    client
        .request(request)
        .await
        .map_err(|error| Error::api("namespace deletion", error))
}
