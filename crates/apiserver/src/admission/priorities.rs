//! Priority: a class's name becomes a number.

use super::pods::{self, text};
use super::{Operation, Review};
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use serde_json::Value;

/// The two classes that every cluster has, even before their objects are there.
const SYSTEM_CLASSES: [(&str, i64); 2] = [
    ("system-cluster-critical", 2_000_000_000),
    ("system-node-critical", 2_000_001_000),
];

pub fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    if !pods::creates_pod(review) {
        return Ok(());
    }
    let name = review.name.clone();
    let Some(pod) = review.object.as_mut() else {
        return Ok(());
    };
    let views = &call.shared.admission;
    let spec = &mut pod["spec"];
    let wanted = text(spec, "priorityClassName").to_string();
    let (value, policy) = if wanted.is_empty() {
        match default_class(&views.priority_classes()) {
            Some(class) => {
                spec["priorityClassName"] = class["metadata"]["name"].clone();
                (class["value"].as_i64().unwrap_or(0), preemption(&class))
            }
            None => (0, "PreemptLowerPriority".to_string()),
        }
    } else {
        match (views.priority_class(&wanted), system_class(&wanted)) {
            (Some(class), _) => (class["value"].as_i64().unwrap_or(0), preemption(&class)),
            (None, Some(value)) => (value, "PreemptLowerPriority".to_string()),
            (None, None) => {
                let why = format!("no PriorityClass with name {wanted} was found");
                return Err(ApiError::forbidden(&call.group_resource(), &name, why));
            }
        }
    };
    if let Some(given) = spec["priority"].as_i64().filter(|given| *given != value) {
        let why = format!(
            "the integer value of priority ({given}) must not be provided in pod spec; priority admission controller \
             computed {value} from the given PriorityClass name"
        );
        return Err(ApiError::forbidden(&call.group_resource(), &name, why));
    }
    spec["priority"] = value.into();
    if let Some(given) = spec["preemptionPolicy"].as_str().filter(|given| *given != policy) {
        let why = format!(
            "the string value of PreemptionPolicy ({given}) must not be provided in pod spec; priority admission \
             controller computed {policy} from the given PriorityClass name"
        );
        return Err(ApiError::forbidden(&call.group_resource(), &name, why));
    }
    spec["preemptionPolicy"] = policy.into();
    Ok(())
}

fn preemption(class: &Value) -> String {
    match text(class, "preemptionPolicy") {
        "" => "PreemptLowerPriority".to_string(),
        policy => policy.to_string(),
    }
}

fn system_class(name: &str) -> Option<i64> {
    SYSTEM_CLASSES
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, value)| *value)
}

/// The global default; the lowest one if, by a race, there are several.
fn default_class(classes: &[std::sync::Arc<Value>]) -> Option<std::sync::Arc<Value>> {
    let defaults = classes.iter().filter(|class| class["globalDefault"] == true);
    defaults
        .min_by_key(|class| class["value"].as_i64().unwrap_or(0))
        .cloned()
}

/// There is one default class at most.
pub fn validate(call: &Call, review: &Review) -> Result<()> {
    let is_class = review.resource.group == "scheduling.k8s.io" && review.resource.plural == "priorityclasses";
    let writes = matches!(review.operation, Operation::Create | Operation::Update);
    let Some(class) = review
        .object
        .as_ref()
        .filter(|class| is_class && writes && class["globalDefault"] == true)
    else {
        return Ok(());
    };
    let other = call
        .shared
        .admission
        .priority_classes()
        .into_iter()
        .find(|other| other["globalDefault"] == true && other["metadata"]["name"] != class["metadata"]["name"]);
    match other {
        None => Ok(()),
        Some(other) => {
            let name = text(&other["metadata"], "name");
            let why = format!("PriorityClass {name} is already marked as default. Only one default can exist");
            Err(ApiError::forbidden(&call.group_resource(), &review.name, why))
        }
    }
}
