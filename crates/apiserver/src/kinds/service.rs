//! Services: the addresses and ports that the API server gives them.
//!
//! An address is taken by creating the IPAddress object of its name, so two servers on one store cannot give
//! it twice. Node ports are guarded by a lock of this process and by what the stored services say.

mod address;
mod ports;

pub use address::{Cidr, CidrError, give_back, ranges_view as address_ranges, repair, reservation};
pub use ports::view as node_ports;

use super::Allocation;
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use crate::verbs::object;
use crate::verbs::write_options::Commit;
use serde_json::{Value, json};
use stead_machinery::field::FieldError;

/// What a service needs from the API server.
fn kind(service: &Value) -> &str {
    service["spec"]["type"].as_str().unwrap_or("ClusterIP")
}

fn is_headless(service: &Value) -> bool {
    service["spec"]["clusterIP"] == "None" || service["spec"]["clusterIPs"][0] == "None"
}

fn has_selector(service: &Value) -> bool {
    service["spec"]["selector"]
        .as_object()
        .is_some_and(|selector| !selector.is_empty())
}

fn needs_node_ports(service: &Value) -> bool {
    match kind(service) {
        "NodePort" => true,
        "LoadBalancer" => service["spec"]["allocateLoadBalancerNodePorts"] != false,
        _ => false,
    }
}

/// An address that is named in the older field alone is judged as in both; one in the newer alone is refused.
pub fn prepare_create(service: &mut Value) {
    if service["spec"]["clusterIPs"][0].is_null() {
        match_addresses(service);
    }
}

pub async fn begin_create(call: &Call, service: &mut Value, commit: Commit) -> Result<Allocation> {
    families(service);
    let mut allocation = Allocation::default();
    let outcome = async {
        if kind(service) != "ExternalName" && !is_headless(service) {
            address::take(call, service, commit, &mut allocation).await?;
        }
        ports::take(call, service, None, commit, &mut allocation).await
    };
    match outcome.await {
        Ok(()) => Ok(allocation),
        Err(error) => {
            allocation.release(call).await;
            Err(error)
        }
    }
}

pub async fn begin_update(call: &Call, service: &mut Value, old: &Value, commit: Commit) -> Result<Allocation> {
    let mut allocation = Allocation::default();
    if !call.path.subresource.is_empty() {
        return Ok(allocation);
    }
    let had = kind(old) != "ExternalName" && !is_headless(old);
    let needs = kind(service) != "ExternalName" && !is_headless(service);
    let outcome = async {
        families(service);
        if needs && !had {
            address::take(call, service, commit, &mut allocation).await?;
        }
        ports::take(call, service, Some(old), commit, &mut allocation).await
    };
    match outcome.await {
        Ok(()) => {
            if had && !needs {
                allocation.give_back_later(addresses(old));
            }
            Ok(allocation)
        }
        Err(error) => {
            allocation.release(call).await;
            Err(error)
        }
    }
}

/// An update that leaves out what was given keeps it, as long as its type still has it.
pub fn prepare_update(service: &mut Value, old: &Value) {
    follow_address(service, old);
    match_addresses(service);
    let (new_kind, old_kind) = (kind(service).to_string(), kind(old).to_string());
    if new_kind == "ExternalName" {
        if old_kind != "ExternalName" {
            let spec = object::map_mut(service, "spec");
            // What the update sets anew is for validation to refuse.
            for fields in [&["clusterIP", "clusterIPs"][..], &["ipFamilies"], &["ipFamilyPolicy"]] {
                if fields.iter().all(|field| spec.get(*field) == old["spec"].get(*field)) {
                    spec.retain(|name, _| !fields.contains(&name.as_str()));
                }
            }
            if spec.get("internalTrafficPolicy") == old["spec"].get("internalTrafficPolicy") {
                spec.remove("internalTrafficPolicy");
            }
        }
    } else if old_kind != "ExternalName" {
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            if service["spec"].get(field).is_none() {
                let kept = old["spec"].get(field).cloned();
                if let Some(kept) = kept {
                    object::map_mut(service, "spec").insert(field.to_string(), kept);
                }
            }
        }
    }
    narrow_families(service, old);
    ports::keep(service, old);
    drop_of_type(service, old);
}

/// Who asks for one family and leaves the list of families as it is wants the first of them.
fn narrow_families(service: &mut Value, old: &Value) {
    if service["spec"]["ipFamilyPolicy"] == "SingleStack"
        && service["spec"]["ipFamilies"] == old["spec"]["ipFamilies"]
        && let Some(Value::Array(families)) = service.pointer_mut("/spec/ipFamilies")
    {
        families.truncate(1);
    }
}

/// Whether traffic from outside the cluster can reach a service.
fn is_reached_from_outside(service: &Value) -> bool {
    let outside = service["spec"]["externalIPs"]
        .as_array()
        .is_some_and(|ips| !ips.is_empty());
    match kind(service) {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => outside,
        _ => false,
    }
}

/// Whether a load balancer asks each node for the health of the pods that it has.
fn is_checked_on_nodes(service: &Value) -> bool {
    kind(service) == "LoadBalancer" && service["spec"]["externalTrafficPolicy"] == "Local"
}

/// What a service loses with its type or policy, unless the update sets it anew: then validation refuses it.
fn drop_of_type(service: &mut Value, old: &Value) {
    let same = |field: &str| service["spec"].get(field) == old["spec"].get(field);
    let lost = |has: fn(&Value) -> bool| has(old) && !has(service);
    let balanced: fn(&Value) -> bool = |service| kind(service) == "LoadBalancer";
    let mut dropped = Vec::new();
    for (field, lost) in [
        ("externalTrafficPolicy", lost(is_reached_from_outside)),
        ("healthCheckNodePort", lost(is_checked_on_nodes)),
        ("allocateLoadBalancerNodePorts", lost(balanced)),
        ("loadBalancerClass", lost(balanced)),
    ] {
        if lost && same(field) {
            dropped.push(field);
        }
    }
    let balanced = balanced(service);
    let spec = object::map_mut(service, "spec");
    for field in dropped {
        spec.remove(field);
    }
    if !balanced && let Some(status) = service.pointer_mut("/status/loadBalancer") {
        *status = json!({});
    }
}

/// Who changes the address in the older field alone means both, and is judged by that.
fn follow_address(service: &mut Value, old: &Value) {
    let wanted = service["spec"]["clusterIP"].clone();
    let named = wanted.as_str().is_some_and(|address| !address.is_empty());
    let spec = object::map_mut(service, "spec");
    let same = spec.get("clusterIPs") == old["spec"].get("clusterIPs");
    if named
        && same
        && wanted != old["spec"]["clusterIP"]
        && let Some(first) = spec.get_mut("clusterIPs").and_then(|all| all.get_mut(0))
    {
        *first = wanted;
    }
}

/// An address that is named once is named in both fields.
fn match_addresses(service: &mut Value) {
    let single = service["spec"]["clusterIP"].as_str().unwrap_or_default().to_string();
    let first = service["spec"]["clusterIPs"][0]
        .as_str()
        .unwrap_or_default()
        .to_string();
    let spec = object::map_mut(service, "spec");
    match (single.is_empty(), first.is_empty()) {
        (false, true) => {
            spec.insert("clusterIPs".to_string(), json!([single]));
        }
        (true, false) => {
            spec.insert("clusterIP".to_string(), first.into());
        }
        _ => {}
    }
}

/// The address families of a cluster that has one.
fn families(service: &mut Value) {
    if kind(service) == "ExternalName" {
        return;
    }
    let unselected = is_headless(service) && !has_selector(service);
    let policy = match unselected {
        true => "RequireDualStack",
        false => "SingleStack",
    };
    let spec = object::map_mut(service, "spec");
    let policy = spec.entry("ipFamilyPolicy").or_insert_with(|| policy.into()).clone();
    let families = spec.entry("ipFamilies").or_insert_with(|| json!(["IPv4"]));
    if unselected
        && policy != "SingleStack"
        && let Value::Array(families) = families
        && families.len() == 1
    {
        let other = match families[0] == "IPv4" {
            true => "IPv6",
            false => "IPv4",
        };
        families.push(other.into());
    }
}

fn addresses(service: &Value) -> Vec<String> {
    let mut all = object::strings(&service["spec"]["clusterIPs"]);
    all.retain(|address| address != "None" && !address.is_empty());
    all
}

/// Gives back what a deleted service had.
pub async fn deleted(call: &Call, service: &Value) {
    for address in addresses(service) {
        address::give_back(&call.shared, &address).await;
    }
}

fn invalid(call: &Call, service: &Value, error: FieldError) -> ApiError {
    ApiError::invalid("", &call.resource.kind, object::name(service), &[error])
}
