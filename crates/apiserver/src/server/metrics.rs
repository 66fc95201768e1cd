//! The counters that operators of Kubernetes know, under their usual names.
//!
//! Written by hand into the Prometheus text form: there are few of them, and the hot path is one lookup in a
//! map whose keys are built once per kind of request.

use super::request::RequestInfo;
use jiff::Timestamp;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// The bounds of the latency histogram, in seconds.
const BUCKETS: [f64; 12] = [0.0005, 0.001, 0.005, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

/// All counters of one server.
pub struct Metrics {
    requests: Mutex<BTreeMap<RequestKey, Arc<Series>>>,
    watches: Mutex<BTreeMap<[String; 3], Arc<WatchSeries>>>,
    reads: AtomicI64,
    writes: AtomicI64,
    started: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct RequestKey {
    verb: &'static str,
    group: String,
    version: String,
    resource: String,
    subresource: String,
    scope: &'static str,
    code: u16,
    dry_run: &'static str,
}

impl RequestKey {
    /// As Prometheus writes them, in the order of their names.
    fn labels(&self) -> String {
        let RequestKey {
            verb,
            group,
            version,
            resource,
            subresource,
            scope,
            code,
            dry_run,
        } = self;
        format!(
            "code=\"{code}\",component=\"apiserver\",dry_run=\"{dry_run}\",group=\"{group}\",resource=\"{resource}\",scope=\"{scope}\",subresource=\"{subresource}\",verb=\"{verb}\",version=\"{version}\""
        )
    }
}

#[derive(Default)]
struct Series {
    count: AtomicU64,
    micros: AtomicU64,
    buckets: [AtomicU64; BUCKETS.len()],
}

/// Counters of the watches on one resource.
#[derive(Default)]
pub struct WatchSeries {
    open: AtomicI64,
    events: AtomicU64,
}

/// An open watch; counted until it is dropped.
pub struct WatchGuard {
    series: Arc<WatchSeries>,
}

/// A request in flight; counted until it is dropped.
pub struct FlightGuard<'a> {
    gauge: &'a AtomicI64,
}

impl Drop for FlightGuard<'_> {
    fn drop(&mut self) {
        self.gauge.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        self.series.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl WatchGuard {
    pub fn sent(&self, events: u64) {
        self.series.events.fetch_add(events, Ordering::Relaxed);
    }
}

impl Metrics {
    pub fn new(started: Timestamp) -> Self {
        Metrics {
            requests: Mutex::default(),
            watches: Mutex::default(),
            reads: AtomicI64::new(0),
            writes: AtomicI64::new(0),
            started,
        }
    }

    pub fn enter(&self, verb: &str) -> FlightGuard<'_> {
        let gauge = match verb {
            "get" | "list" => &self.reads,
            _ => &self.writes,
        };
        gauge.fetch_add(1, Ordering::Relaxed);
        FlightGuard { gauge }
    }

    pub fn watch(&self, group: &str, version: &str, resource: &str) -> WatchGuard {
        let key = [group.to_string(), version.to_string(), resource.to_string()];
        let series = self.watches.lock().entry(key).or_default().clone();
        series.open.fetch_add(1, Ordering::Relaxed);
        WatchGuard { series }
    }

    pub fn finished(&self, info: &RequestInfo, code: u16, dry_run: bool, seconds: f64) {
        let key = key(info, code, dry_run);
        let series = self.requests.lock().entry(key).or_default().clone();
        series.count.fetch_add(1, Ordering::Relaxed);
        series.micros.fetch_add((seconds * 1e6) as u64, Ordering::Relaxed);
        for (bound, bucket) in BUCKETS.iter().zip(&series.buckets) {
            if seconds <= *bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// The whole page, in Prometheus' text form.
    pub fn page(&self, now: Timestamp, revision: u64) -> String {
        let mut out = String::with_capacity(4096);
        self.request_totals(&mut out);
        self.request_durations(&mut out);
        self.watch_counts(&mut out);
        let mut gauge = |name: &str, labels: &str, help: &str, value: String| {
            let _ = write!(
                out,
                "# HELP {name} {help}\n# TYPE {name} gauge\n{name}{labels} {value}\n"
            );
        };
        let reads = self.reads.load(Ordering::Relaxed);
        let writes = self.writes.load(Ordering::Relaxed);
        gauge(
            "apiserver_current_inflight_requests",
            "{request_kind=\"readOnly\"}",
            "Requests in flight by kind.",
            format!("{reads}\napiserver_current_inflight_requests{{request_kind=\"mutating\"}} {writes}"),
        );
        gauge(
            "apiserver_storage_revision",
            "",
            "The newest revision of the store.",
            revision.to_string(),
        );
        gauge(
            "process_start_time_seconds",
            "",
            "Start time of the process since unix epoch in seconds.",
            self.started.as_second().to_string(),
        );
        for (name, help, value) in process(now) {
            gauge(name, "", help, value);
        }
        out
    }

    fn request_totals(&self, out: &mut String) {
        out.push_str("# HELP apiserver_request_total Counter of apiserver requests broken out for each verb, dry run value, group, version, resource, scope, component, and HTTP response code.\n# TYPE apiserver_request_total counter\n");
        for (key, series) in self.requests.lock().iter() {
            let count = series.count.load(Ordering::Relaxed);
            let _ = writeln!(out, "apiserver_request_total{{{}}} {count}", key.labels());
        }
    }

    fn request_durations(&self, out: &mut String) {
        const NAME: &str = "apiserver_request_duration_seconds";
        let _ = writeln!(
            out,
            "# HELP {NAME} Response latency distribution in seconds.\n# TYPE {NAME} histogram"
        );
        for (key, series) in self.requests.lock().iter() {
            let labels = key.labels();
            for (bound, bucket) in BUCKETS.iter().zip(&series.buckets) {
                let _ = writeln!(
                    out,
                    "{NAME}_bucket{{{labels},le=\"{bound}\"}} {}",
                    bucket.load(Ordering::Relaxed)
                );
            }
            let count = series.count.load(Ordering::Relaxed);
            let sum = series.micros.load(Ordering::Relaxed) as f64 / 1e6;
            let _ = writeln!(out, "{NAME}_bucket{{{labels},le=\"+Inf\"}} {count}");
            let _ = writeln!(out, "{NAME}_sum{{{labels}}} {sum}\n{NAME}_count{{{labels}}} {count}");
        }
    }

    fn watch_counts(&self, out: &mut String) {
        out.push_str("# HELP apiserver_longrunning_requests Gauge of all active long-running apiserver requests.\n# TYPE apiserver_longrunning_requests gauge\n");
        let watches = self.watches.lock();
        for ([group, version, resource], series) in watches.iter() {
            let open = series.open.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_longrunning_requests{{group=\"{group}\",resource=\"{resource}\",verb=\"WATCH\",version=\"{version}\"}} {open}"
            );
        }
        out.push_str("# HELP apiserver_watch_events_total Number of events sent in watch clients\n# TYPE apiserver_watch_events_total counter\n");
        for ([group, version, resource], series) in watches.iter() {
            let events = series.events.load(Ordering::Relaxed);
            let _ = writeln!(
                out,
                "apiserver_watch_events_total{{group=\"{group}\",resource=\"{resource}\",version=\"{version}\"}} {events}"
            );
        }
    }
}

fn key(info: &RequestInfo, code: u16, dry_run: bool) -> RequestKey {
    let dry_run = if dry_run { "All" } else { "" };
    let verb = match info.verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" => "POST",
        "update" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    };
    match &info.resource {
        None => RequestKey {
            verb,
            group: String::new(),
            version: String::new(),
            resource: String::new(),
            subresource: String::new(),
            scope: "",
            code,
            dry_run,
        },
        Some(path) => RequestKey {
            verb,
            group: path.group.clone(),
            version: path.version.clone(),
            resource: path.resource.clone(),
            subresource: path.subresource.clone(),
            scope: match (path.name.is_empty(), path.namespace.is_empty()) {
                (false, _) => "resource",
                (true, false) => "namespace",
                (true, true) => "cluster",
            },
            code,
            dry_run,
        },
    }
}

/// What the operating system says of this process; nothing where it says nothing.
fn process(_now: Timestamp) -> Vec<(&'static str, &'static str, String)> {
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else {
        return Vec::new();
    };
    // The second field is the command in parentheses and may hold anything; count from behind it.
    let Some((_, rest)) = stat.rsplit_once(')') else {
        return Vec::new();
    };
    let field = |index: usize| {
        rest.split_whitespace()
            .nth(index)
            .and_then(|f| f.parse::<u64>().ok())
            .unwrap_or(0)
    };
    // Ticks are hundredths of a second and pages 4 KiB on every Linux that Rust supports by default.
    let cpu = (field(11) + field(12)) as f64 / 100.0;
    vec![
        (
            "process_cpu_seconds_total",
            "Total user and system CPU time spent in seconds.",
            cpu.to_string(),
        ),
        (
            "process_resident_memory_bytes",
            "Resident memory size in bytes.",
            (field(21) * 4096).to_string(),
        ),
        (
            "process_virtual_memory_bytes",
            "Virtual memory size in bytes.",
            field(20).to_string(),
        ),
    ]
}
