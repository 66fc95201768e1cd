//! How runs end: hearing of it, reading what the shim wrote, and ending everything by force.
//!
//! The forceful end needs nothing but the records on disk: it must work after the agent was killed.

use super::cgroups;
use super::entry::VERB;
use super::log::parse;
use super::spec::{ExitRecord, Memory, ProcessId, RunRecord, RunSpec, SandboxRecord, Silence, StartRecord, load};
use crate::node::plan;
use crate::node::seen::Exit;
use crate::node::{network, volumes};
use jiff::Timestamp;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

/// The longest message that a container may leave.
const LONGEST_MESSAGE: usize = 4096;
/// How much of a log stands for a message.
const LAST_LINES: usize = 80;
const LAST_BYTES: usize = 2048;
/// How often a shim of an earlier agent is looked at.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How often it is looked, at most, whether what was killed has ended.
const ENDING_LOOKS: usize = 300;

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
        // A container writes there as much as it likes; a character has at most four bytes.
        let mut bytes = Vec::new();
        let limit = 4 * LONGEST_MESSAGE as u64;
        std::fs::File::open(path)
            .ok()?
            .take(limit)
            .read_to_end(&mut bytes)
            .ok()?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Some(text.chars().take(LONGEST_MESSAGE).collect::<String>()).filter(|text| !text.is_empty())
    });
    let message = message.or_else(|| match spec.silence {
        Silence::Log if exit.code != 0 => last_words(&spec.log),
        _ => None,
    });
    // A shim of an earlier version has not written it down.
    let memory = match exit.memory == Memory::Exhausted || cgroups::out_of_memory(&spec.cgroups) {
        true => plan::OutOfMemory::Yes,
        false => plan::OutOfMemory::No,
    };
    cgroups::remove(&spec.cgroups);
    Exit {
        id: record.id.clone(),
        code: exit.code,
        signal: None,
        reason: plan::exit_reason(exit.code, memory).to_owned(),
        message,
        started_at: record.since,
        finished_at: exit.at,
    }
}

/// The end of a log, for the status of a container that left no message.
fn last_words(log: &Path) -> Option<String> {
    let text = std::fs::read(log).ok()?;
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| {
        let entry = parse(line)?;
        Some(format!("{}\n", String::from_utf8_lossy(entry.text)))
    });
    let lines: Vec<String> = lines.collect();
    let mut words = String::new();
    for line in lines.iter().rev().take(LAST_LINES) {
        if words.len() + line.len() > LAST_BYTES {
            break;
        }
        words.insert_str(0, line);
    }
    Some(words).filter(|words| !words.is_empty())
}

/// Removes a pod's folder. A process that is just ending may still write into it: try for a moment.
pub async fn remove_folder(folder: &Path) -> std::io::Result<()> {
    let mut last = Ok(());
    for _ in 0..20 {
        let path = folder.to_owned();
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path)).await;
        last = match removed.map_err(std::io::Error::other).flatten() {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            _ => return Ok(()),
        };
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    last
}

/// Kills every process that the records of a pod name, and takes away what held them.
pub fn end_pod(folder: &Path) {
    let mut groups = kill_pod(folder);
    // A group can go only when the kernel has taken the last of its processes away.
    for _ in 0..40 {
        groups.retain(|group: &std::path::PathBuf| group.exists());
        if groups.is_empty() {
            break;
        }
        cgroups::remove(&groups);
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Kills every process that the records of a pod name; gives the control groups that these were in.
fn kill_pod(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut groups = Vec::new();
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
            if path.extension().is_some_and(|extension| extension == "json")
                && let Some(spec) = load::<RunSpec>(&path)
            {
                groups.extend(spec.cgroups);
            }
        }
    }
    if let Some(holder) = load::<SandboxRecord>(&folder.join("sandbox.json")).and_then(|record| record.holder) {
        holder.kill_group();
    }
    groups
}

/// Kills every process of the pods in a folder. Nothing else changes.
pub fn kill_all(folder: &Path) {
    for pod in std::fs::read_dir(folder.join("pods")).into_iter().flatten().flatten() {
        kill_pod(&pod.path());
    }
}

/// Ends everything that runtimes on this folder left: processes, and with them mounts, interfaces and namespaces.
/// Needs no agent, no API server, and no memory of what was started.
pub fn end_all(folder: &Path) {
    for pod in std::fs::read_dir(folder.join("pods")).into_iter().flatten().flatten() {
        end_pod(&pod.path());
        // The folder has the name of its pod.
        volumes::end(&pod.file_name().to_string_lossy());
        let _ = std::fs::remove_dir_all(pod.path());
    }
    network::end(folder);
    await_end(folder);
}

/// Waits until nothing is left that names the folder: what was killed takes a moment to end, and so does what waits for
/// work and sees that its agent is gone.
fn await_end(folder: &Path) {
    let name = folder.as_os_str().as_encoded_bytes();
    let is_ours = |process: std::fs::DirEntry| {
        let line = std::fs::read(process.path().join("cmdline")).unwrap_or_default();
        let says = |word: &[u8]| line.windows(word.len()).any(|part| part == word);
        !name.is_empty() && says(VERB.as_bytes()) && says(name)
    };
    for _ in 0..ENDING_LOOKS {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        if !processes.into_iter().any(&is_ours) {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::super::spec::store;
    use super::*;
    use serde_json::json;

    #[test]
    fn a_later_agent_knows_who_was_out_of_memory() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("0.exit");
        let spec: RunSpec = serde_json::from_value(json!({
            "id": "r", "argv": [], "env": [], "directory": "/", "log": "/none", "started": "/none", "exit": path,
            "input": "Nothing", "user": null, "group": null, "inside": null, "cgroups": [place.path().join("gone")],
        }))
        .unwrap();
        let record = RunRecord {
            container: "c".to_owned(),
            id: "r".to_owned(),
            restarts: 0,
            image_id: String::new(),
            since: Timestamp::UNIX_EPOCH,
        };
        let ended = ExitRecord {
            code: 137,
            signal: Some(9),
            at: Timestamp::UNIX_EPOCH,
            error: None,
            memory: Memory::Exhausted,
        };
        store(&path, &ended).unwrap();
        assert_eq!(exit_of(&spec, &record, Timestamp::UNIX_EPOCH).reason, "OOMKilled");
        let before = json!({"code": 137, "signal": 9, "at": "1970-01-01T00:00:00Z", "error": null});
        store(&path, &before).unwrap();
        assert_eq!(exit_of(&spec, &record, Timestamp::UNIX_EPOCH).reason, "Error");
    }
}
