//! Pods on the machine's own network, one loopback address each: what every user may have.

use super::addresses::Addresses;
use super::range::Range;
use super::{Attached, Network};
use crate::node::process::spec::Processes;
use async_trait::async_trait;
use std::io;
use std::net::IpAddr;

/// The machine's loopback network.
pub struct Loopback {
    addresses: Addresses,
}

impl Loopback {
    pub fn new(range: Range) -> Loopback {
        Loopback {
            addresses: Addresses::new([127, 18], range),
        }
    }
}

#[async_trait]
impl Network for Loopback {
    fn describe(&self) -> &'static str {
        "Pods share the machine's network, one loopback address each: two pods cannot both listen on all addresses of \
         one port, cluster addresses of Services are not reachable, and volumes are not mounted."
    }

    fn pod_range(&self) -> Option<String> {
        self.addresses.written()
    }

    async fn attach(&self, _hostname: &str, _processes: Processes) -> io::Result<Attached> {
        Ok(Attached {
            address: IpAddr::V4(self.addresses.take()?),
            holder: None,
        })
    }

    async fn attach_to_machine(&self, address: IpAddr, _processes: Processes) -> io::Result<Attached> {
        Ok(Attached { address, holder: None })
    }

    fn adopt(&self, address: IpAddr) {
        self.addresses.keep(address);
    }

    fn give_back(&self, address: IpAddr) {
        self.addresses.give_back(address);
    }
}
