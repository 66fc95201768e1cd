//! What containers use of the machine, for the metrics API.
//!
//! Read from /proc for each container's processes and their children: no control groups are needed for numbers
//! that people look at.

use super::Process;
use super::spec::{SandboxRecord, load};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};

/// Ticks per second of the kernel's processor times, which is 100 on every Linux that runs Rust programs.
const NANOSECONDS_PER_TICK: u64 = 10_000_000;

/// What a container had used when it was last looked at.
#[derive(Clone, Copy, Debug)]
pub struct Sample {
    at: Timestamp,
    nanoseconds: u64,
}

/// One process of the machine.
#[derive(Clone, Copy, Debug)]
struct Used {
    parent: i32,
    nanoseconds: u64,
    bytes: u64,
}

impl Process {
    /// The UID of a pod on this node, by name; of several with that name, the youngest.
    pub fn uid(&self, namespace: &str, name: &str) -> Option<String> {
        let entries = std::fs::read_dir(self.folder.join("pods")).ok()?.flatten();
        let records = entries.filter_map(|entry| {
            let path = entry.path().join("sandbox.json");
            let record: SandboxRecord = load(&path)?;
            let written = std::fs::metadata(path).and_then(|found| found.modified()).ok()?;
            (record.namespace == namespace && record.name == name).then_some((written, record.uid))
        });
        records.max().map(|(_, uid)| uid)
    }

    /// What every container uses, in the form of a kubelet's summary.
    pub fn summary(&self) -> Value {
        let now = self.clock.now();
        let processes = processes();
        let mut pods: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let (mut cores, mut bytes) = (0, 0);
        let running: Vec<(String, String, i32)> = {
            let runs = self.runs.lock();
            runs.iter()
                .map(|((uid, name), run)| (uid.clone(), name.clone(), run.started.main.pid))
                .collect()
        };
        for (uid, name, pid) in running {
            let (nanoseconds, working_set) = tree(&processes, pid);
            let rate = self.rate(&uid, &name, Sample { at: now, nanoseconds });
            cores += rate;
            bytes += working_set;
            pods.entry(uid).or_default().push(json!({
                "name": name,
                "cpu": { "time": now.to_string(), "usageNanoCores": rate, "usageCoreNanoSeconds": nanoseconds },
                "memory": { "time": now.to_string(), "workingSetBytes": working_set, "rssBytes": working_set },
            }));
        }
        let pods: Vec<Value> = pods
            .into_iter()
            .filter_map(|(uid, containers)| {
                let record: SandboxRecord = load(&self.pod_folder(&uid).join("sandbox.json"))?;
                let reference = json!({ "name": record.name, "namespace": record.namespace, "uid": uid });
                Some(json!({ "podRef": reference, "containers": containers }))
            })
            .collect();
        json!({
            "node": {
                "cpu": { "time": now.to_string(), "usageNanoCores": cores },
                "memory": { "time": now.to_string(), "workingSetBytes": bytes },
            },
            "pods": pods,
        })
    }

    /// Processor use since the last look, in billionths of a core.
    fn rate(&self, uid: &str, name: &str, sample: Sample) -> u64 {
        let before = self.samples.lock().insert((uid.to_owned(), name.to_owned()), sample);
        let Some(before) = before else { return 0 };
        let elapsed = u64::try_from(sample.at.duration_since(before.at).as_millis())
            .unwrap_or(0)
            .max(1);
        sample.nanoseconds.saturating_sub(before.nanoseconds) * 1000 / elapsed
    }
}

fn processes() -> HashMap<i32, Used> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
            let number = |index: usize| {
                fields
                    .get(index)
                    .and_then(|field| field.parse::<u64>().ok())
                    .unwrap_or(0)
            };
            let used = Used {
                parent: fields.get(1)?.parse().ok()?,
                nanoseconds: (number(11) + number(12)) * NANOSECONDS_PER_TICK,
                bytes: number(21) * 4096,
            };
            Some((pid, used))
        })
        .collect()
}

/// The use of a process and everything below it.
fn tree(processes: &HashMap<i32, Used>, root: i32) -> (u64, u64) {
    let mut total = (0, 0);
    let mut waiting = vec![root];
    while let Some(pid) = waiting.pop() {
        if let Some(used) = processes.get(&pid) {
            total.0 += used.nanoseconds;
            total.1 += used.bytes;
        }
        waiting.extend(
            processes
                .iter()
                .filter(|(_, used)| used.parent == pid)
                .map(|(pid, _)| *pid),
        );
    }
    total
}
