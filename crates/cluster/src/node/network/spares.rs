//! Sandboxes that are made before a pod needs them.
//!
//! A network namespace with its interfaces takes longer to make than everything else that a small pod needs, and none of
//! it depends on the pod but its name. So a few are kept ready, made when nothing else is going on, and a pod that
//! starts only gives one its name. They are written down like everything that runs: after a kill -9 they are found.

use super::Network;
use super::bridge::Bridge;
use crate::node::process::spec::{ProcessId, SandboxRecord, load, store};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// How many are kept: a small Deployment starts at once, and idle clusters hold little.
const KEPT: usize = 3;
/// Pods that start need the processor more than those that may come.
const QUIET: Duration = Duration::from_millis(500);
/// A look in between, for nothing that should happen.
const IDLE: Duration = Duration::from_secs(3600);
/// The pause after one could not be made.
const RETRY: Duration = Duration::from_secs(10);
const RECORD: &str = "spares.json";

/// A sandbox that no pod has.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Spare {
    pub holder: ProcessId,
    pub address: Ipv4Addr,
}

/// Those that are ready.
pub struct Spares {
    ready: Mutex<Vec<Spare>>,
    taken: Notify,
    record: PathBuf,
}

impl Spares {
    /// None at first; those of an earlier agent that became no pod's are ended.
    pub fn open(folder: &Path) -> Spares {
        end(folder);
        Spares {
            ready: Mutex::default(),
            taken: Notify::new(),
            record: folder.join(RECORD),
        }
    }

    /// One that lives, if there is one.
    pub fn take(&self) -> Option<Spare> {
        let found = loop {
            let spare = self.ready.lock().pop()?;
            if spare.holder.is_alive() {
                break spare;
            }
        };
        self.taken.notify_one();
        Some(found)
    }

    /// Adds one. The record also names those that became pods' since; whoever reads it leaves these alone.
    fn put(&self, spare: Spare) -> std::io::Result<()> {
        let mut ready = self.ready.lock();
        ready.push(spare);
        store(&self.record, &*ready)
    }

    fn missing(&self) -> usize {
        KEPT.saturating_sub(self.ready.lock().len())
    }
}

impl Network {
    /// Makes spare sandboxes whenever there are too few and nothing else is going on, until `stop`; then it ends them,
    /// for with this agent nobody is left who would use them.
    pub async fn keep_spares(&self, stop: CancellationToken) {
        let Network::Bridge(bridge) = self else { return };
        // One that is being made is finished first, or it would run on without a record.
        while !stop.is_cancelled() {
            let pause = bridge.fill().await;
            tokio::select! {
                () = stop.cancelled() => {}
                () = bridge.spares.taken.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        for spare in std::mem::take(&mut *bridge.spares.ready.lock()) {
            self.detach(IpAddr::V4(spare.address), Some(spare.holder));
        }
    }
}

impl Bridge {
    /// Makes what is missing, if no pod has started for a moment; says how long nothing will be missing otherwise.
    async fn fill(&self) -> Duration {
        if self.spares.missing() == 0 {
            return IDLE;
        }
        if tokio::time::timeout(QUIET, self.spares.taken.notified()).await.is_ok() {
            return Duration::ZERO;
        }
        match self.make_spare().await {
            Ok(()) => Duration::ZERO,
            Err(error) => {
                tracing::debug!(%error, "a spare sandbox could not be made");
                RETRY
            }
        }
    }

    async fn make_spare(&self) -> std::io::Result<()> {
        let address = self.addresses.take()?;
        let made = async {
            let holder = self.sandbox(None, address).await?;
            let spare = Spare { holder, address };
            self.spares.put(spare).inspect_err(|_| holder.kill_group())
        };
        let made = made.await;
        if made.is_err() {
            self.addresses.give_back(IpAddr::V4(address));
        }
        made
    }
}

/// The sandboxes of pods that are written down in a folder and still have their addresses.
pub fn sandboxes(folder: &Path) -> impl Iterator<Item = SandboxRecord> {
    let pods = std::fs::read_dir(folder.join("pods")).into_iter().flatten().flatten();
    pods.filter_map(|pod| SandboxRecord::attached(&pod.path().join("sandbox.json")))
}

/// Ends every spare sandbox that an agent on this folder left, unless it became a pod's.
pub fn end(folder: &Path) {
    let path = folder.join(RECORD);
    let left: Vec<Spare> = load(&path).unwrap_or_default();
    if left.is_empty() {
        return;
    }
    let used: Vec<ProcessId> = sandboxes(folder).filter_map(|sandbox| sandbox.holder).collect();
    for spare in left.iter().filter(|spare| !used.contains(&spare.holder)) {
        spare.holder.kill_group();
    }
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::process::spec::Processes;
    use std::process::{Child, Command};

    fn sleeper() -> (Child, Spare) {
        use std::os::unix::process::CommandExt;
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let holder = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let address = Ipv4Addr::new(198, 18, 0, 9);
        (child, Spare { holder, address })
    }

    #[test]
    fn what_became_a_pods_is_left_alone_and_the_rest_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        let pod = folder.path().join("pods/uid");
        std::fs::create_dir_all(&pod).unwrap();
        let (mut used, taken) = sleeper();
        let (mut left, idle) = sleeper();
        let spares = Spares::open(folder.path());
        spares.put(idle).unwrap();
        spares.put(taken).unwrap();
        assert_eq!(spares.take(), Some(taken));
        let record = SandboxRecord {
            uid: "uid".to_owned(),
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            addresses: vec![IpAddr::V4(taken.address)],
            holder: Some(taken.holder),
            detached: false,
        };
        store(&pod.join("sandbox.json"), &record).unwrap();
        // The agent dies here; the next one finds both in the record.
        let next = Spares::open(folder.path());
        assert!(left.wait().unwrap().code().is_none(), "it was killed");
        assert!(taken.holder.is_alive());
        assert_eq!(next.take(), None);
        used.kill().unwrap();
        used.wait().unwrap();
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
        };
        store(&pod.join("sandbox.json"), &record).unwrap();
        // A program that is not there can hold no namespace, so that this is the machine's network for everybody.
        let network = Network::open(&folder.path().join("none"), folder.path()).await;
        let attached = network.attach("new", Processes::Own).await.unwrap();
        assert_eq!(attached.address, IpAddr::V4(Ipv4Addr::new(127, 18, 0, 3)));
        assert!(matches!(network, Network::Loopback(_)));
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
        };
        store(&path, &record).unwrap();
        let first = SandboxRecord::attached(&path).expect("it has its address");
        first.detach(&path, drop).unwrap();
        assert!(SandboxRecord::attached(&path).is_none(), "it has given it back, once");
        let network = Network::open(&folder.path().join("none"), folder.path()).await;
        let attached = network.attach("new", Processes::Own).await.unwrap();
        assert_eq!(attached.address, record.addresses[0]);
    }
}
