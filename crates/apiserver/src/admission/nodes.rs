//! Nodes: a new one takes no pods before it is ready, and each may only change itself and its own pods.

use super::pods::text;
use super::{Operation, Review};
use crate::auth::NODES;
use crate::error::{ApiError, Result};
use serde_json::json;

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

/// Refuses what a node does to others.
pub fn validate(review: &Review) -> Result<()> {
    let is_node_user = review.user.groups.iter().any(|group| group == NODES);
    let Some(node) = review.user.name.strip_prefix("system:node:").filter(|_| is_node_user) else {
        return Ok(());
    };
    let refuse = |why: String| {
        Err(ApiError::forbidden(
            &review.resource.group_resource(),
            &review.name,
            why,
        ))
    };
    match (review.resource.group.as_str(), review.resource.plural.as_str()) {
        ("", "nodes") if review.name != node => {
            refuse(format!("node {node:?} is not allowed to modify node {:?}", review.name))
        }
        ("", "pods") => {
            let pod = review.object.as_ref().or(review.old.as_deref());
            let bound = pod
                .map(|pod| text(&pod["spec"], "nodeName").to_string())
                .unwrap_or_default();
            match review.operation {
                Operation::Create if review.subresource.is_empty() => {
                    let mirror = review.object.as_ref().is_some_and(super::pods::is_mirror);
                    if !mirror {
                        return refuse(format!(
                            "pod does not have \"kubernetes.io/config.mirror\" annotation, node {node:?} can only create mirror pods"
                        ));
                    }
                    if bound != node {
                        return refuse(format!(
                            "node {node:?} can only create pods with spec.nodeName set to itself"
                        ));
                    }
                    Ok(())
                }
                Operation::Update if review.subresource == "status" && bound != node => refuse(format!(
                    "node {node:?} can only update pod status for pods with spec.nodeName set to itself"
                )),
                Operation::Delete if bound != node => refuse(format!(
                    "node {node:?} can only delete pods with spec.nodeName set to itself"
                )),
                _ => Ok(()),
            }
        }
        ("coordination.k8s.io", "leases") => {
            if review.namespace != "kube-node-lease" || review.name != node {
                return refuse("can only access node lease with the same name as the requesting node".to_string());
            }
            Ok(())
        }
        _ => Ok(()),
    }
}
