//! Parts of pods that several plugins look at.

use super::{Operation, Review};
use serde_json::Value;
use stead_machinery::quantity::Quantity;

/// Whether this write makes a pod.
pub fn creates_pod(review: &Review) -> bool {
    is_pod(review) && review.operation == Operation::Create && review.subresource.is_empty()
}

pub fn is_pod(review: &Review) -> bool {
    review.resource.group.is_empty() && review.resource.plural == "pods"
}

/// A static pod as its node shows it; nothing may be added to it.
pub fn is_mirror(pod: &Value) -> bool {
    pod["metadata"]["annotations"]
        .get("kubernetes.io/config.mirror")
        .is_some()
}

/// The containers of one list of a pod spec.
pub fn containers<'a>(spec: &'a Value, list: &str) -> impl Iterator<Item = &'a Value> {
    spec[list].as_array().into_iter().flatten()
}

/// The same, to change them. Indexing would leave a null behind where there is no such list.
pub fn containers_mut<'a>(spec: &'a mut Value, list: &str) -> impl Iterator<Item = &'a mut Value> {
    let list = spec.get_mut(list).and_then(Value::as_array_mut);
    list.into_iter().flatten()
}

/// The containers of a pod that run side by side, and those that run before them.
pub fn all_containers(spec: &Value) -> impl Iterator<Item = &Value> {
    containers(spec, "initContainers").chain(containers(spec, "containers"))
}

pub fn text<'a>(value: &'a Value, field: &str) -> &'a str {
    value[field].as_str().unwrap_or_default()
}

/// An amount, whether it is written as a string or as a number.
pub fn amount(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => text.parse().ok(),
        Value::Number(number) => number.to_string().parse().ok(),
        _ => None,
    }
}

/// What a pod needs at most at one time: its containers together, or its neediest init container. Init containers that
/// go on running count as containers.
pub fn pod_total(spec: &Value, field: &str, resource: &str) -> Option<Quantity> {
    let of = |container: &Value| amount(&container["resources"][field][resource]);
    let mut running: Option<Quantity> = None;
    let add = |total: Option<Quantity>, more: Quantity| {
        Some(match total {
            Some(total) => total + &more,
            None => more,
        })
    };
    let mut peak: Option<Quantity> = None;
    for container in containers(spec, "initContainers") {
        let Some(wanted) = of(container) else {
            continue;
        };
        if container["restartPolicy"] == "Always" {
            running = add(running, wanted);
            peak = peak.max(running.clone());
        } else {
            peak = peak.max(add(running.clone(), wanted));
        }
    }
    for container in containers(spec, "containers") {
        if let Some(wanted) = of(container) {
            running = add(running, wanted);
        }
    }
    let total = running.max(peak)?;
    Some(match amount(&spec["overhead"][resource]) {
        Some(overhead) => total + &overhead,
        None => total,
    })
}
