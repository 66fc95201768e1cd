//! What containers use of the machine, for the metrics API.
//!
//! Read from /proc for each container's processes and their children: no control groups are needed for numbers
//! that people look at.

use super::Process;
use super::spec::{SandboxRecord, load};
use crate::clock::after;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

/// Ticks per second of the kernel's processor times, which is 100 on every Linux that runs Rust programs.
const NANOSECONDS_PER_TICK: u64 = 10_000_000;

/// How often every container is looked at, so that a question finds a recent look to compare with.
const EVERY: Duration = Duration::from_secs(10);
/// Two looks that are closer than this say little: the kernel counts in ticks.
const APART: SignedDuration = SignedDuration::from_secs(2);

/// What a container had used at one moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    at: Timestamp,
    nanoseconds: u64,
}

/// The last two looks at a container.
#[derive(Clone, Copy, Debug)]
pub struct Samples {
    older: Sample,
    newer: Sample,
}

impl Samples {
    /// Processor use in billionths of a core between an earlier look and this one.
    fn rate(&self, now: Sample) -> u64 {
        let since = match now.at.duration_since(self.newer.at) < APART {
            true => self.older,
            false => self.newer,
        };
        let elapsed = u64::try_from(now.at.duration_since(since.at).as_millis())
            .unwrap_or(0)
            .max(1);
        now.nanoseconds.saturating_sub(since.nanoseconds) * 1000 / elapsed
    }
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

    /// What every container of the nodes at this address uses, in the form of a kubelet's summary.
    pub fn summary(&self, of: Option<IpAddr>) -> Value {
        let now = self.clock.now();
        let processes = processes();
        let mut pods: BTreeMap<String, (SandboxRecord, Vec<Value>)> = BTreeMap::new();
        let (mut cores, mut bytes) = (0, 0);
        for Looked { key, pid, start } in self.running() {
            let Some(record) = load::<SandboxRecord>(&self.pod_folder(&key.0).join("sandbox.json"))
                .filter(|record| is_at(&self.hosts, record.node.as_deref(), of))
            else {
                continue;
            };
            let (nanoseconds, working_set) = tree(&processes, pid);
            let known = self.samples.lock().get(&key).copied();
            let known = known
                .filter(|known| known.newer.nanoseconds <= nanoseconds)
                .unwrap_or(start);
            let rate = known.rate(Sample { at: now, nanoseconds });
            let (uid, name) = key;
            cores += rate;
            bytes += working_set;
            let (_, containers) = pods.entry(uid).or_insert_with(|| (record, Vec::new()));
            containers.push(json!({
                "name": name,
                "cpu": { "time": now.to_string(), "usageNanoCores": rate, "usageCoreNanoSeconds": nanoseconds },
                "memory": { "time": now.to_string(), "workingSetBytes": working_set, "rssBytes": working_set },
            }));
        }
        let pods: Vec<Value> = pods
            .into_iter()
            .map(|(uid, (record, containers))| {
                let reference = json!({ "name": record.name, "namespace": record.namespace, "uid": uid });
                json!({ "podRef": reference, "containers": containers })
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

    /// Looks at every container now and then, until the node ends.
    pub async fn watch_usage(&self) {
        loop {
            self.clock.sleep_until(after(self.clock.now(), EVERY)).await;
            let (now, processes) = (self.clock.now(), processes());
            let running = self.running();
            let mut samples = self.samples.lock();
            samples.retain(|key, _| running.iter().any(|run| run.key == *key));
            for run in running {
                let (nanoseconds, _) = tree(&processes, run.pid);
                let look = Sample { at: now, nanoseconds };
                let known = samples.entry(run.key).or_insert(run.start);
                // One that has used less than before was started again since.
                let again = known.newer.nanoseconds > nanoseconds;
                *known = Samples {
                    older: if again { run.start.newer } else { known.newer },
                    newer: look,
                };
            }
        }
    }

    fn running(&self) -> Vec<Looked> {
        let runs = self.runs.lock();
        let looked = runs.iter().map(|(key, run)| {
            // A container that was never looked at has used nothing when it began.
            let born = Sample {
                at: run.started.at,
                nanoseconds: 0,
            };
            Looked {
                key: key.clone(),
                pid: run.started.main.pid,
                start: Samples {
                    older: born,
                    newer: born,
                },
            }
        });
        looked.collect()
    }
}

/// A container that runs.
struct Looked {
    key: (String, String),
    pid: i32,
    start: Samples,
}

/// Whether a pod's node is asked at this address. Nodes of one machine may share one.
fn is_at(hosts: &[(String, IpAddr)], node: Option<&str>, address: Option<IpAddr>) -> bool {
    let host = hosts.iter().find(|(name, _)| Some(name.as_str()) == node);
    match (host, address) {
        (Some((_, host)), Some(address)) => *host == address,
        _ => true,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_told_of_where_its_node_is_asked() {
        let address = |last| IpAddr::from([127, 0, 0, last]);
        let hosts = [("a".to_owned(), address(1)), ("b".to_owned(), address(2))];
        assert!(is_at(&hosts, Some("a"), Some(address(1))));
        assert!(!is_at(&hosts, Some("b"), Some(address(1))));
        assert!(is_at(&hosts, None, Some(address(1))), "a record of an earlier version");
        assert!(is_at(&hosts, Some("b"), None));
    }

    #[test]
    fn use_is_told_between_looks_that_are_far_enough_apart() {
        let look = |seconds: i64, nanoseconds| Sample {
            at: Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds),
            nanoseconds,
        };
        let samples = Samples {
            older: look(0, 0),
            newer: look(10, 1_000_000_000),
        };
        assert_eq!(samples.rate(look(20, 6_000_000_000)), 500_000_000);
        assert_eq!(samples.rate(look(10, 1_000_000_000)), 100_000_000);
    }
}
