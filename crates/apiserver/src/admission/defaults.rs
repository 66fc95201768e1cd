//! Small defaults that depend on other objects: tolerations of unready nodes, and the default ingress class.

use super::pods::{self, text};
use super::{Operation, Review};
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use serde_json::{Value, json};

/// How long pods stay on a node that is not ready or not reachable.
const TOLERATION_SECONDS: u32 = 300;

pub fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    let writes_pod = pods::is_pod(review)
        && review.subresource.is_empty()
        && matches!(review.operation, Operation::Create | Operation::Update);
    if writes_pod && let Some(pod) = review.object.as_mut() {
        tolerate(&mut pod["spec"]);
    }
    ingress_class(call, review)
}

fn tolerate(spec: &mut Value) {
    let tolerations = spec["tolerations"].as_array().cloned().unwrap_or_default();
    let tolerated = |key: &str| {
        tolerations.iter().any(|toleration| {
            let (known, effect) = (text(toleration, "key"), text(toleration, "effect"));
            (known == key || known.is_empty()) && matches!(effect, "NoExecute" | "")
        })
    };
    let missing: Vec<Value> = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]
        .into_iter()
        .filter(|key| !tolerated(key))
        .map(|key| {
            json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": TOLERATION_SECONDS})
        })
        .collect();
    if !missing.is_empty() {
        spec["tolerations"] = tolerations.into_iter().chain(missing).collect();
    }
}

fn ingress_class(call: &Call, review: &mut Review) -> Result<()> {
    let is_ingress = review.resource.group == "networking.k8s.io" && review.resource.plural == "ingresses";
    if !is_ingress || review.operation != Operation::Create {
        return Ok(());
    }
    let name = review.name.clone();
    let Some(ingress) = review.object.as_mut() else {
        return Ok(());
    };
    let chosen = ingress["spec"]
        .get("ingressClassName")
        .is_some_and(|class| !class.is_null())
        || ingress["metadata"]["annotations"]
            .get("kubernetes.io/ingress.class")
            .is_some();
    if chosen {
        return Ok(());
    }
    let classes = call.shared.admission.ingress_classes();
    let defaults: Vec<_> = classes
        .iter()
        .filter(|class| class["metadata"]["annotations"]["ingressclass.kubernetes.io/is-default-class"] == "true")
        .collect();
    match defaults.as_slice() {
        [] => Ok(()),
        [class] => {
            ingress["spec"]["ingressClassName"] = class["metadata"]["name"].clone();
            Ok(())
        }
        many => {
            let why = format!("{} default IngressClasses were found, only 1 allowed", many.len());
            Err(ApiError::forbidden(&call.group_resource(), &name, why))
        }
    }
}
