//! Sandboxes that are made before a pod needs them.
//!
//! A network namespace with its interfaces takes longer to make than everything else that a small pod needs, and none of
//! it depends on the pod but its name. So a few are kept ready, made when nothing else is going on, and a pod that
//! starts only gives one its name. Until then they end with this process (see `held`), however it ends.

use super::bridge::Bridge;
use super::held::Held;
use futures::FutureExt;
use parking_lot::Mutex;
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many are kept: two small Deployments start at once, and idle clusters hold little.
const KEPT: usize = 6;
/// Pods that start need the processor more than those that may come.
const QUIET: Duration = Duration::from_millis(120);
/// A look in between, for nothing that should happen.
const IDLE: Duration = Duration::from_secs(3600);
/// The pause after one could not be made.
const RETRY: Duration = Duration::from_secs(10);

/// A sandbox that no pod has.
#[derive(Debug)]
pub struct Spare {
    pub held: Held,
    pub address: Ipv4Addr,
}

/// Those that are ready.
#[derive(Default)]
pub struct Spares {
    ready: Mutex<Vec<Spare>>,
    /// A pod has asked for one, whether there was any or not.
    asked: Notify,
}

impl Spares {
    /// One that lives, if there is one. `dead` hears the addresses of those that do not.
    pub fn take(&self, mut dead: impl FnMut(Ipv4Addr)) -> Option<Spare> {
        self.asked.notify_one();
        loop {
            let spare = self.ready.lock().pop()?;
            if spare.held.process.is_alive() {
                return Some(spare);
            }
            dead(spare.address);
        }
    }

    fn missing(&self) -> usize {
        KEPT.saturating_sub(self.ready.lock().len())
    }
}

impl Bridge {
    /// Makes spare sandboxes whenever there are too few and nothing else is going on, until `stop`; then it ends them,
    /// for with this agent nobody is left who would use them.
    pub(super) async fn keep_spares(&self, stop: CancellationToken) {
        while !stop.is_cancelled() {
            let pause = tokio::select! {
                () = stop.cancelled() => break,
                pause = self.fill() => pause,
            };
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.spares.asked.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        for Spare { held, address } in std::mem::take(&mut *self.spares.ready.lock()) {
            held.end();
            self.addresses.give_back(IpAddr::V4(address));
        }
    }

    /// Makes all that are missing once no pod has started for a moment; says how long nothing will be missing otherwise.
    async fn fill(&self) -> Duration {
        if self.spares.missing() == 0 {
            return IDLE;
        }
        if tokio::time::timeout(QUIET, self.spares.asked.notified()).await.is_ok() {
            return Duration::ZERO;
        }
        while self.spares.missing() > 0 {
            if let Err(error) = self.make_spare().await {
                tracing::debug!(%error, "a spare sandbox could not be made");
                return RETRY;
            }
            // A pod has come meanwhile: the rest waits until it is quiet again.
            if self.spares.asked.notified().now_or_never().is_some() {
                return Duration::ZERO;
            }
        }
        IDLE
    }

    async fn make_spare(&self) -> std::io::Result<()> {
        let address = self.addresses.take()?;
        match self.sandbox(None, address).await {
            Ok(held) => {
                self.spares.ready.lock().push(Spare { held, address });
                Ok(())
            }
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
        let put = |held, address| spares.ready.lock().push(Spare { held, address });
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
