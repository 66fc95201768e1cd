//! Addresses of Services: each is held by an IPAddress object, from a range that a ServiceCIDR names.
//!
//! The API server takes an address before it stores the Service, and both are objects that anybody with the right may
//! change. A server that died between the two writes, or a hand that deleted an IPAddress, leaves what nobody would
//! notice until two Services have one address. These controllers notice: they compare both sides and mend them.

mod ranges;
mod repair;

use k8s_openapi::api::networking::v1::{IPAddress, ParentReference, ServiceCIDR};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use stead::Manager;

/// Who made an IPAddress for a Service.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";
/// Of which family the address is.
const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";

/// Adds the controllers of addresses and of their ranges.
pub fn add_to(manager: &Manager) {
    repair::add_to(manager);
    ranges::add_to(manager);
}

/// Whether the API server's allocator made an IPAddress; those of others are theirs.
fn is_allocated(address: &IPAddress) -> bool {
    label(address, MANAGED_BY) == Some(ALLOCATOR)
}

fn label<'a>(address: &'a IPAddress, name: &str) -> Option<&'a str> {
    address.metadata.labels.as_ref()?.get(name).map(String::as_str)
}

/// What an IPAddress belongs to.
fn parent(address: &IPAddress) -> &ParentReference {
    &address.spec.parent_ref
}

/// The family of an address, as labels and events call it.
fn family(address: IpAddr) -> &'static str {
    match address {
        IpAddr::V4(_) => "IPv4",
        IpAddr::V6(_) => "IPv6",
    }
}

/// A range of addresses: `10.96.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    base: IpAddr,
    bits: u32,
}

/// A text that is no range.
#[derive(Debug, PartialEq, Eq)]
struct NoRange;

impl FromStr for Range {
    type Err = NoRange;

    fn from_str(text: &str) -> Result<Range, NoRange> {
        let (base, bits) = text.split_once('/').ok_or(NoRange)?;
        let (base, bits): (IpAddr, u32) = (base.parse().map_err(|_| NoRange)?, bits.parse().map_err(|_| NoRange)?);
        let longest = if base.is_ipv4() { 32 } else { 128 };
        (bits <= longest).then_some(Range { base, bits }).ok_or(NoRange)
    }
}

impl Range {
    fn contains(self, address: IpAddr) -> bool {
        match (self.base, address) {
            (IpAddr::V4(base), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                Ipv4Addr::to_bits(base) & mask == Ipv4Addr::to_bits(address) & mask
            }
            (IpAddr::V6(base), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                Ipv6Addr::to_bits(base) & mask == Ipv6Addr::to_bits(address) & mask
            }
            _ => false,
        }
    }

    /// Whether all of another range is in this one.
    fn covers(self, other: Range) -> bool {
        self.bits <= other.bits && self.contains(other.base)
    }
}

/// The ranges that an object names.
fn ranges_of(range: &ServiceCIDR) -> impl Iterator<Item = Range> {
    let named = range.spec.iter().flat_map(|spec| spec.cidrs.iter().flatten());
    named.filter_map(|text| text.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_contains_its_addresses_and_covers_smaller_ones() {
        let range = |text: &str| text.parse::<Range>().unwrap();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        assert!(range("10.96.0.0/16").contains(address("10.96.255.1")));
        assert!(!range("10.96.0.0/16").contains(address("10.97.0.1")));
        assert!(!range("10.96.0.0/16").contains(address("fd00::1")));
        assert!(range("0.0.0.0/0").contains(address("1.2.3.4")));
        assert!(range("fd00::/108").contains(address("fd00::9")));
        assert!(range("10.96.0.0/16").covers(range("10.96.4.0/24")));
        assert!(!range("10.96.4.0/24").covers(range("10.96.0.0/16")));
        for nonsense in ["", "10.0.0.0", "10.0.0.0/33", "x/8", "fd00::/129", "1.2.3.4/-1"] {
            assert_eq!(nonsense.parse::<Range>(), Err(NoRange), "{nonsense:?}");
        }
    }
}
