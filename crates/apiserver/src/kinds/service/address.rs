//! Cluster IPs.

use super::super::Allocation;
use super::invalid;
use crate::error::Result;
use crate::server::Shared;
use crate::store::{Key, ListAt, Prefix, Record, StoreError, View, Window, Write};
use crate::verbs::write_options::Commit;
use crate::verbs::{Call, encode, object};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::str::FromStr;
use stead_machinery::field::FieldError;

pub const ADDRESSES: &str = "networking.k8s.io/ipaddresses";
const RANGES: &str = "networking.k8s.io/servicecidrs";

/// The range that services get their addresses from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cidr {
    base: u32,
    bits: u8,
}

/// Why a text is no range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no IPv4 range such as 10.96.0.0/16")]
pub struct CidrError(String);

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let wrong = || CidrError(text.to_string());
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
        let bits: u8 = bits.parse().map_err(|_| wrong())?;
        if !(8..=30).contains(&bits) {
            return Err(wrong());
        }
        let base = address.to_bits() & (u32::MAX << (32 - bits));
        Ok(Cidr { base, bits })
    }
}

impl std::fmt::Display for Cidr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", Ipv4Addr::from_bits(self.base), self.bits)
    }
}

impl Default for Cidr {
    fn default() -> Self {
        Cidr {
            base: Ipv4Addr::new(10, 96, 0, 0).to_bits(),
            bits: 16,
        }
    }
}

impl Cidr {
    /// How many addresses can be given: neither the first nor the last of the range.
    fn usable(self) -> u32 {
        (1u32 << (32 - self.bits)) - 2
    }

    /// An address by its number, counted from 1; the one before them is nobody's.
    pub fn nth(self, number: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.base + number)
    }

    /// All addresses in the order in which they are tried, from a place that chance names. The lower part is left to
    /// those who name their address, as long as there is other room.
    fn in_order(self, chance: u32) -> impl Iterator<Item = Ipv4Addr> {
        let usable = self.usable();
        let reserved = (usable / 16).clamp(16.min(usable), 256.min(usable));
        let upper = usable - reserved;
        let start = chance.checked_rem(upper).unwrap_or(0);
        let upper_numbers = (0..upper).map(move |step| reserved + 1 + (start + step) % upper);
        upper_numbers.chain(1..=reserved).map(move |number| self.nth(number))
    }

    fn contains(self, address: Ipv4Addr) -> bool {
        let number = address.to_bits().wrapping_sub(self.base);
        (1..=self.usable()).contains(&number)
    }
}

/// The ranges that ServiceCIDRs name, of those that are ready and stay.
pub fn ranges_view() -> View<Vec<Cidr>> {
    View::new(Prefix::resource(RANGES), |record: &Record| {
        let value = record.value();
        let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions
            .into_iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        if !ready || value["metadata"]["deletionTimestamp"].is_string() {
            return None;
        }
        let named = object::strings(&value["spec"]["cidrs"]);
        Some(named.iter().filter_map(|text| text.parse().ok()).collect())
    })
}

/// Where addresses are given from: the server's own range first, then those that were added.
fn ranges(call: &Call) -> Vec<Cidr> {
    let network = &call.shared.network;
    let mut ranges = vec![network.services];
    for named in network.ranges.read(&call.shared.store).values() {
        ranges.extend(named.iter().filter(|range| **range != network.services));
    }
    ranges
}

/// Gives a service the address that it asks for, or a free one.
pub async fn take(call: &Call, service: &mut Value, commit: Commit, allocation: &mut Allocation) -> Result<()> {
    let ranges = ranges(call);
    let wanted = service["spec"]["clusterIPs"][0]
        .as_str()
        .unwrap_or_default()
        .to_string();
    let refuse = |service: &Value, why: String| {
        let field = FieldError::invalid("spec.clusterIPs", service["spec"]["clusterIPs"].clone(), why);
        Err(invalid(call, service, field))
    };
    if !wanted.is_empty() {
        let Ok(address) = wanted.parse::<Ipv4Addr>() else {
            return refuse(
                service,
                format!("failed to allocate IP {wanted}: not a valid IP address"),
            );
        };
        if !ranges.iter().any(|range| range.contains(address)) {
            let why = format!("failed to allocate IP {wanted}: the provided network does not match the current range");
            return refuse(service, why);
        }
        return match reserve(call, service, address, commit, allocation).await? {
            true => Ok(()),
            false => refuse(
                service,
                format!("failed to allocate IP {wanted}: provided IP is already allocated"),
            ),
        };
    }
    if let (Commit::DryRun, Some(range)) = (commit, ranges.first()) {
        // A dry run takes nothing, and shows an address that nobody can have.
        show(service, range.nth(0));
        return Ok(());
    }
    let mut bytes = [0; 4];
    call.shared.environment.entropy.fill(&mut bytes);
    let chance = u32::from_le_bytes(bytes);
    for address in ranges.into_iter().flat_map(|range| range.in_order(chance)) {
        if call.shared.store.get_cached(&key(address)).is_some() {
            continue;
        }
        if reserve(call, service, address, commit, allocation).await? {
            return Ok(());
        }
    }
    refuse(service, "failed to allocate a serviceIP: range is full".to_string())
}

fn key(address: Ipv4Addr) -> Key {
    Key::new(ADDRESSES, "", address.to_string())
}

/// Takes one address; tells whether it was free.
async fn reserve(
    call: &Call,
    service: &mut Value,
    address: Ipv4Addr,
    commit: Commit,
    allocation: &mut Allocation,
) -> Result<bool> {
    let key = key(address);
    if commit == Commit::DryRun {
        if call.shared.store.get_cached(&key).is_some() {
            return Ok(false);
        }
    } else {
        let object = reservation(&call.shared, service, address);
        let draft = encode::draft(&object);
        match call
            .shared
            .store
            .write(Write::Create {
                key: key.clone(),
                draft,
            })
            .await
        {
            Ok(_) => allocation.taken(address.to_string()),
            Err(StoreError::Exists { .. }) => return Ok(false),
            Err(error) => return Err(call.store_error(error, &key.name)),
        }
    }
    show(service, address);
    Ok(true)
}

fn show(service: &mut Value, address: Ipv4Addr) {
    let spec = object::map_mut(service, "spec");
    spec.insert("clusterIP".to_string(), address.to_string().into());
    spec.insert("clusterIPs".to_string(), json!([address.to_string()]));
}

/// The object that marks an address as taken by a service.
pub fn reservation(shared: &Shared, service: &Value, address: Ipv4Addr) -> Value {
    json!({
        "kind": "IPAddress", "apiVersion": "networking.k8s.io/v1",
        "metadata": {
            "name": address.to_string(), "uid": shared.environment.uid(),
            "creationTimestamp": object::time(shared.environment.clock.now()),
            "labels": {
                "ipaddress.kubernetes.io/ip-family": "IPv4",
                "ipaddress.kubernetes.io/managed-by": "ipallocator.k8s.io",
            },
        },
        "spec": {"parentRef": {
            "resource": "services", "namespace": object::namespace(service), "name": object::name(service),
        }},
    })
}

/// Frees an address. A failure leaves it taken until the server starts again, which is harmless.
pub async fn give_back(shared: &Shared, address: &str) {
    let key = Key::new(ADDRESSES, "", address);
    let Ok(Some(record)) = shared.store.get(&key).await else {
        return;
    };
    let draft = encode::draft(&record.value());
    let expect = record.revision;
    if let Err(error) = shared.store.write(Write::Delete { key, draft, expect }).await {
        tracing::warn!(address, %error, "an address of a deleted service stays taken");
    }
}

/// Frees addresses whose service was never stored: the server ended between the two writes.
pub async fn repair(shared: &Shared) -> Result<(), StoreError> {
    let page = shared
        .store
        .list(&Prefix::resource(ADDRESSES), ListAt::Latest, Window::default())
        .await?;
    for record in page.records {
        let value = record.value();
        let parent = &value["spec"]["parentRef"];
        let text = |field: &str| parent[field].as_str().unwrap_or_default();
        let service = Key::new("/services", text("namespace"), text("name"));
        let used =
            shared.store.get(&service).await?.is_some_and(|service| {
                object::strings(&service.value()["spec"]["clusterIPs"]).contains(&record.key.name)
            });
        if text("resource") == "services" && !used {
            give_back(shared, &record.key.name).await;
        }
    }
    Ok(())
}
