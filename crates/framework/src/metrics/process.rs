//! What the operating system knows about this process, under the usual `process_*` names.

use super::Registry;

/// Ticks of a second in `/proc`; Linux has not used another number for decades.
const TICKS: f64 = 100.0;

/// Brings the process's metrics up to date. Nothing happens where there is no `/proc`.
pub(super) fn read(registry: &Registry) {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return;
    };
    // The second field is the program's name in brackets and may contain anything.
    let Some((_, fields)) = stat.rsplit_once(')') else {
        return;
    };
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |position: usize| fields.get(position).and_then(|text| text.parse::<f64>().ok());
    let set = |name, help, value: Option<f64>| {
        if let Some(value) = value {
            registry.gauge(name, help, &[]).set(value);
        }
    };
    let cpu = number(11).zip(number(12)).map(|(user, system)| (user + system) / TICKS);
    set(
        "process_cpu_seconds_total",
        "Total user and system CPU time spent in seconds.",
        cpu,
    );
    set(
        "process_virtual_memory_bytes",
        "Virtual memory size in bytes.",
        number(20),
    );
    let pages = number(21).map(|pages| pages * 4096.0);
    set("process_resident_memory_bytes", "Resident memory size in bytes.", pages);
    set("process_threads", "Number of OS threads in the process.", number(17));
    let files = std::fs::read_dir("/proc/self/fd")
        .ok()
        .map(|files| files.count() as f64);
    set("process_open_fds", "Number of open file descriptors.", files);
    let boot = std::fs::read_to_string("/proc/stat").ok().and_then(|stat| {
        let line = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
        line.trim().parse::<f64>().ok()
    });
    let start = boot.zip(number(19)).map(|(boot, ticks)| boot + ticks / TICKS);
    set(
        "process_start_time_seconds",
        "Start time of the process since unix epoch in seconds.",
        start,
    );
}
