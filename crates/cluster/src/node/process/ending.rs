//! How runs end: hearing of it, reading what the shim wrote, and ending everything by force.
//!
//! The forceful end needs nothing but the records on disk: it must work after the agent was killed.

use super::spec::{ExitRecord, ProcessId, RunRecord, RunSpec, SandboxRecord, StartRecord, load};
use crate::node::network;
use crate::node::plan;
use crate::node::seen::Exit;
use jiff::Timestamp;
use std::path::Path;
use std::time::Duration;

/// How often a shim of an earlier agent is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How the end of a shim is heard.
pub enum Ended {
    Child(Box<tokio::process::Child>),
    /// An earlier agent started it.
    Foreign,
}

impl Ended {
    pub async fn wait(self, shim: ProcessId) {
        match self {
            Ended::Child(mut child) => {
                let _ = child.wait().await;
            }
            Ended::Foreign => {
                // Only the parent hears of an end; anybody else has to look.
                while shim.is_alive() {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
    }
}

/// How a run ended, from what its shim wrote.
pub fn exit_of(spec: &RunSpec, record: &RunRecord, now: Timestamp) -> Exit {
    let Some(exit) = load::<ExitRecord>(&spec.exit) else {
        return plan::lost(&record.id, record.since, now);
    };
    let message = exit.error.or_else(|| {
        let path = spec.exit.with_extension("message");
        let text = std::fs::read_to_string(path).ok()?;
        Some(text.chars().take(4096).collect::<String>()).filter(|text| !text.is_empty())
    });
    Exit {
        id: record.id.clone(),
        code: exit.code,
        signal: None,
        reason: plan::exit_reason(exit.code, plan::OutOfMemory::No).to_owned(),
        message,
        started_at: record.since,
        finished_at: exit.at,
    }
}

/// Removes a pod's folder. A process that is just ending may still write into it: try for a moment.
pub async fn remove_folder(folder: &Path) -> std::io::Result<()> {
    let mut last = Ok(());
    for _ in 0..20 {
        last = match std::fs::remove_dir_all(folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => return Ok(()),
        };
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    last
}

/// Kills every process that the records of a pod name.
pub fn end_pod(folder: &Path) {
    for container in std::fs::read_dir(folder.join("containers"))
        .into_iter()
        .flatten()
        .flatten()
    {
        for file in std::fs::read_dir(container.path()).into_iter().flatten().flatten() {
            let path = file.path();
            if path.extension().is_some_and(|extension| extension == "started")
                && let Some(started) = load::<StartRecord>(&path)
            {
                started.main.kill_group();
                started.shim.kill_group();
            }
        }
    }
    if let Some(holder) = load::<SandboxRecord>(&folder.join("sandbox.json")).and_then(|record| record.holder) {
        holder.kill_group();
    }
}

/// Ends everything that runtimes on this folder left: processes, and with them mounts, interfaces and namespaces.
/// Needs no agent, no API server, and no memory of what was started.
pub fn end_all(folder: &Path) {
    for pod in std::fs::read_dir(folder.join("pods")).into_iter().flatten().flatten() {
        end_pod(&pod.path());
        let _ = std::fs::remove_dir_all(pod.path());
    }
    network::end(folder);
}
