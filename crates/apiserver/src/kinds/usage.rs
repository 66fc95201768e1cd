//! `metrics.k8s.io`: what nodes and pods use at this moment, for `kubectl top` and autoscaling.
//!
//! Nothing of it is stored. A request is answered from the pods that it covers and from what their nodes' kubelets
//! say when asked. Pods of nodes without a kubelet (hollow ones) use what their annotations say.

use super::connect::kubelet;
use crate::catalogue::{Catalogue, Origin, Resource, built_in};
use crate::error::{ApiError, Result};
use crate::server::forward::{self, Target, forward};
use crate::server::negotiate::Form;
use crate::server::{Body, body, respond};
use crate::store::{Key, ListAt, Prefix, Record, Window};
use crate::verbs::selection::Selection;
use crate::verbs::{Call, list};
use http::{HeaderMap, Method, Response};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use stead_machinery::quantity::Quantity;

pub const GROUP: &str = "metrics.k8s.io";
const VERSION: &str = "v1beta1";
/// How long a node may take to answer; one that is off must not keep the others' figures back.
const PATIENCE: Duration = Duration::from_secs(3);
/// The most that is read of an answer; that of a node with as many pods as there may be is a hundredth of it.
const LONGEST_SUMMARY: usize = 64 << 20;
/// The time over which kubelets average processor use.
const WINDOW: &str = "10s";
/// What a container of a hollow pod uses, as an annotation: `100m`, `64Mi`.
const SCRIPTED: [(&str, &str); 2] = [("hollow.stead.dev/cpu", "1m"), ("hollow.stead.dev/memory", "4Mi")];

/// Adds the group to what is served.
pub fn add_to(catalogue: &mut Catalogue) {
    for (plural, kind) in [("nodes", "NodeMetrics"), ("pods", "PodMetrics")] {
        // Metadata and selectors of a figure are those of what it is about.
        let Some(subject) = catalogue.get("", "v1", plural).cloned() else {
            continue;
        };
        catalogue.insert(Resource {
            group: GROUP.to_string(),
            version: VERSION.to_string(),
            plural: plural.to_string(),
            singular: String::new(),
            kind: kind.to_string(),
            list_kind: format!("{kind}List"),
            short_names: Vec::new(),
            categories: Vec::new(),
            namespaced: subject.namespaced,
            verbs: vec!["get".to_string(), "list".to_string()],
            subresources: Vec::new(),
            schemas: built_in::schemas().clone(),
            root: subject.root,
            origin: Origin::BuiltIn,
        });
    }
}

/// What one container uses.
#[derive(Clone, Debug, Default, PartialEq)]
struct Used {
    nano_cores: u64,
    bytes: u64,
}

impl Used {
    fn show(&self) -> Value {
        json!({"cpu": format!("{}n", self.nano_cores), "memory": format!("{}Ki", self.bytes / 1024)})
    }
}

/// Containers by name.
type Containers = BTreeMap<String, Used>;

/// Answers a request for figures.
pub async fn answer(call: &Call) -> Result<Response<Body>> {
    let subject = call.catalogue.get("", "v1", &call.resource.plural).cloned();
    let subject = subject.ok_or_else(ApiError::no_such_path)?;
    let selection = Selection::parse(&call.query)?.checked(&subject)?;
    let wanted = |record: &Record| {
        (call.path.name.is_empty() || record.key.name == call.path.name) && selection.matches(&subject, record)
    };
    let covered: Vec<Arc<Value>> = match call.resource.plural.as_str() {
        "nodes" => read(call, Prefix::resource("/nodes")).await?,
        _ => read(call, pods_prefix(&call.path.namespace)).await?,
    }
    .into_iter()
    .filter(|record| wanted(record))
    .map(|record| record.value())
    .collect();
    let items = match call.resource.plural.as_str() {
        "nodes" => nodes(call, &covered).await?,
        _ => pods(call, &covered).await?,
    };
    if call.verb == "get" {
        let found = items.into_iter().next().ok_or_else(|| call.not_found())?;
        return respond::object(200, &found, call.accepted);
    }
    let metadata = json!({"resourceVersion": call.shared.store.revision().0.to_string()});
    let list = match call.accepted.form {
        Form::Table => list::table(call, &items, &metadata),
        _ => json!({
            "kind": call.resource.list_kind, "apiVersion": call.resource.api_version(), "metadata": metadata,
            "items": items,
        }),
    };
    respond::object(200, &list, call.accepted)
}

fn pods_prefix(namespace: &str) -> Prefix {
    match namespace {
        "" => Prefix::resource("/pods"),
        namespace => Prefix::namespace("/pods", namespace),
    }
}

async fn read(call: &Call, prefix: Prefix) -> Result<Vec<Arc<Record>>> {
    let page = call.shared.store.list(&prefix, ListAt::Any, Window::default()).await;
    Ok(page.map_err(|error| call.store_error(error, ""))?.records)
}

fn runs(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running"
}

fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

async fn pods(call: &Call, pods: &[Arc<Value>]) -> Result<Vec<Value>> {
    let running: Vec<&Value> = pods.iter().map(Arc::as_ref).filter(|pod| runs(pod)).collect();
    let told = ask(call, running.iter().map(|pod| text(pod, "/spec/nodeName"))).await?;
    let shown = running.into_iter().filter_map(|pod| {
        let containers = used(pod, &told)?;
        let containers: Vec<Value> = containers
            .iter()
            .map(|(name, used)| json!({"name": name, "usage": used.show()}))
            .collect();
        let mut shown = figure(call, "PodMetrics", pod);
        shown["metadata"]["namespace"] = pod["metadata"]["namespace"].clone();
        shown["containers"] = containers.into();
        Some(shown)
    });
    Ok(shown.collect())
}

async fn nodes(call: &Call, nodes: &[Arc<Value>]) -> Result<Vec<Value>> {
    let told = ask(call, nodes.iter().map(|node| text(node, "/metadata/name"))).await?;
    let mut sums: BTreeMap<String, Used> = BTreeMap::new();
    for record in read(call, pods_prefix("")).await? {
        let pod = record.value();
        let node = text(&pod, "/spec/nodeName");
        if runs(&pod) && told.contains_key(node) {
            let sum = sums.entry(node.to_string()).or_default();
            for used in used(&pod, &told).iter().flat_map(Containers::values) {
                sum.nano_cores += used.nano_cores;
                sum.bytes += used.bytes;
            }
        }
    }
    let shown = nodes.iter().filter_map(|node| {
        // A node that did not answer has no figures, and its row says so.
        told.get(text(node, "/metadata/name"))?.as_ref()?;
        let mut shown = figure(call, "NodeMetrics", node);
        shown["usage"] = sums.remove(text(node, "/metadata/name")).unwrap_or_default().show();
        Some(shown)
    });
    Ok(shown.collect())
}

/// What every figure says of its subject.
fn figure(call: &Call, kind: &str, subject: &Value) -> Value {
    let now = call.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let mut metadata = json!({"name": subject["metadata"]["name"], "creationTimestamp": now});
    if let Some(labels) = subject.pointer("/metadata/labels") {
        metadata["labels"] = labels.clone();
    }
    json!({
        "kind": kind, "apiVersion": call.resource.api_version(), "metadata": metadata, "timestamp": now,
        "window": WINDOW,
    })
}

/// What nodes say.
enum Told {
    /// The node has no kubelet to ask.
    Scripted,
    /// Figures by the UIDs of pods.
    Measured(Arc<BTreeMap<String, Containers>>),
}

/// Asks the kubelets of nodes, all at once. Nodes that share one are asked once.
async fn ask(call: &Call, names: impl Iterator<Item = &str>) -> Result<BTreeMap<String, Option<Told>>> {
    let names: BTreeSet<&str> = names.filter(|name| !name.is_empty()).collect();
    let mut places: BTreeMap<(String, u16), Vec<&str>> = BTreeMap::new();
    let mut told = BTreeMap::new();
    for name in names {
        let key = Key::new("/nodes", "", name);
        let found = call.shared.store.get(&key).await;
        let Some(node) = found.map_err(|error| call.store_error(error, name))? else {
            continue;
        };
        match kubelet(&node.value()) {
            Some(place) => places.entry(place).or_default().push(name),
            None => {
                told.insert(name.to_string(), Some(Told::Scripted));
            }
        }
    }
    let answers = places.into_iter().map(|((host, port), nodes)| async move {
        let summary = tokio::time::timeout(PATIENCE, summary(call, host, port)).await;
        (nodes, summary.ok().flatten().map(Arc::new))
    });
    for (nodes, summary) in futures::future::join_all(answers).await {
        for node in nodes {
            told.insert(node.to_string(), summary.clone().map(Told::Measured));
        }
    }
    Ok(told)
}

async fn summary(call: &Call, host: String, port: u16) -> Option<BTreeMap<String, Containers>> {
    let target = Target {
        host,
        port,
        path: "/stats/summary".to_string(),
        tls: call.shared.kubelet.clone(),
        wires: call.shared.wires.clone(),
    };
    let answer = forward(target, Method::GET, &HeaderMap::new(), forward::empty(), None).await;
    let answer = answer.ok().filter(|answer| answer.status().is_success())?;
    let bytes = body::read(answer.into_body(), LONGEST_SUMMARY).await.ok()?;
    Some(parse(&serde_json::from_slice(&bytes).ok()?))
}

/// The parts of a kubelet's summary that matter here.
fn parse(summary: &Value) -> BTreeMap<String, Containers> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let pods = list(&summary["pods"]).into_iter().map(|pod| {
        let containers = list(&pod["containers"]).into_iter().map(|container| {
            let used = Used {
                nano_cores: container["cpu"]["usageNanoCores"].as_u64().unwrap_or(0),
                bytes: container["memory"]["workingSetBytes"].as_u64().unwrap_or(0),
            };
            (text(&container, "/name").to_string(), used)
        });
        (text(&pod, "/podRef/uid").to_string(), containers.collect())
    });
    pods.collect()
}

/// What a pod's containers use; nothing if its node does not say.
fn used(pod: &Value, told: &BTreeMap<String, Option<Told>>) -> Option<Containers> {
    match told.get(text(pod, "/spec/nodeName"))?.as_ref()? {
        Told::Measured(pods) => pods.get(text(pod, "/metadata/uid")).cloned(),
        Told::Scripted => Some(scripted(pod)),
    }
}

fn scripted(pod: &Value) -> Containers {
    let [cpu, memory] = SCRIPTED.map(|(annotation, default)| {
        let own = pod["metadata"]["annotations"][annotation].as_str().unwrap_or(default);
        own.parse().unwrap_or(Quantity::ZERO)
    });
    let used = Used {
        nano_cores: u64::try_from(cpu.milli_value()).unwrap_or(0).saturating_mul(1_000_000),
        bytes: u64::try_from(memory.value()).unwrap_or(0),
    };
    let containers = pod["spec"]["containers"].as_array().into_iter().flatten();
    containers
        .map(|container| (text(container, "/name").to_string(), used.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubelets_summary_is_read_by_pod_and_container() {
        let summary = json!({"pods": [{"podRef": {"uid": "u"}, "containers": [
            {"name": "web", "cpu": {"usageNanoCores": 1500}, "memory": {"workingSetBytes": 2048}}]}]});
        let web = Used {
            nano_cores: 1500,
            bytes: 2048,
        };
        assert_eq!(web.show(), json!({"cpu": "1500n", "memory": "2Ki"}));
        assert_eq!(parse(&summary)["u"]["web"], web);
        assert!(parse(&json!({"pods": "nonsense"})).is_empty());
    }

    #[test]
    fn a_hollow_pod_uses_what_its_annotations_say() {
        let pod = json!({"metadata": {"annotations": {"hollow.stead.dev/cpu": "250m"}},
            "spec": {"containers": [{"name": "web"}]}});
        let web = &scripted(&pod)["web"];
        assert_eq!(web.show(), json!({"cpu": "250000000n", "memory": "4096Ki"}));
    }
}
