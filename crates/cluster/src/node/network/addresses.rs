//! Addresses of pods: which are given, and which is next.

use super::range::Range;
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

/// Addresses that are given to pods.
pub struct Addresses {
    taken: Mutex<(u32, BTreeSet<u32>)>,
    pub range: Range,
    network: [u8; 2],
    first: u32,
    count: u32,
}

impl Addresses {
    /// The addresses of a range on a network, whose first two numbers these are.
    pub fn new(network: [u8; 2], range: Range) -> Addresses {
        let (first, count) = range.bounds();
        let [third, fourth] = first.to_be_bytes();
        Addresses {
            taken: Mutex::default(),
            range,
            network,
            first: Ipv4Addr::new(network[0], network[1], third, fourth).to_bits(),
            count: count.into(),
        }
    }

    /// Its range, as a Node object says it.
    pub fn written(&self) -> Option<String> {
        self.range.written(self.network)
    }

    /// Whether it may give this address.
    pub fn contains(&self, address: IpAddr) -> bool {
        self.offset(address).is_some()
    }

    /// An address that no pod has. They are given in turn, so that one is not used again at once.
    pub fn take(&self) -> io::Result<Ipv4Addr> {
        let mut guard = self.taken.lock();
        let (next, taken) = &mut *guard;
        for _ in 0..self.count {
            let offset = *next;
            *next = (*next + 1) % self.count;
            if taken.insert(offset) {
                return Ok(Ipv4Addr::from_bits(self.first + offset));
            }
        }
        Err(io::Error::other("every address for pods is taken"))
    }

    /// Marks an address of a pod that was found running.
    pub fn keep(&self, address: IpAddr) {
        if let Some(offset) = self.offset(address) {
            let mut guard = self.taken.lock();
            guard.1.insert(offset);
            guard.0 = guard.0.max((offset + 1) % self.count);
        }
    }

    pub fn give_back(&self, address: IpAddr) {
        if let Some(offset) = self.offset(address) {
            self.taken.lock().1.remove(&offset);
        }
    }

    fn offset(&self, address: IpAddr) -> Option<u32> {
        let IpAddr::V4(address) = address else { return None };
        address
            .to_bits()
            .checked_sub(self.first)
            .filter(|offset| *offset < self.count)
    }
}
