//! Faults on a node, for demonstrations and tests: off, or cut from the API.
//!
//! They are asked for by an annotation on the Node object, so that any client with the right to write it can
//! (`stead node stop`), and a cluster that is started again comes back with the same node off.

use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use tokio_util::sync::CancellationToken;

/// The annotation that asks for a fault: `stopped` or `partitioned`.
pub const POWER_ANNOTATION: &str = "stead.dev/power";

/// Whether a node works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Power {
    /// It works.
    On,
    /// It runs its pods but cannot reach the API: no lease, no status, no news.
    Partitioned,
    /// The machine is off: its pods do not run.
    Off,
}

impl Power {
    /// What the Node object asks for.
    pub fn asked_of(node: &Node) -> Power {
        let annotations = node.metadata.annotations.as_ref();
        match annotations
            .and_then(|annotations| annotations.get(POWER_ANNOTATION))
            .map(String::as_str)
        {
            Some("stopped") => Power::Off,
            Some("partitioned") => Power::Partitioned,
            _ => Power::On,
        }
    }

    /// The annotation's value that asks for this, or none for a node that works.
    pub fn annotation(self) -> Option<&'static str> {
        match self {
            Power::On => None,
            Power::Partitioned => Some("partitioned"),
            Power::Off => Some("stopped"),
        }
    }
}

/// The lines to the nodes of a process, by which the API server reaches them. One that is cancelled is cut, with
/// everything on it.
#[derive(Default)]
pub struct Lines(Mutex<HashMap<String, CancellationToken>>);

impl Lines {
    /// Cuts the line to a node that is off or cut from the API, or lays a new one.
    pub fn set(&self, node: &str, power: Power) {
        let mut lines = self.0.lock();
        let line = lines.entry(node.to_owned()).or_default();
        match power {
            Power::On if line.is_cancelled() => *line = CancellationToken::new(),
            Power::On => {}
            Power::Partitioned | Power::Off => line.cancel(),
        }
    }

    /// The line to an address. Nodes that share one cannot be told apart: it is cut when all of them are.
    pub fn at(&self, hosts: &[(String, IpAddr)], address: Option<IpAddr>) -> CancellationToken {
        let mut lines = self.0.lock();
        let there = hosts.iter().filter(|(_, host)| Some(*host) == address);
        let mut there = there.map(|(node, _)| lines.entry(node.clone()).or_default().clone());
        let first = there.next().unwrap_or_default();
        if !first.is_cancelled() {
            return first;
        }
        there.find(|line| !line.is_cancelled()).unwrap_or(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_cut_with_what_is_on_it_and_laid_anew() {
        let address = |last| IpAddr::from([127, 0, 0, last]);
        let hosts = [("a".to_owned(), address(1)), ("b".to_owned(), address(2))];
        let lines = Lines::default();
        let (open, other) = (lines.at(&hosts, Some(address(1))), lines.at(&hosts, Some(address(2))));
        lines.set("a", Power::Partitioned);
        assert!(open.is_cancelled() && lines.at(&hosts, Some(address(1))).is_cancelled());
        assert!(!other.is_cancelled());
        lines.set("a", Power::On);
        assert!(open.is_cancelled() && !lines.at(&hosts, Some(address(1))).is_cancelled());
    }

    #[test]
    fn nodes_at_one_address_are_cut_together() {
        let address = IpAddr::from([10, 0, 0, 7]);
        let hosts = [("a".to_owned(), address), ("b".to_owned(), address)];
        let lines = Lines::default();
        lines.set("a", Power::Off);
        assert!(!lines.at(&hosts, Some(address)).is_cancelled());
        lines.set("b", Power::Off);
        assert!(lines.at(&hosts, Some(address)).is_cancelled());
    }
}
