//! What this machine can give to pods.

use stead_cluster::node::registration::Capacity;

/// The share of one of so many nodes: they are all this machine, so each shows what it has. Nothing is divided, as
/// on any computer that runs several things at once; only the number of pods is a limit of our own.
pub fn capacity(nodes: usize) -> Capacity {
    let most_pods = 250;
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    Capacity {
        cpus: u64::try_from(cpus).unwrap_or(1),
        memory_bytes: memory().unwrap_or(1 << 30),
        pods: u32::try_from(most_pods / nodes.max(1)).unwrap_or(1).max(10),
        storage_bytes: 10 << 30,
    }
}

/// All memory, as the kernel counts it.
fn memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
    let kibibytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes * 1024)
}
