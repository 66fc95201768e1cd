//! What the agent writes down for a shim to run, and what the shim writes down for the agent.
//!
//! Everything about a running container is on disk before it matters: an agent that is started again, or
//! `stead down` after a kill -9, finds every process by its number and start time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize, de::DeserializeOwned};
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// One run of one container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunSpec {
    pub id: String,
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub directory: PathBuf,
    pub log: PathBuf,
    /// Where the shim says which processes it has.
    pub started: PathBuf,
    /// Where the shim says how the container ended.
    pub exit: PathBuf,
    pub input: Input,
    /// Whether input and output are one terminal.
    #[serde(default)]
    pub screen: Screen,
    pub user: Option<u32>,
    pub group: Option<u32>,
    /// Further groups of its processes.
    #[serde(default)]
    pub groups: Vec<u32>,
    /// The capabilities that root keeps; `None` for all, as records of an earlier version mean it.
    #[serde(default)]
    pub powers: Option<Vec<String>>,
    #[serde(default)]
    pub gain: Gain,
    /// The system calls that it may make.
    #[serde(default)]
    pub calls: Calls,
    /// Present where the container has a file system and processes of its own.
    pub inside: Option<Inside>,
    /// Directories of control groups to join, made by the agent.
    pub cgroups: Vec<PathBuf>,
    /// What a container that failed without a word says in its status.
    #[serde(default)]
    pub silence: Silence,
}

/// Whether programs of a container may gain powers, by being another user's.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub enum Gain {
    #[default]
    Allowed,
    Forbidden,
}

/// Which system calls programs of a container may make.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub enum Calls {
    #[default]
    All,
    /// Without those that containers are usually refused (`RuntimeDefault`).
    Usual,
}

/// What a container reads.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Input {
    Nothing,
    Open,
    /// Open until the first client that typed something is gone (`stdinOnce`).
    Once,
}

/// What stands for the termination message of a container that left none.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub enum Silence {
    #[default]
    Nothing,
    /// The end of its log, if it failed (`FallbackToLogsOnError`).
    Log,
}

/// What a container writes to.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub enum Screen {
    #[default]
    Pipes,
    Terminal,
}

/// A container with a root of its own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Inside {
    /// The process that holds the pod's namespaces.
    pub sandbox: i32,
    pub mounts: Vec<Mount>,
    /// An empty directory that the container's root is built on.
    pub root: PathBuf,
    pub processes: Processes,
    /// Whether the container may write to its root.
    #[serde(default = "writable")]
    pub access: Access,
    /// The root of an unpacked image; without one, programs see the machine's own.
    #[serde(default)]
    pub image: Option<PathBuf>,
    #[serde(default)]
    pub kernel: Kernel,
    /// What of the machine's files a container never finds in its root: the cluster's own keys and records.
    #[serde(default)]
    pub hidden: Vec<PathBuf>,
}

/// How much of the machine's kernel a container sees and changes under /proc and /sys.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub enum Kernel {
    /// All of it: what privileged containers have, and what records of an earlier version mean.
    #[default]
    Open,
    /// Its settings are for reading only, and its memory and keys are not there.
    Guarded,
}

/// Whose processes a container sees.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Processes {
    Own,
    /// Those of all containers of the pod (`shareProcessNamespace`).
    Pod,
    /// Those of another container, whose first process this is (`targetContainerName`).
    Target(i32),
    /// Those of the machine (`hostPID`).
    Host,
}

/// What records of an earlier version mean.
fn writable() -> Access {
    Access::ReadWrite
}

/// One directory or file of the machine, seen at a place inside the container.
#[derive(Clone, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct Mount {
    pub source: PathBuf,
    pub target: PathBuf,
    pub access: Access,
    /// The volume that the source is part of (`subPath`): other containers may put links there at any time, and none
    /// may lead out of it.
    #[serde(default)]
    pub volume: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

/// A process that can be told from a later one with the same number.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, PartialEq, Eq)]
pub struct ProcessId {
    pub pid: i32,
    /// The start time in the kernel's ticks since boot.
    pub start: u64,
}

/// What the shim writes once the container runs.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartRecord {
    pub shim: ProcessId,
    pub main: ProcessId,
    pub at: Timestamp,
}

/// What the shim writes when the container has ended, or could not start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExitRecord {
    pub code: i32,
    pub signal: Option<i32>,
    pub at: Timestamp,
    /// Set if the program could not be started at all.
    pub error: Option<String>,
    #[serde(default)]
    pub memory: Memory,
}

/// Whether a container had the memory that it wanted. It is written down: the groups that know are removed when the
/// first agent hears of the end, and a later one would take it for any other kill.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub enum Memory {
    #[default]
    Enough,
    Exhausted,
}

/// What the agent keeps about a pod's sandbox.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SandboxRecord {
    pub uid: String,
    pub namespace: String,
    pub name: String,
    pub addresses: Vec<std::net::IpAddr>,
    /// The process that holds the namespaces, if the pod has any.
    pub holder: Option<ProcessId>,
    /// Whether its addresses have been given back: then they are somebody else's by now.
    #[serde(default)]
    pub detached: bool,
    /// The node that the pod is bound to; records of an earlier version do not say.
    #[serde(default)]
    pub node: Option<String>,
}

impl SandboxRecord {
    /// Where a port of the pod is.
    pub fn at(&self, port: u16) -> io::Result<SocketAddr> {
        let address = self.addresses.first();
        let address = address.ok_or_else(|| io::Error::other("the pod has no address"))?;
        Ok(SocketAddr::new(*address, port))
    }

    /// The record at this place, if its pod still has its addresses.
    pub fn attached(path: &Path) -> Option<SandboxRecord> {
        load::<SandboxRecord>(path).filter(|record| !record.detached)
    }

    /// Ends the sandbox and gives back what it had, in this order: nobody uses the addresses any more, then all later
    /// agents read that they are not this pod's, and only then may another pod have them. Whoever dies in between has
    /// lost an address until the next start, and given none to two pods.
    pub fn detach(mut self, path: &Path, give_back: impl FnMut(IpAddr)) -> io::Result<()> {
        if let Some(holder) = self.holder {
            holder.kill_group();
        }
        self.detached = true;
        store(path, &self)?;
        self.addresses.into_iter().for_each(give_back);
        Ok(())
    }
}

/// What the agent keeps about a container's run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub container: String,
    pub id: String,
    pub restarts: u32,
    pub image_id: String,
    pub since: Timestamp,
}

impl ProcessId {
    /// The process with that number now, if one runs.
    pub fn of(pid: i32) -> Option<ProcessId> {
        let (state, process) = ProcessId::look(pid)?;
        (state != "Z").then_some(process)
    }

    /// A child of this process that was not waited for yet: it may have ended already, and was there all the same.
    pub fn of_child(child: &std::process::Child) -> io::Result<ProcessId> {
        let looked = i32::try_from(child.id()).ok().and_then(ProcessId::look);
        let (_, process) = looked.ok_or_else(|| io::Error::other("cannot read what the kernel knows of a child"))?;
        Ok(process)
    }

    /// The state and identity of the process with that number.
    fn look(pid: i32) -> Option<(String, ProcessId)> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold spaces and brackets; the fields after the last bracket are numbers.
        let fields = stat.rsplit_once(')')?.1;
        let mut fields = fields.split_whitespace();
        let state = fields.next()?.to_owned();
        let start = fields.nth(18)?.parse().ok()?;
        Some((state, ProcessId { pid, start }))
    }

    /// Whether this very process still runs.
    pub fn is_alive(self) -> bool {
        ProcessId::of(self.pid) == Some(self)
    }

    /// Sends a signal, if this very process still runs.
    pub fn signal(self, signal: nix::sys::signal::Signal) {
        if self.is_alive() {
            // The process may end between the check and the signal; then there is nothing left to tell it.
            let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.pid), signal);
        }
    }

    /// Kills the process and, where it leads one, its group.
    pub fn kill_group(self) {
        if self.is_alive() {
            let pid = nix::unistd::Pid::from_raw(self.pid);
            let _ = nix::sys::signal::killpg(pid, nix::sys::signal::Signal::SIGKILL);
            let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGKILL);
        }
    }
}

/// Writes a record so that a reader sees all of it or nothing.
pub fn store(path: &Path, record: &impl Serialize) -> io::Result<()> {
    let bytes = serde_json::to_vec(record)?;
    let temporary = path.with_extension("new");
    // The environment of a container may hold secrets. A half-written one of an agent that died is written anew.
    let mut options = std::fs::OpenOptions::new();
    let mut file = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&bytes)?;
    std::fs::rename(&temporary, path)
}

/// Reads a record; absent or unreadable is nothing.
pub fn load<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&std::fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn an_address_is_given_back_once_and_only_when_that_is_noted() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sandbox.json");
        let record = SandboxRecord {
            uid: "u".to_owned(),
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            addresses: vec![IpAddr::from([198, 18, 0, 2])],
            holder: None,
            detached: false,
            node: None,
        };
        store(&path, &record).unwrap();
        let mut given = Vec::new();
        let mut end = || match SandboxRecord::attached(&path) {
            Some(record) => record.detach(&path, |address| given.push(address)).is_ok(),
            None => false,
        };
        // Nothing can be written for now.
        std::fs::create_dir(path.with_extension("new")).unwrap();
        assert!(!end());
        std::fs::remove_dir(path.with_extension("new")).unwrap();
        assert!(end());
        assert!(!end(), "it is noted");
        assert_eq!(given, record.addresses);
    }

    #[test]
    fn a_child_that_has_ended_is_known_until_it_is_waited_for() {
        let mut child = Command::new("true").stdout(Stdio::piped()).spawn().unwrap();
        // Its output ends when it does; the zombie stays.
        io::copy(&mut child.stdout.take().unwrap(), &mut io::sink()).unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while ProcessId::of(pid).is_some() {
            std::thread::yield_now();
        }
        assert_eq!(ProcessId::of_child(&child).unwrap().pid, pid);
        child.wait().unwrap();
        assert!(ProcessId::of_child(&child).is_err());
    }
}
