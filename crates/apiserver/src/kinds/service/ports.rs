//! Node ports.

use super::super::Allocation;
use super::{invalid, kind, needs_node_ports};
use crate::error::Result;
use crate::store::{Record, View};
use crate::verbs::Call;
use crate::verbs::object;
use crate::verbs::write_options::Commit;
use serde_json::Value;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use stead_machinery::field::FieldError;

/// The ports that services may have on every node.
const RANGE: RangeInclusive<i64> = 30000..=32767;

/// Before the first number of a dry run.
const BEYOND: i64 = 32768;

/// The node ports of each stored service.
pub fn view() -> View<Vec<i64>> {
    View::new(crate::store::Prefix::resource("/services"), |record: &Record| {
        let ports = used(&record.value());
        (!ports.is_empty()).then_some(ports)
    })
}

fn used(service: &Value) -> Vec<i64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(|port| port["nodePort"].as_i64())
        .chain(service["spec"]["healthCheckNodePort"].as_i64())
        .filter(|port| *port != 0)
        .collect()
}

/// Keeps the ports that a service has, by their names, and drops them when its type has none any more.
pub fn keep(service: &mut Value, old: &Value) {
    let has = |service: &Value| matches!(kind(service), "NodePort" | "LoadBalancer");
    if !has(old) {
        return;
    }
    let needs = has(service);
    let (sent, before): (BTreeSet<i64>, BTreeSet<i64>) =
        (used(service).into_iter().collect(), used(old).into_iter().collect());
    let known = old["spec"]["ports"].as_array().cloned().unwrap_or_default();
    let Some(Value::Array(ports)) = service.pointer_mut("/spec/ports") else {
        return;
    };
    let number = |port: &Value| port["nodePort"].as_i64().filter(|number| *number != 0);
    for port in ports {
        let named = known.iter().rev().find(|known| known["name"] == port["name"]);
        let given = number(port);
        let Value::Object(map) = port else { continue };
        match (needs, given, named.and_then(number)) {
            (true, None, Some(known)) if !sent.contains(&known) => {
                map.insert("nodePort".to_string(), known.into());
            }
            (false, Some(_), _) if sent == before => {
                map.remove("nodePort");
            }
            _ => {}
        }
    }
}

/// Gives a service the ports that it asks for, and free ones where it does not say.
///
/// A dry run takes nothing, and shows numbers that nobody can have.
pub async fn take(
    call: &Call,
    service: &mut Value,
    old: Option<&Value>,
    commit: Commit,
    allocation: &mut Allocation,
) -> Result<()> {
    let gives = needs_node_ports(service);
    if !gives && used(service).is_empty() {
        return Ok(());
    }
    // Held until the write is done: what is stored is the only record of what is taken.
    let network = &call.shared.network;
    allocation.hold(network.ports_lock.clone().lock_owned().await);
    let own: Vec<i64> = old.map(used).unwrap_or_default();
    let stored = network.ports.read(&call.shared.store);
    let mut taken: BTreeSet<i64> = stored
        .iter()
        .filter(|(key, _)| !(key.namespace == call.namespace() && key.name == object::name(service)))
        .flat_map(|(_, ports)| ports.iter().copied())
        .collect();
    let mut chosen: Vec<(i64, String)> = Vec::new();
    let count = service["spec"]["ports"].as_array().map_or(0, Vec::len);
    for index in 0..count {
        let port = &service["spec"]["ports"][index];
        let protocol = port["protocol"].as_str().unwrap_or("TCP").to_string();
        let wanted = port["nodePort"].as_i64().unwrap_or(0);
        let number = match wanted {
            0 if !gives => continue,
            0 => match next(call, &taken, &chosen, commit) {
                Some(number) => number,
                None => {
                    let why = "failed to allocate a nodePort: range is full";
                    let error = FieldError::invalid(format!("spec.ports[{index}].nodePort"), 0, why);
                    return Err(invalid(call, service, error));
                }
            },
            wanted => {
                let refuse = |why: &str| {
                    let field = format!("spec.ports[{index}].nodePort");
                    Err(invalid(call, service, FieldError::invalid(field, wanted, why)))
                };
                if commit == Commit::Store && !RANGE.contains(&wanted) {
                    return refuse("provided port is not in the valid range. The range of valid ports is 30000-32767");
                }
                let twice = chosen.contains(&(wanted, protocol.clone()));
                if (taken.contains(&wanted) && !own.contains(&wanted)) || twice {
                    return refuse("provided port is already allocated");
                }
                wanted
            }
        };
        taken.insert(number);
        chosen.push((number, protocol));
        service["spec"]["ports"][index]["nodePort"] = number.into();
    }
    if kind(service) == "LoadBalancer"
        && service["spec"]["externalTrafficPolicy"] == "Local"
        && service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0) == 0
        && let Some(number) = next(call, &taken, &chosen, commit)
    {
        service["spec"]["healthCheckNodePort"] = number.into();
    }
    Ok(())
}

/// The next port for a service that does not say which.
fn next(call: &Call, taken: &BTreeSet<i64>, chosen: &[(i64, String)], commit: Commit) -> Option<i64> {
    match commit {
        Commit::Store => free(call, taken, chosen),
        Commit::DryRun => Some(chosen.iter().map(|(port, _)| *port).max().unwrap_or(BEYOND) + 1),
    }
}

fn free(call: &Call, taken: &BTreeSet<i64>, chosen: &[(i64, String)]) -> Option<i64> {
    let size = RANGE.end() - RANGE.start() + 1;
    let mut bytes = [0; 2];
    call.shared.environment.entropy.fill(&mut bytes);
    let start = i64::from(u16::from_le_bytes(bytes)) % size;
    (0..size)
        .map(|step| RANGE.start() + (start + step) % size)
        .find(|port| !taken.contains(port) && !chosen.iter().any(|(known, _)| known == port))
}
