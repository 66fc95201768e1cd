//! Admission that belongs to the API itself and that every cluster has.
//!
//! A namespace that is missing or going takes no new objects; pods get their tolerations, claims their
//! protection, and new nodes the taint that keeps pods away until they are ready.

use super::{id, namespace};
use crate::admission::{Operation, Review};
use crate::error::Result;
use crate::verbs::{Call, object};
use serde_json::{Value, json};

/// Seconds that a pod stays on a node that is not ready or cannot be reached.
const TOLERATION_SECONDS: i64 = 300;

pub async fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    namespace::lifecycle(call, review).await?;
    if review.operation != Operation::Create || !review.subresource.is_empty() {
        return Ok(());
    }
    let Some(object) = &mut review.object else {
        return Ok(());
    };
    match id(&call.resource) {
        ("", "pods") => tolerate(object),
        ("", "persistentvolumeclaims") => protect(object, "kubernetes.io/pvc-protection"),
        ("", "persistentvolumes") => protect(object, "kubernetes.io/pv-protection"),
        ("", "nodes") => taint(object),
        _ => {}
    }
    Ok(())
}

pub async fn validate(_call: &Call, _review: &mut Review) -> Result<()> {
    Ok(())
}

fn tolerate(pod: &mut Value) {
    let spec = object::map_mut(pod, "spec");
    let slot = spec.entry("tolerations").or_insert_with(|| json!([]));
    let Value::Array(tolerations) = slot else { return };
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = tolerations.iter().any(|known| {
            (known["key"] == key || known["key"].as_str().unwrap_or_default().is_empty())
                && matches!(known["effect"].as_str(), None | Some("" | "NoExecute"))
        });
        if !tolerated {
            tolerations.push(json!({
                "key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS,
            }));
        }
    }
}

fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers = object::finalizers(object);
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.to_string());
        object::set_finalizers(object, &finalizers);
    }
}

fn taint(node: &mut Value) {
    const KEY: &str = "node.kubernetes.io/not-ready";
    let spec = object::map_mut(node, "spec");
    let slot = spec.entry("taints").or_insert_with(|| json!([]));
    let Value::Array(taints) = slot else { return };
    if !taints
        .iter()
        .any(|known| known["key"] == KEY && known["effect"] == "NoSchedule")
    {
        taints.push(json!({"key": KEY, "effect": "NoSchedule"}));
    }
}
