//! The process runtime: a pod's containers are real processes of this machine.
//!
//! Everything that runs has a record on disk before it runs (see `spec`), so that an agent that is started again
//! adopts its pods, and `end_all` finds every process after a kill -9.

mod agnhost;
pub mod attach;
pub mod cgroups;
mod ending;
mod enter;
pub mod entry;
pub mod environment;
mod furnish;
mod grpc;
mod hello;
mod hold;
mod hooks;
mod host_ports;
pub mod images;
mod launch;
pub mod log;
mod powers;
pub mod probe;
mod reach;
mod root;
mod sandboxes;
mod seccomp;
mod shared;
pub(super) mod shim;
mod shims;
pub mod spec;
pub mod terminal;
mod trust;
mod usage;
pub mod users;
mod web;

use super::events::Recorder;
use super::fault::{Lines, Power};
use super::network::Network;
use super::registration::Capacity;
use super::runtime::{Notice, Notices, Running, Runtime, RuntimeError, What};
use super::seen::{Container, Sandbox, Seen, State};
use super::shape::Shape;
use super::voices::Voices;
use super::volumes::Volumes;
use crate::clock::{Clock, after};
use async_trait::async_trait;
use cgroups::Cgroups;
use ending::{Ended, end_pod, exit_of, remove_folder};
pub use ending::{end_all, kill_all};
use images::Catalogue;
use k8s_openapi::api::core::v1::{Pod, Service};
use nix::sys::signal::Signal;
use parking_lot::Mutex;
pub use reach::Mode;
use spec::{ProcessId, RunRecord, RunSpec, SandboxRecord, StartRecord, load};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;
use stead::Store;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Runs containers as processes.
pub struct Process {
    pub voices: Voices,
    pub clock: Arc<dyn Clock>,
    pub notices: Notices,
    pub events: Recorder,
    pub network: Arc<dyn Network>,
    pub volumes: Vec<Box<dyn Volumes>>,
    pub catalogue: Catalogue,
    pub capacity: Capacity,
    pub cgroups: Cgroups,
    /// The nodes and their addresses.
    pub hosts: Vec<(String, IpAddr)>,
    /// What containers find in their environment of Services.
    pub services: Store<Service>,
    /// A permit for each connection that is passed on to pods.
    pub room: crate::node::services::pass::Room,
    /// Where everything about pods is kept.
    pub folder: PathBuf,
    /// What containers do not see of the machine.
    pub hidden: Vec<PathBuf>,
    runs: Mutex<HashMap<(String, String), Run>>,
    /// What containers had used at the last look.
    samples: Mutex<HashMap<(String, String), usage::Samples>>,
    /// Held while a sandbox is given back, so that two ends of one pod are one.
    detaching: Mutex<()>,
    /// The tasks that keep volumes up to date, by pod.
    refreshing: Mutex<HashMap<String, AbortHandle>>,
    /// What ends the pulls of a pod, by pod.
    pulls: Mutex<HashMap<String, CancellationToken>>,
    /// The proxies of host ports, by pod.
    host_ports: Mutex<HashMap<String, host_ports::Open>>,
    /// By which the API server reaches the nodes.
    pub lines: Lines,
    /// A permit for each connection that clients have forwarded to pods.
    pub forwards: super::server::forward::Room,
    /// Shims that wait for a container.
    shims: shims::Shims,
    /// The runtime itself, for the tasks that it starts.
    own: Weak<Process>,
}

/// A run that this agent knows of.
struct Run {
    id: String,
    started: StartRecord,
    spec: PathBuf,
    /// The tasks that probe it and refresh nothing but it.
    tasks: Vec<AbortHandle>,
    stopping: bool,
}

/// What a process runtime is made from.
pub struct Settings {
    pub voices: Voices,
    pub clock: Arc<dyn Clock>,
    pub notices: Notices,
    pub events: Recorder,
    pub network: Arc<dyn Network>,
    pub volumes: Vec<Box<dyn Volumes>>,
    pub catalogue: Catalogue,
    pub capacity: Capacity,
    pub cgroups: Cgroups,
    pub hosts: Vec<(String, IpAddr)>,
    pub services: Store<Service>,
    pub room: crate::node::services::pass::Room,
    pub folder: PathBuf,
    pub hidden: Vec<PathBuf>,
}

impl Process {
    pub fn new(settings: Settings) -> Arc<Process> {
        let Settings {
            voices,
            clock,
            notices,
            events,
            network,
            volumes,
            catalogue,
            capacity,
            cgroups,
            hosts,
            services,
            room,
            folder,
            hidden,
        } = settings;
        Arc::new_cyclic(|own| Process {
            voices,
            clock,
            notices,
            events,
            network,
            volumes,
            catalogue,
            capacity,
            cgroups,
            hosts,
            services,
            room,
            folder,
            hidden,
            runs: Mutex::default(),
            samples: Mutex::default(),
            detaching: Mutex::default(),
            refreshing: Mutex::default(),
            pulls: Mutex::default(),
            host_ports: Mutex::default(),
            lines: Lines::default(),
            forwards: super::server::forward::Room::default(),
            shims: shims::Shims::default(),
            own: own.clone(),
        })
    }

    pub(super) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.folder.join("pods").join(uid)
    }

    fn container_folder(&self, uid: &str, container: &str) -> PathBuf {
        self.pod_folder(uid).join("containers").join(container)
    }

    /// The log of a container's current run, or of the one before.
    pub fn log_path(&self, uid: &str, container: &str, which: Which) -> Option<PathBuf> {
        let folder = self.container_folder(uid, container);
        let run: RunRecord = load(&folder.join("run.json"))?;
        let number = match which {
            Which::Current => run.restarts,
            Which::Previous => run.restarts.checked_sub(1)?,
        };
        Some(folder.join(format!("{number}.log")))
    }

    /// What is written down of a pod that has a sandbox and its addresses still.
    pub fn sandbox(&self, uid: &str) -> Option<SandboxRecord> {
        SandboxRecord::attached(&self.pod_folder(uid).join("sandbox.json"))
    }

    /// The address of a pod that has a sandbox.
    pub fn address(&self, uid: &str) -> Option<IpAddr> {
        self.sandbox(uid)?.addresses.first().copied()
    }

    /// Whether a run of the container is alive.
    pub fn is_running(&self, uid: &str, container: &str) -> bool {
        let runs = self.runs.lock();
        runs.get(&(uid.to_owned(), container.to_owned()))
            .is_some_and(|run| run.started.main.is_alive())
    }

    /// Reports the end of a run when its shim has ended.
    fn supervise(&self, uid: &str, record: &RunRecord, spec: RunSpec, started: StartRecord, ended: Ended) {
        let Some(own) = self.own.upgrade() else { return };
        let (uid, record) = (uid.to_owned(), record.clone());
        tokio::spawn(async move {
            ended.wait(started.shim).await;
            // A shim that was killed leaves its container behind: nobody would know when it ends.
            if started.main.is_alive() {
                started.main.kill_group();
            }
            let exit = exit_of(&spec, &record, own.clock.now());
            own.forget(&uid, &record);
            let _ = own.notices.send(Notice {
                pod: uid,
                container: record.container,
                id: record.id,
                what: What::Exited(exit),
            });
        });
    }

    fn forget(&self, uid: &str, record: &RunRecord) {
        let key = (uid.to_owned(), record.container.clone());
        let mut runs = self.runs.lock();
        if runs.get(&key).is_some_and(|run| run.id == record.id)
            && let Some(run) = runs.remove(&key)
        {
            for task in run.tasks {
                task.abort();
            }
        }
    }

    fn remember(&self, uid: &str, record: &RunRecord, started: StartRecord, spec: PathBuf, tasks: Vec<AbortHandle>) {
        let run = Run {
            id: record.id.clone(),
            started,
            spec,
            tasks,
            stopping: false,
        };
        self.runs.lock().insert((uid.to_owned(), record.container.clone()), run);
    }

    fn adopt_container(&self, pod: &Pod, folder: &Path) -> Option<(String, Container)> {
        let record: RunRecord = load(&folder.join("run.json"))?;
        let spec_path = folder.join(format!("{}.json", record.restarts));
        let spec: RunSpec = load(&spec_path)?;
        let uid = Shape::of(pod).uid().to_owned();
        // A shim outlives its container until it has said how that ended.
        let alive = load::<StartRecord>(&spec.started).filter(|started| started.shim.is_alive());
        let mut container = Container {
            restarts: record.restarts,
            image_id: record.image_id.clone(),
            ..Container::default()
        };
        match alive {
            Some(started) => {
                container.state = State::Running {
                    id: record.id.clone(),
                    since: record.since,
                };
                let (is_started, readiness) = launch::without_probes(pod, &record.container);
                container.started = is_started;
                container.ready = readiness == super::runtime::Readiness::Ready;
                let tasks = launch::probe(self.own.upgrade()?, pod, &record, self.address(&uid));
                self.remember(&uid, &record, started.clone(), spec_path, tasks);
                self.supervise(&uid, &record, spec, started, Ended::Foreign);
            }
            None => container.state = State::Exited(exit_of(&spec, &record, self.clock.now())),
        }
        Some((record.container, container))
    }
}

/// Which run of a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    Current,
    Previous,
}

#[async_trait]
impl Runtime for Process {
    fn scheme(&self) -> &'static str {
        "process"
    }

    fn set_power(&self, node: &str, power: Power) {
        self.lines.set(node, power);
    }

    async fn adopt(&self, pod: &Pod) -> Seen {
        let folder = self.pod_folder(Shape::of(pod).uid());
        let mut seen = Seen::default();
        let Some(record) = load::<SandboxRecord>(&folder.join("sandbox.json")) else {
            return seen;
        };
        let alive = !record.detached && record.holder.is_none_or(ProcessId::is_alive);
        if alive {
            for address in &record.addresses {
                self.network.adopt(*address);
                if let Err(error) = self.open_host_ports(&Shape::of(pod), *address).await {
                    let note = format!("host ports are not open again: {error}");
                    self.events.warning(pod, "HostPortFailed", &note, self.clock.now());
                }
            }
            seen.sandbox = Sandbox::Ready {
                addresses: record.addresses,
            };
        } else {
            seen.sandbox = Sandbox::Stopped {
                addresses: record.addresses,
            };
        }
        for entry in std::fs::read_dir(folder.join("containers"))
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Some((name, container)) = self.adopt_container(pod, &entry.path()) {
                seen.containers.insert(name, Box::new(container));
            }
        }
        self.refresh_volumes(Arc::new(pod.clone()));
        seen
    }

    async fn known(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.join("pods"))
            .into_iter()
            .flatten()
            .flatten();
        entries
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect()
    }

    async fn create_sandbox(&self, pod: Arc<Pod>) -> Result<Vec<IpAddr>, RuntimeError> {
        self.make_sandbox(pod).await
    }

    async fn start(&self, pod: Arc<Pod>, container: String, restarts: u32) -> Result<Running, RuntimeError> {
        self.launch(pod, &container, restarts).await
    }

    fn give_up_starts(&self, uid: &str) {
        if let Some(pulls) = self.pulls.lock().get(uid) {
            pulls.cancel();
        }
    }

    async fn stop(&self, pod: Arc<Pod>, container: String, id: String, grace: Duration) {
        let uid = Shape::of(&pod).uid().to_owned();
        let first = {
            let mut runs = self.runs.lock();
            let Some(run) = runs
                .get_mut(&(uid.clone(), container.clone()))
                .filter(|run| run.id == id)
            else {
                return;
            };
            for task in run.tasks.drain(..) {
                task.abort();
            }
            (!std::mem::replace(&mut run.stopping, true), run.started.main)
        };
        let (first, main) = first;
        let deadline = after(self.clock.now(), grace);
        if first && !grace.is_zero() {
            let hook = self.before_stop(&pod, &container);
            tokio::select! {
                () = hook => {}
                () = self.clock.sleep_until(deadline) => {}
            }
            main.signal(Signal::SIGTERM);
        }
        self.clock.sleep_until(deadline).await;
        main.kill_group();
    }

    async fn stop_sandbox(&self, pod: Arc<Pod>) -> Result<(), RuntimeError> {
        // What could not be noted now is given back with the pod's folder.
        drop(self.detach(&self.pod_folder(Shape::of(&pod).uid())));
        Ok(())
    }

    async fn remove(&self, uid: &str) -> Result<(), RuntimeError> {
        let folder = self.pod_folder(uid);
        let unnoted = self.detach(&folder);
        let ending = folder.clone();
        // It waits for processes to go, and this thread has other pods to look after.
        let ended = tokio::task::spawn_blocking(move || end_pod(&ending)).await;
        ended.map_err(|error| RuntimeError::run(format!("{}: {error}", folder.display())))?;
        let gone = self
            .runs
            .lock()
            .extract_if(|(pod, _), _| pod == uid)
            .collect::<Vec<_>>();
        for (_, run) in gone {
            for task in run.tasks {
                task.abort();
            }
        }
        self.samples.lock().retain(|(pod, _), _| pod != uid);
        if let Some(task) = self.refreshing.lock().remove(uid) {
            task.abort();
        }
        if let Some(pulls) = self.pulls.lock().remove(uid) {
            pulls.cancel();
        }
        for volumes in &self.volumes {
            volumes.unpublish(uid).await?;
        }
        remove_folder(&folder)
            .await
            .map_err(|error| RuntimeError::run(format!("{}: {error}", folder.display())))?;
        // Without its record nobody takes the addresses for this pod's any more.
        unnoted.into_iter().for_each(|address| self.network.give_back(address));
        Ok(())
    }
}
