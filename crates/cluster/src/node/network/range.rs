//! Which addresses the pods of a process are given.
//!
//! A cluster's own nodes share one network; each node that joins has another, with a range of its own, so that no two
//! pods of a cluster have one address: whoever asks for one would reach the other.

use std::net::Ipv4Addr;

/// How many ranges there are for nodes that join.
pub const RANGES: u8 = 128;
/// Where those begin, in the last two numbers of an address.
const JOINED: u16 = 0x8000;

/// How the addresses of pods begin that have namespaces.
pub(super) const BRIDGED: [u8; 2] = [198, 18];
/// How those begin that share the machine's network.
pub(super) const LOOPBACK: [u8; 2] = [127, 18];

/// The last two numbers of the addresses of one network's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Range {
    /// That of a cluster's own nodes: the lower half, without the bridge's own address.
    Own,
    /// One of the upper half, by its number below [`RANGES`].
    Joined(u8),
}

impl Range {
    /// The number of the first address, and how many there are.
    pub(super) fn bounds(self) -> (u16, u16) {
        match self {
            Range::Own => (2, JOINED - 16),
            Range::Joined(number) => (Range::start(number) + 1, 254),
        }
    }

    fn start(number: u8) -> u16 {
        JOINED + u16::from(number % RANGES) * 256
    }

    /// As Kubernetes writes it, on a network whose addresses begin with two numbers. The cluster's own nodes share
    /// theirs, which `spec.podCIDR` cannot say.
    pub(super) fn written(self, network: [u8; 2]) -> Option<String> {
        let Range::Joined(number) = self else { return None };
        let [third, _] = Range::start(number).to_be_bytes();
        Some(format!("{}/24", Ipv4Addr::new(network[0], network[1], third, 0)))
    }

    /// The number of a joined node's range, as its object says it. Ranges of one number on different networks are taken
    /// for one: where a node gets its addresses from shows only when it runs.
    pub fn number(written: &str) -> Option<u8> {
        let address = written.strip_suffix("/24")?.parse::<Ipv4Addr>().ok()?;
        let [first, second, third, _] = address.octets();
        let number = third.checked_sub(JOINED.to_be_bytes()[0])?;
        let range = Range::Joined(number).written([first, second]);
        ([BRIDGED, LOOPBACK].contains(&[first, second]) && range.as_deref() == Some(written)).then_some(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_ranges_share_an_address() {
        let all = std::iter::once(Range::Own).chain((0..RANGES).map(Range::Joined));
        let mut end = 0_u32;
        for range in all {
            let (first, count) = range.bounds();
            assert!(u32::from(first) > end, "{range:?}");
            end = u32::from(first) + u32::from(count) - 1;
        }
        assert!(end < 0xffff);
    }

    #[test]
    fn a_range_is_written_as_kubernetes_has_it() {
        assert_eq!(Range::Joined(2).written([198, 18]).as_deref(), Some("198.18.130.0/24"));
        assert_eq!(Range::Own.written([198, 18]), None);
    }

    #[test]
    fn what_is_written_is_read_and_ranges_of_others_are_not_ours() {
        for number in 0..RANGES {
            for network in [BRIDGED, LOOPBACK] {
                let written = Range::Joined(number).written(network);
                assert_eq!(written.as_deref().and_then(Range::number), Some(number));
            }
        }
        for other in [
            "10.244.130.0/24",
            "198.18.127.0/24",
            "198.18.130.1/24",
            "198.18.128.0/17",
            "fd00::/64",
            "",
        ] {
            assert_eq!(Range::number(other), None, "{other}");
        }
    }
}
