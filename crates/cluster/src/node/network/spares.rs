//! Sandboxes that are made before a pod needs them.
//!
//! A network namespace with its interfaces takes longer to make than everything else that a small pod needs, and none of
//! it depends on the pod but its name. So a few are kept ready (see `stock`), and a pod that starts only gives one its
//! name. Until then they end with this process (see `held`), however it ends.

use super::bridge::Bridge;
use super::held::Held;
use super::{Attached, Network};
use crate::node::stock::Stock;
use std::net::{IpAddr, Ipv4Addr};
use tokio_util::sync::CancellationToken;

/// A sandbox that no pod has.
#[derive(Debug)]
pub struct Spare {
    pub held: Held,
    pub address: Ipv4Addr,
}

/// Those that are ready.
#[derive(Default)]
pub struct Spares(Stock<Spare>);

impl Spares {
    /// One that lives, if there is one. `dead` hears the addresses of those that do not.
    pub fn take(&self, mut dead: impl FnMut(Ipv4Addr)) -> Option<Spare> {
        loop {
            let spare = self.0.take()?;
            if spare.held.process.is_alive() {
                return Some(spare);
            }
            dead(spare.address);
        }
    }
}

impl Bridge {
    /// Makes spare sandboxes whenever there are too few and nothing else is going on, until `stop`; then it ends them,
    /// for with this agent nobody is left who would use them.
    pub(super) async fn keep_spares(&self, stop: &CancellationToken) {
        self.spares.0.keep(|| self.make_spare(), stop).await;
        for Spare { held, address } in self.spares.0.clear() {
            self.detach(Attached {
                address: IpAddr::V4(address),
                holder: Some(held),
            });
        }
    }

    async fn make_spare(&self) -> std::io::Result<Spare> {
        let address = self.addresses.take()?;
        match self.sandbox(None, address).await {
            Ok(held) => Ok(Spare { held, address }),
            Err(error) => {
                self.addresses.give_back(IpAddr::V4(address));
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::held::tests::sleeper;
    use super::super::open;
    use super::super::range::Range;
    use super::*;
    use crate::node::process::spec::{Processes, SandboxRecord, store};

    #[test]
    fn one_that_died_is_not_given_away_but_its_address_is() {
        let [old, new] = [8, 9].map(|last| Ipv4Addr::new(198, 18, 0, last));
        let ((mut dead, first), (mut alive, second)) = (sleeper(), sleeper());
        let spares = Spares::default();
        let put = |held, address| spares.0.put(Spare { held, address });
        put(second, new);
        put(first, old);
        dead.kill().unwrap();
        dead.wait().unwrap();
        let mut given_back = Vec::new();
        let taken = spares.take(|address| given_back.push(address));
        assert_eq!((taken.unwrap().address, given_back), (new, vec![old]));
        assert!(spares.take(drop).is_none());
        alive.kill().unwrap();
        alive.wait().unwrap();
    }

    #[tokio::test]
    async fn addresses_of_pods_that_run_are_taken_before_the_agent_has_adopted_them() {
        let folder = tempfile::tempdir().unwrap();
        let pod = folder.path().join("pods/uid");
        std::fs::create_dir_all(&pod).unwrap();
        let held = IpAddr::V4(Ipv4Addr::new(127, 18, 0, 2));
        let record = SandboxRecord {
            uid: "uid".to_owned(),
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            addresses: vec![held],
            holder: None,
            detached: false,
            node: None,
        };
        store(&pod.join("sandbox.json"), &record).unwrap();
        // A program that is not there can hold no namespace, so that this is the machine's network for everybody.
        let network = open(&folder.path().join("none"), folder.path(), Range::Own).await;
        let attached = network.attach("new", Processes::Own).await.unwrap();
        assert_eq!(attached.address, IpAddr::V4(Ipv4Addr::new(127, 18, 0, 3)));
        assert_eq!(network.gateway(), None);
    }

    #[tokio::test]
    async fn an_address_that_was_given_back_is_not_taken_again_by_a_record_of_the_past() {
        let folder = tempfile::tempdir().unwrap();
        let pod = folder.path().join("pods/uid");
        std::fs::create_dir_all(&pod).unwrap();
        let path = pod.join("sandbox.json");
        let record = SandboxRecord {
            uid: "uid".to_owned(),
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            addresses: vec![IpAddr::V4(Ipv4Addr::new(127, 18, 0, 2))],
            holder: None,
            detached: false,
            node: None,
        };
        store(&path, &record).unwrap();
        let first = SandboxRecord::attached(&path).expect("it has its address");
        first.detach(&path, drop).unwrap();
        assert!(SandboxRecord::attached(&path).is_none(), "it has given it back, once");
        let network = open(&folder.path().join("none"), folder.path(), Range::Own).await;
        let attached = network.attach("new", Processes::Own).await.unwrap();
        assert_eq!(attached.address, record.addresses[0]);
    }
}
