//! LimitRange: defaults and bounds for what pods and claims ask for.

use super::pods::{self, amount, text};
use super::{Operation, Review};
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use crate::verbs::object;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use stead_machinery::quantity::Quantity;

const ANNOTATION: &str = "kubernetes.io/limit-ranger";

/// Gives containers the requests and limits that they do not set.
pub fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    if !pods::creates_pod(review) {
        return Ok(());
    }
    for range in call.shared.admission.limit_ranges(&review.namespace) {
        let Some(pod) = review.object.as_mut() else {
            return Ok(());
        };
        apply_defaults(&range, pod);
    }
    Ok(())
}

fn apply_defaults(range: &Value, pod: &mut Value) {
    let mut done = Vec::new();
    for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
        if limit["type"] != "Container" {
            continue;
        }
        let requests = with_fallback(&limit["defaultRequest"], &[&limit["default"], &limit["min"]]);
        let limits = with_fallback(&limit["default"], &[&limit["max"]]);
        for (list, what) in [("containers", "container"), ("initContainers", "init container")] {
            for container in pods::containers_mut(&mut pod["spec"], list) {
                let name = text(container, "name").to_string();
                let set_limits = fill(container, "limits", &limits, &[]);
                let set_requests = fill(container, "requests", &requests, &set_limits);
                if !set_requests.is_empty() {
                    done.push(format!("{} request for {what} {name}", set_requests.join(", ")));
                }
                if !set_limits.is_empty() {
                    done.push(format!("{} limit for {what} {name}", set_limits.join(", ")));
                }
            }
        }
    }
    if !done.is_empty() {
        let annotations = object::metadata_mut(pod)
            .entry("annotations")
            .or_insert_with(|| json!({}));
        if annotations.is_object() {
            annotations[ANNOTATION] = format!("LimitRanger plugin set: {}", done.join("; ")).into();
        }
    }
}

/// Defaults, and what stands in for those that a range does not name. Kubernetes fills these in when a range is
/// written; a range may have been written without.
fn with_fallback(defaults: &Value, others: &[&Value]) -> Vec<(String, Value)> {
    let mut found: BTreeMap<&String, &Value> = BTreeMap::new();
    for map in std::iter::once(defaults).chain(others.iter().copied()) {
        for (resource, value) in map.as_object().into_iter().flatten() {
            found.entry(resource).or_insert(value);
        }
    }
    found
        .into_iter()
        .map(|(resource, value)| (resource.clone(), value.clone()))
        .collect()
}

/// Sets what is missing and tells its names.
fn fill(container: &mut Value, field: &str, defaults: &[(String, Value)], skip: &[String]) -> Vec<String> {
    let mut set = Vec::new();
    if !container["resources"].is_object() {
        container["resources"] = json!({});
    }
    for (resource, value) in defaults {
        // A request that the client left to its own limit is that limit.
        if field == "requests" && !skip.contains(resource) {
            let limit = container["resources"]["limits"].get(resource).cloned();
            if let (Some(limit), true) = (limit, container["resources"]["requests"].get(resource).is_none()) {
                container["resources"]["requests"][resource.as_str()] = limit;
                continue;
            }
        }
        if container["resources"][field].get(resource).is_none() {
            if !container["resources"][field].is_object() {
                container["resources"][field] = json!({});
            }
            container["resources"][field][resource.as_str()] = value.clone();
            set.push(resource.clone());
        }
    }
    set
}

/// Refuses what is outside the bounds.
pub fn validate(call: &Call, review: &Review) -> Result<()> {
    let is_claim = review.resource.group.is_empty() && review.resource.plural == "persistentvolumeclaims";
    let checked = pods::creates_pod(review)
        || (is_claim
            && matches!(review.operation, Operation::Create | Operation::Update)
            && review.subresource.is_empty());
    let Some(object) = review.object.as_ref().filter(|_| checked) else {
        return Ok(());
    };
    let mut complaints = Vec::new();
    for range in call.shared.admission.limit_ranges(&review.namespace) {
        for limit in range["spec"]["limits"].as_array().into_iter().flatten() {
            match text(limit, "type") {
                "Container" if !is_claim => {
                    for container in pods::all_containers(&object["spec"]) {
                        let resources = &container["resources"];
                        let of = |field: &str, name: &str| amount(&resources[field][name]);
                        check(limit, "Container", &of, &mut complaints);
                    }
                }
                "Pod" if !is_claim => {
                    let of = |field: &str, name: &str| pods::pod_total(&object["spec"], field, name);
                    check(limit, "Pod", &of, &mut complaints);
                }
                "PersistentVolumeClaim" if is_claim => {
                    let of = |field: &str, name: &str| match field {
                        "requests" => amount(&object["spec"]["resources"]["requests"][name]),
                        _ => None,
                    };
                    check_requests(limit, "PersistentVolumeClaim", &of, &mut complaints);
                }
                _ => {}
            }
        }
    }
    let why = match complaints.as_slice() {
        [] => return Ok(()),
        [only] => only.clone(),
        many => format!("[{}]", many.join(", ")),
    };
    Err(ApiError::forbidden(
        &review.resource.group_resource(),
        &review.name,
        why,
    ))
}

type Amounts<'a> = &'a dyn Fn(&str, &str) -> Option<Quantity>;

fn bounds(limit: &Value, field: &str) -> Vec<(String, Quantity)> {
    let map = limit[field].as_object().into_iter().flatten();
    map.filter_map(|(name, value)| Some((name.clone(), amount(value)?)))
        .collect()
}

fn check(limit: &Value, kind: &str, of: Amounts<'_>, complaints: &mut Vec<String>) {
    for (name, bound) in bounds(limit, "min") {
        match (of("requests", &name), of("limits", &name)) {
            (None, _) => complaints.push(format!(
                "minimum {name} usage per {kind} is {bound}.  No request is specified"
            )),
            (Some(request), _) if request < bound => complaints.push(format!(
                "minimum {name} usage per {kind} is {bound}, but request is {request}"
            )),
            (Some(_), Some(limit)) if limit < bound => complaints.push(format!(
                "minimum {name} usage per {kind} is {bound}, but limit is {limit}"
            )),
            _ => {}
        }
    }
    for (name, bound) in bounds(limit, "max") {
        match (of("limits", &name), of("requests", &name)) {
            (None, _) => complaints.push(format!(
                "maximum {name} usage per {kind} is {bound}.  No limit is specified"
            )),
            (Some(limit), _) if limit > bound => complaints.push(format!(
                "maximum {name} usage per {kind} is {bound}, but limit is {limit}"
            )),
            (Some(_), Some(request)) if request > bound => complaints.push(format!(
                "maximum {name} usage per {kind} is {bound}, but request is {request}"
            )),
            _ => {}
        }
    }
    for (name, bound) in bounds(limit, "maxLimitRequestRatio") {
        match (of("requests", &name), of("limits", &name)) {
            (Some(request), Some(limit)) if !request.is_zero() => {
                let ratio = limit.as_f64() / request.as_f64();
                if ratio > bound.as_f64() {
                    complaints.push(format!(
                        "{name} max limit to request ratio per {kind} is {bound}, but provided ratio is {ratio:.6}"
                    ));
                }
            }
            (None, _) => complaints.push(format!(
                "{name} max limit to request ratio per {kind} is {bound}, but no request is specified or request is 0"
            )),
            (_, None) => complaints.push(format!(
                "{name} max limit to request ratio per {kind} is {bound}, but no limit is specified or limit is 0"
            )),
            _ => {}
        }
    }
}

/// Claims have requests alone.
fn check_requests(limit: &Value, kind: &str, of: Amounts<'_>, complaints: &mut Vec<String>) {
    for (name, bound) in bounds(limit, "min") {
        match of("requests", &name) {
            None => complaints.push(format!(
                "minimum {name} usage per {kind} is {bound}.  No request is specified"
            )),
            Some(request) if request < bound => complaints.push(format!(
                "minimum {name} usage per {kind} is {bound}, but request is {request}"
            )),
            Some(_) => {}
        }
    }
    for (name, bound) in bounds(limit, "max") {
        match of("requests", &name) {
            Some(request) if request > bound => complaints.push(format!(
                "maximum {name} usage per {kind} is {bound}, but request is {request}"
            )),
            _ => {}
        }
    }
}
