//! RuntimeClass: what a class says about its pods becomes part of them.

use super::Review;
use super::pods::{amount, is_pod, text};
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use serde_json::{Value, json};
use std::sync::Arc;

const CLASSES: &str = "node.k8s.io/runtimeclasses";
const MISMATCH: &str = "pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead";

/// Gives a pod the overhead of its class, and sends it where the class runs.
pub fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    let Some(class) = class_of(call, review)? else {
        return Ok(());
    };
    let name = review.name.clone();
    let refuse = |why: String| Err(ApiError::forbidden(&call.group_resource(), &name, why));
    let Some(spec) = review.object.as_mut().and_then(|pod| pod.get_mut("spec")) else {
        return Ok(());
    };
    let overhead = &class["overhead"]["podFixed"];
    if overhead.is_object() {
        if is_filled(&spec["overhead"]) && !same_amounts(&spec["overhead"], overhead) {
            return refuse(MISMATCH.to_string());
        }
        spec["overhead"] = overhead.clone();
    }
    for (key, value) in class["scheduling"]["nodeSelector"].as_object().into_iter().flatten() {
        match spec.get("nodeSelector").and_then(|selector| selector.get(key)) {
            Some(own) if own != value => {
                let (value, own) = (value.as_str().unwrap_or_default(), own.as_str().unwrap_or_default());
                return refuse(format!(
                    "conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}; pod.spec.nodeSelector[{key}] = {own}"
                ));
            }
            _ => spec["nodeSelector"][key] = value.clone(),
        }
    }
    for toleration in class["scheduling"]["tolerations"].as_array().into_iter().flatten() {
        let known = spec["tolerations"]
            .as_array()
            .is_some_and(|list| list.contains(toleration));
        match spec.get_mut("tolerations").and_then(Value::as_array_mut) {
            _ if known => {}
            Some(list) => list.push(toleration.clone()),
            None => spec["tolerations"] = json!([toleration]),
        }
    }
    Ok(())
}

/// A pod has the overhead of its class, and none without one.
pub fn validate(call: &Call, review: &Review) -> Result<()> {
    let class = class_of(call, review)?;
    let Some(pod) = review.object.as_ref().filter(|_| concerns(review)) else {
        return Ok(());
    };
    let overhead = &pod["spec"]["overhead"];
    let defined = class
        .as_ref()
        .map_or(&Value::Null, |class| &class["overhead"]["podFixed"]);
    let why = match (defined.is_object(), is_filled(overhead)) {
        (true, _) if !same_amounts(overhead, defined) => MISMATCH,
        (false, true) => "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead",
        _ => return Ok(()),
    };
    Err(ApiError::forbidden(&call.group_resource(), &review.name, why))
}

/// The class of the pod that is written; a class that is not there refuses it.
fn class_of(call: &Call, review: &Review) -> Result<Option<Arc<Value>>> {
    let Some(pod) = review.object.as_ref().filter(|_| concerns(review)) else {
        return Ok(None);
    };
    let name = text(&pod["spec"], "runtimeClassName");
    if name.is_empty() {
        return Ok(None);
    }
    match call.shared.admission.object(CLASSES, "", name) {
        Some(class) => Ok(Some(class)),
        None => {
            let why = format!("pod rejected: RuntimeClass {name:?} not found");
            Err(ApiError::forbidden(&call.group_resource(), &review.name, why))
        }
    }
}

/// Only a new pod is judged: a class that goes away must not keep its pods from being labelled or deleted.
fn concerns(review: &Review) -> bool {
    is_pod(review) && review.subresource.is_empty() && review.operation == super::Operation::Create
}

fn is_filled(amounts: &Value) -> bool {
    amounts.as_object().is_some_and(|map| !map.is_empty())
}

/// Whether two lists of amounts say the same, however they write it.
fn same_amounts(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_object(), b.as_object()) else {
        return false;
    };
    let same = |(name, value): (&String, &Value)| b.get(name).is_some_and(|other| amount(other) == amount(value));
    a.len() == b.len() && a.iter().all(same)
}
