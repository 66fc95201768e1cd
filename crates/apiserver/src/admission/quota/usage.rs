//! What an object takes of a quota.

use super::super::pods::{self, amount, text};
use crate::catalogue::Resource;
use serde_json::Value;
use std::collections::BTreeMap;
use stead_machinery::quantity::Quantity;

/// Amounts by the names that quotas use.
pub type Usage = BTreeMap<String, Quantity>;

fn one() -> Quantity {
    Quantity::whole(1)
}

/// Everything that this object uses.
pub fn of(resource: &Resource, object: &Value) -> Usage {
    let mut usage = Usage::new();
    let counted = match resource.group.as_str() {
        "" => format!("count/{}", resource.plural),
        group => format!("count/{}.{group}", resource.plural),
    };
    if resource.group.is_empty() && resource.plural == "pods" {
        // The object counts as long as it is there, what it asks for only while it runs.
        usage.insert(counted, one());
        if !terminal(object) {
            pod(&object["spec"], &mut usage);
        }
        return usage;
    }
    usage.insert(counted, one());
    if !resource.group.is_empty() {
        return usage;
    }
    match resource.plural.as_str() {
        "services" => service(&object["spec"], &mut usage),
        "persistentvolumeclaims" => claim(object, &mut usage),
        plural @ ("configmaps" | "secrets" | "replicationcontrollers" | "resourcequotas") => {
            usage.insert(plural.to_string(), one());
        }
        _ => {}
    }
    usage
}

fn terminal(pod: &Value) -> bool {
    matches!(text(&pod["status"], "phase"), "Succeeded" | "Failed")
}

fn pod(spec: &Value, usage: &mut Usage) {
    usage.insert("pods".to_string(), one());
    for (field, plain) in [("requests", true), ("limits", false)] {
        let mut names: Vec<&String> = pods::all_containers(spec)
            .filter_map(|container| container["resources"][field].as_object())
            .flat_map(|map| map.keys())
            .collect();
        names.sort();
        names.dedup();
        for name in names {
            let Some(total) = pods::pod_total(spec, field, name) else {
                continue;
            };
            // Requests of the basic resources are also known by their plain names.
            if plain && matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage") {
                usage.insert(name.clone(), total.clone());
            }
            usage.insert(format!("{field}.{name}"), total);
        }
    }
}

fn service(spec: &Value, usage: &mut Usage) {
    usage.insert("services".to_string(), one());
    let ports = spec["ports"].as_array().map_or(0, Vec::len) as i64;
    match text(spec, "type") {
        "NodePort" => {
            usage.insert("services.nodeports".to_string(), Quantity::whole(ports));
        }
        "LoadBalancer" => {
            usage.insert("services.loadbalancers".to_string(), one());
            let allocated = match spec["allocateLoadBalancerNodePorts"].as_bool() {
                Some(false) => {
                    let ports = spec["ports"].as_array().into_iter().flatten();
                    ports
                        .filter(|port| port["nodePort"].as_i64().is_some_and(|port| port > 0))
                        .count() as i64
                }
                _ => ports,
            };
            usage.insert("services.nodeports".to_string(), Quantity::whole(allocated));
        }
        _ => {}
    }
}

fn claim(object: &Value, usage: &mut Usage) {
    let spec = &object["spec"];
    usage.insert("persistentvolumeclaims".to_string(), one());
    let class = text(spec, "storageClassName");
    let of_class = |name: &str| format!("{class}.storageclass.storage.k8s.io/{name}");
    if !class.is_empty() {
        usage.insert(of_class("persistentvolumeclaims"), one());
    }
    if let Some(storage) = amount(&spec["resources"]["requests"]["storage"]) {
        if !class.is_empty() {
            usage.insert(of_class("requests.storage"), storage.clone());
        }
        usage.insert("requests.storage".to_string(), storage);
    }
}

/// Whether the quota is about this object at all.
pub fn in_scope(quota: &Value, resource: &Resource, object: &Value) -> bool {
    let spec = &quota["spec"];
    let is_pod = resource.group.is_empty() && resource.plural == "pods";
    let scopes = spec["scopes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let plain = scopes.map(|scope| (scope, "Exists", Vec::new()));
    let expressions = spec["scopeSelector"]["matchExpressions"]
        .as_array()
        .into_iter()
        .flatten();
    let selected = expressions.map(|expression| {
        let values = expression["values"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        (text(expression, "scopeName"), text(expression, "operator"), values)
    });
    plain.chain(selected).all(|(scope, operator, values)| {
        // Scopes speak of pods (and one of claims); other objects are in none.
        is_pod && pod_in_scope(&object["spec"], scope, operator, &values)
    })
}

fn pod_in_scope(spec: &Value, scope: &str, operator: &str, values: &[&str]) -> bool {
    let terminating = spec["activeDeadlineSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds >= 0);
    match scope {
        "Terminating" => terminating,
        "NotTerminating" => !terminating,
        "BestEffort" => best_effort(spec),
        "NotBestEffort" => !best_effort(spec),
        "PriorityClass" => {
            let class = text(spec, "priorityClassName");
            match operator {
                "In" => values.contains(&class),
                "NotIn" => !values.contains(&class),
                "DoesNotExist" => class.is_empty(),
                _ => !class.is_empty(),
            }
        }
        "CrossNamespacePodAffinity" => crosses_namespaces(spec),
        _ => false,
    }
}

/// No container asks for processors or memory.
fn best_effort(spec: &Value) -> bool {
    let asks = |container: &Value| {
        ["requests", "limits"].iter().any(|field| {
            let map = container["resources"][*field].as_object();
            map.into_iter().flatten().any(|(name, value)| {
                matches!(name.as_str(), "cpu" | "memory") && amount(value).is_some_and(|amount| !amount.is_zero())
            })
        })
    };
    !pods::all_containers(spec).any(asks)
}

fn crosses_namespaces(spec: &Value) -> bool {
    let affinity = &spec["affinity"];
    ["podAffinity", "podAntiAffinity"].iter().any(|kind| {
        let required = affinity[*kind]["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
        let preferred = affinity[*kind]["preferredDuringSchedulingIgnoredDuringExecution"].as_array();
        let terms = required
            .into_iter()
            .flatten()
            .chain(preferred.into_iter().flatten().map(|term| &term["podAffinityTerm"]));
        terms.into_iter().any(|term| {
            term["namespaces"].as_array().is_some_and(|names| !names.is_empty())
                || term["namespaceSelector"].is_object()
        })
    })
}

/// What containers must say before a quota on processors or memory can count them, as Kubernetes lists it.
pub fn unspecified(quota: &Value, resource: &Resource, object: &Value) -> Option<String> {
    if !resource.group.is_empty() || resource.plural != "pods" {
        return None;
    }
    let hard = quota["status"]["hard"]
        .as_object()
        .or(quota["spec"]["hard"].as_object())?;
    let mut missing = Vec::new();
    for name in hard.keys() {
        let (field, plain) = match name.as_str() {
            "cpu" | "memory" | "ephemeral-storage" => ("requests", name.as_str()),
            other => match (other.strip_prefix("requests."), other.strip_prefix("limits.")) {
                (Some(plain @ ("cpu" | "memory" | "ephemeral-storage")), _) => ("requests", plain),
                (_, Some(plain @ ("cpu" | "memory" | "ephemeral-storage"))) => ("limits", plain),
                _ => continue,
            },
        };
        let containers: Vec<&str> = pods::all_containers(&object["spec"])
            .filter(|container| container["resources"][field].get(plain).is_none())
            .map(|container| text(container, "name"))
            .collect();
        if !containers.is_empty() {
            missing.push(format!("{name} for: {}", containers.join(",")));
        }
    }
    (!missing.is_empty()).then(|| missing.join("; "))
}
