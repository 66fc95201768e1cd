//! Limits of memory, processor time and processes, by the kernel's control groups.
//!
//! Both generations are served: one tree for all (version 2), or one for each resource (version 1). A container
//! without limits gets no group, and where groups may not be written the node says that limits are not enforced.

use crate::node::shape::Whole;
use nix::unistd::{AccessFlags, access};
use std::io;
use std::path::{Path, PathBuf};
use stead_machinery::quantity::Quantity;

const ROOT: &str = "/sys/fs/cgroup";
/// The time over which processor use is measured against its limit, in microseconds.
const PERIOD: i64 = 100_000;
/// The least processor time that the kernel takes as a limit.
const LEAST_QUOTA: i64 = 1_000;

/// The control groups of this machine, as far as they may be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cgroups {
    /// One tree, at this place.
    Unified(PathBuf),
    /// A tree for memory and one for processor time; either may be missing.
    Separate {
        memory: Option<PathBuf>,
        cpu: Option<PathBuf>,
    },
    Absent,
}

/// What a container may use at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    bytes: Option<i64>,
    milli_cpus: Option<i64>,
}

impl Limits {
    pub fn of(container: &Whole) -> Limits {
        let limits = container
            .resources
            .as_ref()
            .and_then(|resources| resources.limits.as_ref());
        let limit = |name: &str| limits?.get(name)?.0.parse::<Quantity>().ok();
        Limits {
            bytes: limit("memory").map(|memory| memory.value()).filter(|bytes| *bytes > 0),
            milli_cpus: limit("cpu").map(|cpu| cpu.milli_value()).filter(|cpus| *cpus > 0),
        }
    }

    fn quota(&self) -> Option<i64> {
        Some((self.milli_cpus? * PERIOD / 1000).max(LEAST_QUOTA))
    }
}

impl Cgroups {
    /// What this user may use on this machine.
    pub fn find() -> Cgroups {
        let root = Path::new(ROOT);
        if root.join("cgroup.controllers").exists() {
            let place = root.join("stead");
            let ready = make(&place)
                .and_then(|()| delegate(root))
                .and_then(|()| delegate(&place));
            return match ready {
                Ok(()) => Cgroups::Unified(place),
                Err(_) => Cgroups::Absent,
            };
        }
        let own = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let tree = |controller: &str| {
            let tree = root.join(controller);
            // Below the group that this process is in, so that limits on it hold for its pods too.
            let inside = tree
                .join(group_of(&own, controller).trim_start_matches('/'))
                .join("stead");
            let places = [inside, tree.join("stead")];
            places.into_iter().find(|place| tree.is_dir() && make(place).is_ok())
        };
        match (tree("memory"), tree("cpu")) {
            (None, None) => Cgroups::Absent,
            (memory, cpu) => Cgroups::Separate { memory, cpu },
        }
    }

    /// A sentence for people.
    pub fn describe(&self) -> &'static str {
        match self {
            Cgroups::Unified(_) => "Limits of memory and processor time are enforced (control groups v2).",
            Cgroups::Separate {
                memory: Some(_),
                cpu: Some(_),
            } => "Limits of memory and processor time are enforced (control groups v1).",
            Cgroups::Separate { memory: Some(_), .. } => "Limits of memory are enforced, of processor time not.",
            Cgroups::Separate { .. } => "Limits of processor time are enforced, of memory not.",
            Cgroups::Absent => "Limits are not enforced: control groups may not be written.",
        }
    }

    /// Resources whose limits are not enforced.
    pub fn unlimited(&self) -> Vec<&'static str> {
        match self {
            Cgroups::Unified(_) => Vec::new(),
            Cgroups::Separate { memory, cpu } => {
                let missing = [("memory", memory.is_none()), ("cpu", cpu.is_none())];
                missing
                    .into_iter()
                    .filter_map(|(name, none)| none.then_some(name))
                    .collect()
            }
            Cgroups::Absent => vec!["memory", "cpu"],
        }
    }

    /// Makes the groups for one run of a container, and gives those that its processes must join.
    pub fn prepare(&self, pod: &str, run: &str, limits: Limits) -> io::Result<Vec<PathBuf>> {
        if limits == Limits::default() {
            return Ok(Vec::new());
        }
        let group = |base: &Path| base.join(format!("{pod}.{run}"));
        let mut made = Vec::new();
        match self {
            Cgroups::Absent => {}
            Cgroups::Unified(base) => {
                let group = group(base);
                make(&group)?;
                if let Some(bytes) = limits.bytes {
                    set(&group, "memory.max", &bytes.to_string())?;
                    // Without it a container would swap instead of meeting its limit; not every kernel has it.
                    let _ = set(&group, "memory.swap.max", "0");
                }
                if let Some(quota) = limits.quota() {
                    set(&group, "cpu.max", &format!("{quota} {PERIOD}"))?;
                }
                made.push(group);
            }
            Cgroups::Separate { memory, cpu } => {
                if let (Some(base), Some(bytes)) = (memory, limits.bytes) {
                    let group = group(base);
                    make(&group)?;
                    set(&group, "memory.limit_in_bytes", &bytes.to_string())?;
                    made.push(group);
                }
                if let (Some(base), Some(quota)) = (cpu, limits.quota()) {
                    let group = group(base);
                    make(&group)?;
                    set(&group, "cpu.cfs_period_us", &PERIOD.to_string())?;
                    set(&group, "cpu.cfs_quota_us", &quota.to_string())?;
                    made.push(group);
                }
            }
        }
        Ok(made)
    }
}

/// The group of this process in one of the old trees.
fn group_of<'a>(own: &'a str, controller: &str) -> &'a str {
    let lines = own.lines().filter_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    });
    lines.into_iter().next().unwrap_or_default()
}

fn make(place: &Path) -> io::Result<()> {
    match std::fs::create_dir(place) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        // Somebody else may have made it.
        _ => Ok(access(place, AccessFlags::W_OK)?),
    }
}

/// Lets the groups below have limits of their own.
fn delegate(place: &Path) -> io::Result<()> {
    let wanted = "+memory +cpu";
    match set(place, "cgroup.subtree_control", wanted) {
        // The root's may be managed by somebody else, who has done it already.
        Err(_) if std::fs::read_to_string(place.join("cgroup.subtree_control"))?.contains("memory") => Ok(()),
        result => result,
    }
}

fn set(group: &Path, file: &str, value: &str) -> io::Result<()> {
    std::fs::write(group.join(file), value)
}

/// Moves this process into groups; its children are born there.
pub fn join(groups: &[PathBuf]) -> io::Result<()> {
    // Zero is whoever writes it, whatever number that has elsewhere.
    groups.iter().try_for_each(|group| set(group, "cgroup.procs", "0"))
}

/// Whether the kernel killed anything in these groups for want of memory.
pub fn out_of_memory(groups: &[PathBuf]) -> bool {
    let counts = groups.iter().flat_map(|group| {
        ["memory.events", "memory.oom_control"]
            .map(|file| std::fs::read_to_string(group.join(file)).unwrap_or_default())
    });
    counts.into_iter().any(|text| {
        let kills = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        kills
            .and_then(|count| count.trim().parse::<u64>().ok())
            .is_some_and(|count| count > 0)
    })
}

/// Removes groups whose processes have ended; one that is not empty yet stays.
pub fn remove(groups: &[PathBuf]) {
    for group in groups {
        let _ = std::fs::remove_dir(group);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_of_a_process_is_found_in_its_tree() {
        let own = "9:name=systemd:/\n4:memory:/outer/one\n1:cpu,cpuacct:/two\n0::/\n";
        assert_eq!(group_of(own, "memory"), "/outer/one");
        assert_eq!(group_of(own, "cpu"), "/two");
        assert_eq!(group_of(own, "pids"), "");
    }

    #[test]
    fn limits_become_files_of_either_generation() {
        let place = tempfile::tempdir().unwrap();
        let limits = Limits {
            bytes: Some(64 << 20),
            milli_cpus: Some(250),
        };
        let read = |path: PathBuf| std::fs::read_to_string(path).unwrap();
        let two = Cgroups::Unified(place.path().join("two"));
        std::fs::create_dir(place.path().join("two")).unwrap();
        let made = two.prepare("uid", "web.0", limits).unwrap();
        assert_eq!(read(made[0].join("memory.max")), "67108864");
        assert_eq!(read(made[0].join("cpu.max")), "25000 100000");
        let one = Cgroups::Separate {
            memory: Some(place.path().to_owned()),
            cpu: None,
        };
        let made = one.prepare("uid", "web.0", limits).unwrap();
        assert_eq!(read(made[0].join("memory.limit_in_bytes")), "67108864");
        std::fs::write(
            made[0].join("memory.oom_control"),
            "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n",
        )
        .unwrap();
        assert!(out_of_memory(&made));
        assert!(!out_of_memory(&[place.path().join("none")]));
        assert_eq!(
            one.prepare("uid", "web.0", Limits::default()).unwrap(),
            Vec::<PathBuf>::new()
        );
    }
}
