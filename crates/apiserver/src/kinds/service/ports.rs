//! Node ports.

use super::super::Allocation;
use super::{invalid, is_checked_on_nodes, kind, needs_node_ports};
use crate::error::{ApiError, Result};
use crate::store::{Record, View};
use crate::verbs::Call;
use crate::verbs::write_options::Commit;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use stead_machinery::field::FieldError;

/// The ports that services may have on every node.
const RANGE: RangeInclusive<i64> = 30000..=32767;

/// Before the first number of a dry run.
const BEYOND: i64 = 32768;

const FULL: &str = "range is full";

/// The node ports of each stored service.
pub fn view() -> View<Vec<i64>> {
    View::new(crate::store::Prefix::resource("/services"), |record: &Record| {
        let ports = used(&record.value());
        (!ports.is_empty()).then_some(ports)
    })
}

fn used(service: &Value) -> Vec<i64> {
    node_ports(service)
        .chain(service["spec"]["healthCheckNodePort"].as_i64())
        .filter(|port| *port != 0)
        .collect()
}

fn node_ports(service: &Value) -> impl Iterator<Item = i64> {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    ports.map(node_port).filter(|port| *port != 0)
}

fn node_port(port: &Value) -> i64 {
    port["nodePort"].as_i64().unwrap_or(0)
}

fn health_port(service: &Value) -> i64 {
    service["spec"]["healthCheckNodePort"].as_i64().unwrap_or(0)
}

/// Keeps the ports that a service has, by their names, and drops them when its type has none any more.
pub fn keep(service: &mut Value, old: &Value) {
    if is_checked_on_nodes(service) && is_checked_on_nodes(old) && health_port(service) == 0 && health_port(old) != 0 {
        service["spec"]["healthCheckNodePort"] = health_port(old).into();
    }
    let has = |service: &Value| matches!(kind(service), "NodePort" | "LoadBalancer");
    let gives = needs_node_ports(service) && needs_node_ports(old);
    let loses = has(old) && !has(service);
    let sent: BTreeSet<i64> = node_ports(service).collect();
    let before: BTreeSet<i64> = node_ports(old).collect();
    let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_string();
    let known = old["spec"]["ports"].as_array().into_iter().flatten();
    let known: BTreeMap<String, i64> = known.map(|port| (name(port), node_port(port))).collect();
    let Some(Value::Array(ports)) = service.pointer_mut("/spec/ports") else {
        return;
    };
    for port in ports.iter_mut().filter(|port| port.is_object()) {
        let known = known.get(&name(port)).copied().unwrap_or(0);
        if gives && node_port(port) == 0 && known != 0 && !sent.contains(&known) {
            port["nodePort"] = known.into();
        } else if loses
            && sent.is_subset(&before)
            && let Value::Object(port) = port
        {
            port.remove("nodePort");
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
    if !needs_node_ports(service) && !is_checked_on_nodes(service) && used(service).is_empty() {
        return Ok(());
    }
    // Held until the write is done: what is stored is the only record of what is taken.
    let network = &call.shared.network;
    allocation.hold(network.ports_lock.clone().lock_owned().await);
    let stored = network.ports.read(&call.shared.store);
    let mut pool = Pool {
        call,
        commit,
        taken: stored.values().flat_map(|ports| ports.iter().copied()).collect(),
        chosen: BTreeSet::new(),
    };
    if matches!(kind(service), "NodePort" | "LoadBalancer") {
        let numbers = match old {
            None => pool.begin(service),
            Some(old) => pool.go_on(service, old),
        };
        let numbers = numbers.map_err(|refusal| match refusal {
            Refusal::Full => ApiError::internal(format!("failed to allocate a nodePort: {FULL}")),
            Refusal::Port { index, number, why } => {
                let field = format!("spec.ports[{index}].nodePort");
                invalid(call, service, FieldError::invalid(field, number, why))
            }
        })?;
        for (index, number) in numbers {
            service["spec"]["ports"][index]["nodePort"] = number.into();
        }
    }
    if is_checked_on_nodes(service) && !old.is_some_and(is_checked_on_nodes) {
        let number = match health_port(service) {
            0 => pool.next().ok_or_else(|| {
                let why = format!("failed to allocate a HealthCheck NodePort 0: {FULL}");
                ApiError::internal(why)
            })?,
            wanted => {
                let refused = |why| format!("failed to allocate requested HealthCheck NodePort {wanted}: {why}");
                pool.claim(wanted).map_err(|why| ApiError::internal(refused(why)))?
            }
        };
        service["spec"]["healthCheckNodePort"] = number.into();
    }
    Ok(())
}

/// Why a service gets no ports.
enum Refusal {
    Full,
    Port {
        index: usize,
        number: i64,
        why: &'static str,
    },
}

/// The ports that are left for one write.
struct Pool<'a> {
    call: &'a Call,
    commit: Commit,
    /// What stored services have, the one that is written among them.
    taken: BTreeSet<i64>,
    /// What this write has been given.
    chosen: BTreeSet<i64>,
}

impl Pool<'_> {
    /// The numbers for a new service. One port that is served by several protocols has one number for all of them.
    fn begin(&mut self, service: &Value) -> Result<Vec<(usize, i64)>, Refusal> {
        let ports = service["spec"]["ports"].as_array().map_or(&[][..], Vec::as_slice);
        let mut asked: BTreeMap<i64, i64> = BTreeMap::new();
        for port in ports.iter().filter(|port| node_port(port) != 0) {
            asked.entry(number(port)).or_insert_with(|| node_port(port));
        }
        let mut given: BTreeMap<i64, i64> = BTreeMap::new();
        let mut numbers = Vec::new();
        for (index, port) in ports.iter().enumerate() {
            let wanted = node_port(port);
            if wanted == 0 && !needs_node_ports(service) {
                continue;
            }
            let given_before = given.get(&number(port)).copied();
            let own = match given_before {
                Some(known) if wanted == 0 || wanted == known => known,
                Some(_) => self.claim_at(index, wanted)?,
                None => match asked.get(&number(port)) {
                    Some(asked) => self.claim_at(index, *asked)?,
                    None => self.next().ok_or(Refusal::Full)?,
                },
            };
            given.entry(number(port)).or_insert(own);
            numbers.push((index, own));
        }
        Ok(numbers)
    }

    /// The numbers for a service that is there: those it has are its own, and one may serve several protocols.
    fn go_on(&mut self, service: &Value, old: &Value) -> Result<Vec<(usize, i64)>, Refusal> {
        let own: BTreeSet<i64> = node_ports(old).collect();
        let ports = service["spec"]["ports"].as_array().into_iter().flatten();
        let mut numbers = Vec::new();
        for (index, port) in ports.enumerate() {
            let number = match node_port(port) {
                0 if !needs_node_ports(service) => continue,
                0 => self.next().ok_or(Refusal::Full)?,
                wanted if own.contains(&wanted) || self.chosen.contains(&wanted) => wanted,
                wanted => self.claim_at(index, wanted)?,
            };
            numbers.push((index, number));
        }
        Ok(numbers)
    }

    fn claim_at(&mut self, index: usize, number: i64) -> Result<i64, Refusal> {
        self.claim(number).map_err(|why| Refusal::Port { index, number, why })
    }

    fn claim(&mut self, wanted: i64) -> Result<i64, &'static str> {
        if self.commit == Commit::Store && !RANGE.contains(&wanted) {
            return Err("provided port is not in the valid range. The range of valid ports is 30000-32767");
        }
        if self.taken.contains(&wanted) || !self.chosen.insert(wanted) {
            return Err("provided port is already allocated");
        }
        Ok(wanted)
    }

    /// The next port for a service that does not say which.
    fn next(&mut self) -> Option<i64> {
        let number = match self.commit {
            Commit::Store => self.free()?,
            Commit::DryRun => self.chosen.last().copied().unwrap_or(BEYOND) + 1,
        };
        self.chosen.insert(number);
        Some(number)
    }

    fn free(&self) -> Option<i64> {
        let size = RANGE.end() - RANGE.start() + 1;
        let mut bytes = [0; 2];
        self.call.shared.environment.entropy.fill(&mut bytes);
        let start = i64::from(u16::from_le_bytes(bytes)) % size;
        (0..size)
            .map(|step| RANGE.start() + (start + step) % size)
            .find(|port| !self.taken.contains(port) && !self.chosen.contains(port))
    }
}

fn number(port: &Value) -> i64 {
    port["port"].as_i64().unwrap_or(0)
}
