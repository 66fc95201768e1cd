//! Nodes: a new one takes no pods before it is ready, and each may only change itself and its own pods.

use super::pods::text;
use super::{Operation, Review};
use crate::auth::nodes::node_of;
use crate::error::{ApiError, Result};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Taints a new node until its conditions say that it is ready.
pub fn mutate(review: &mut Review) {
    let is_node = review.resource.group.is_empty() && review.resource.plural == "nodes";
    if !is_node || review.operation != Operation::Create || !review.subresource.is_empty() {
        return;
    }
    let Some(node) = review.object.as_mut() else {
        return;
    };
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let tainted = taints
        .iter()
        .any(|taint| taint["key"] == NOT_READY && taint["effect"] == "NoSchedule");
    if !tainted {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
        if !node["spec"].is_object() {
            node["spec"] = json!({});
        }
        node["spec"]["taints"] = taints.into();
    }
}

/// Labels of Kubernetes' own that a node may set on itself; any other would let it draw pods to itself that are not
/// meant for it.
const OWN_LABELS: [&str; 11] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
];
/// Groups of labels that a node may set on itself.
const OWN_LABEL_GROUPS: [&str; 2] = ["kubelet.kubernetes.io", "node.kubernetes.io"];
/// A group of labels that no node may set, whoever it is.
const RESTRICTED: &str = "node-restriction.kubernetes.io";

/// Refuses what a node does to others, and what it must not do to itself.
pub fn validate(review: &Review) -> Result<()> {
    let Some(node) = node_of(&review.user) else {
        return Ok(());
    };
    let verdict = match (review.resource.group.as_str(), review.resource.plural.as_str()) {
        ("", "pods") => pod(node, review),
        ("", "nodes") => itself(node, review),
        ("", "persistentvolumeclaims") if review.subresource != "status" => {
            Err("may only update PVC status".to_string())
        }
        ("coordination.k8s.io", "leases") if review.namespace != "kube-node-lease" || review.name != node => {
            Err("can only access node lease with the same name as the requesting node".to_string())
        }
        ("resource.k8s.io", "resourceslices")
            if review.operation == Operation::Create
                && review
                    .object
                    .as_ref()
                    .is_some_and(|slice| text(&slice["spec"], "nodeName") != node) =>
        {
            Err("can only create ResourceSlice with the same NodeName as the requesting node".to_string())
        }
        ("storage.k8s.io", "csinodes") if review.name != node => {
            Err("can only access CSINode with the same name as the requesting node".to_string())
        }
        _ => Ok(()),
    };
    verdict.map_err(|why| ApiError::forbidden(&review.resource.group_resource(), &review.name, why))
}

fn pod(node: &str, review: &Review) -> Result<(), String> {
    let bound = |pod: Option<&Value>| pod.is_some_and(|pod| text(&pod["spec"], "nodeName") == node);
    let (new, old) = (review.object.as_ref(), review.old.as_deref());
    match (review.operation, review.subresource.as_str()) {
        (Operation::Create, "") => {
            if !new.is_some_and(super::pods::is_mirror) {
                return Err(format!(
                    "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
                ));
            }
            if !bound(new) {
                return Err(format!(
                    "node {node:?} can only create pods with spec.nodeName set to itself"
                ));
            }
            Ok(())
        }
        (Operation::Delete, _) if !bound(old.or(new)) => Err(format!(
            "node {node:?} can only delete pods with spec.nodeName set to itself"
        )),
        (Operation::Update, "status") => {
            if !bound(old) {
                return Err(format!(
                    "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                ));
            }
            let claims = |pod: Option<&Value>, field: &str| {
                let status = pod.map(|pod| pod["status"][field].clone()).unwrap_or_default();
                Some(status).filter(|status| *status != json!([]))
            };
            let differ = |field: &str| claims(new, field).unwrap_or_default() != claims(old, field).unwrap_or_default();
            if labels(new) != labels(old) {
                return Err(format!("node {node:?} cannot update labels through pod status"));
            }
            // A node may read the claims that its pods name, so it must not name them itself.
            if differ("resourceClaimStatuses") {
                return Err(format!("node {node:?} cannot update resource claim statues"));
            }
            match differ("extendedResourceClaimStatus") {
                true => Err(format!("node {node:?} cannot update extended resource claim status")),
                false => Ok(()),
            }
        }
        (Operation::Update, "") => Err(format!(
            "unexpected operation \"UPDATE\", node {node:?} can only create and delete mirror pods"
        )),
        _ => Ok(()),
    }
}

/// What a node may do to its own Node.
fn itself(node: &str, review: &Review) -> Result<(), String> {
    if review.name != node {
        return Err(format!("node {node:?} is not allowed to modify node {:?}", review.name));
    }
    let (new, old) = (review.object.as_ref(), review.old.as_deref());
    let forbidden: Vec<String> = changed(labels(new), labels(old))
        .filter(|label| !may_set(label))
        .collect();
    match review.operation {
        Operation::Create if !forbidden.is_empty() => Err(format!(
            "node {node:?} is not allowed to set the following labels: {}",
            forbidden.join(", ")
        )),
        Operation::Update => {
            let differ = |section: &str, field: &str| {
                let read = |object: Option<&Value>| object.map(|object| object[section][field].clone());
                let list = |value: Option<Value>| value.filter(|value| *value != json!([])).unwrap_or_default();
                list(read(new)) != list(read(old))
            };
            if differ("spec", "taints") {
                return Err(format!("node {node:?} is not allowed to modify taints"));
            }
            if differ("metadata", "ownerReferences") {
                return Err(format!("node {node:?} is not allowed to modify ownerReferences"));
            }
            match forbidden.is_empty() {
                true => Ok(()),
                false => Err(format!("is not allowed to modify labels: {}", forbidden.join(", "))),
            }
        }
        _ => Ok(()),
    }
}

fn labels(object: Option<&Value>) -> Option<&Map<String, Value>> {
    let labels = object?["metadata"]["labels"].as_object()?;
    (!labels.is_empty()).then_some(labels)
}

/// The labels that are not the same in both, in order.
fn changed(new: Option<&Map<String, Value>>, old: Option<&Map<String, Value>>) -> impl Iterator<Item = String> + use<> {
    let value = |labels: Option<&Map<String, Value>>, key: &String| labels.and_then(|labels| labels.get(key).cloned());
    let keys: BTreeSet<String> = new.into_iter().chain(old).flat_map(Map::keys).cloned().collect();
    let differing: Vec<String> = keys
        .into_iter()
        .filter(|key| value(new, key) != value(old, key))
        .collect();
    differing.into_iter()
}

fn may_set(label: &str) -> bool {
    let group = label.split_once('/').map_or("", |(group, _)| group);
    let within = |wanted: &str| group == wanted || group.strip_suffix(wanted).is_some_and(|rest| rest.ends_with('.'));
    let kubernetes = within("kubernetes.io") || within("k8s.io");
    let allowed = OWN_LABELS.contains(&label) || OWN_LABEL_GROUPS.into_iter().any(within);
    !within(RESTRICTED) && (!kubernetes || allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_sets_only_labels_that_steer_nothing() {
        let check = |label: &str, expected: bool| assert_eq!(may_set(label), expected, "{label}");
        check("team", true);
        check("example.com/rack", true);
        check("kubernetes.io/hostname", true);
        check("topology.kubernetes.io/zone", true);
        check("node.kubernetes.io/anything", true);
        check("node-role.kubernetes.io/control-plane", false);
        check("kubernetes.io/anything", false);
        check("x.node-restriction.kubernetes.io/secure", false);
    }
}
