//! Pods on the machine's own network, one loopback address each: what every user may have.

use super::addresses::Addresses;
use super::range::{LOOPBACK, Range};
use super::{Attached, Network};
use crate::node::process::spec::Processes;
use crate::node::process::users::Standing;
use crate::node::registration::Ground;
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
            addresses: Addresses::new(LOOPBACK, range),
        }
    }
}

#[async_trait]
impl Network for Loopback {
    fn ground(&self, _standing: Standing) -> Ground {
        Ground::Machine
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
