//! What an operator measures about itself.
//!
//! The names and labels are those of controller-runtime and client-go, so that existing dashboards and alerts
//! just work; what they do not have is named `stead_*`. The registry is our own, because those names do
//! not fit the renaming that OpenMetrics libraries do to counters.

mod process;
mod registry;

pub use registry::{Counter, Gauge, Histogram, Registry};

use crate::kind::Kind;
use std::sync::Arc;
use std::time::Duration;

const RECONCILE_BUCKETS: &[f64] = &[
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
];
/// Twelve buckets from ten nanoseconds, times ten.
const QUEUE_BUCKETS: &[f64] = &[1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0];
const REQUEST_BUCKETS: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// A shared handle to everything that is measured.
#[derive(Clone, Default)]
pub struct Metrics {
    registry: Arc<Registry>,
}

/// The metrics of one controller, looked up once.
#[derive(Clone)]
pub struct ControllerMetrics {
    /// Reconciles that ended well.
    pub success: Counter,
    /// Reconciles that failed.
    pub error: Counter,
    /// Reconciles that were put back at once.
    pub requeue: Counter,
    /// Reconciles that asked to be looked at again.
    pub requeue_after: Counter,
    /// Failures.
    pub errors: Counter,
    /// Failures that only a person can mend.
    pub terminal_errors: Counter,
    /// Panics.
    pub panics: Counter,
    /// Reconciles that took too long.
    pub timeouts: Counter,
    /// Reconciles that run now.
    pub active: Gauge,
    /// How long reconciles take.
    pub time: Histogram,
    /// How long keys wait in line.
    pub queue_time: Histogram,
    /// How long the work on a key takes.
    pub work_time: Histogram,
    /// Reconciles that waited for the cache to see our own writes.
    pub deferred: Counter,
    plain_total: Counter,
    plain_errors: Counter,
    plain_time: Histogram,
    metrics: Metrics,
    name: Arc<str>,
}

impl Metrics {
    /// The registry, to add metrics of one's own.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What `/metrics` answers.
    pub fn render(&self) -> String {
        process::read(&self.registry);
        self.registry.render()
    }

    /// How many objects of a kind the cache holds, and their size as JSON.
    pub(crate) fn cache_size(&self, kind: &Kind, objects: usize, broken: usize, bytes: u64) {
        let resource = kind.resource();
        let labels = [("resource", resource.as_str())];
        self.registry
            .gauge("stead_cache_objects", "Objects in the cache.", &labels)
            .set(objects as f64);
        self.registry
            .gauge(
                "stead_cache_bytes",
                "Size as JSON of the objects in the cache.",
                &labels,
            )
            .set(bytes as f64);
        self.registry
            .gauge(
                "stead_cache_undecodable_objects",
                "Objects that do not decode as their type.",
                &labels,
            )
            .set(broken as f64);
    }

    /// A request to the API server has ended.
    pub fn request(&self, method: &str, verb: &str, host: &str, code: &str, took: Duration) {
        self.registry
            .counter(
                "rest_client_requests_total",
                "Number of HTTP requests, partitioned by status code, method, and host.",
                &[("code", code), ("method", method), ("host", host)],
            )
            .increment();
        self.registry
            .histogram(
                "rest_client_request_duration_seconds",
                "Request latency in seconds. Broken down by verb, and host.",
                &[("verb", verb), ("host", host)],
                REQUEST_BUCKETS,
            )
            .observe(took.as_secs_f64());
    }

    /// Whether this process leads.
    pub fn leading(&self, name: &str, leads: f64) {
        self.registry
            .gauge(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master.",
                &[("name", name)],
            )
            .set(leads);
    }

    /// The same write again and again.
    pub fn hot_loop(&self, controller: &str) {
        self.registry
            .counter(
                "stead_hot_loops_total",
                "Times a controller repeated the same write without end.",
                &[("controller", controller)],
            )
            .increment();
    }

    /// The metrics of a controller, all present from the start with 0.
    pub fn controller(&self, name: &str, concurrency: usize) -> ControllerMetrics {
        let registry = &self.registry;
        let of = [("controller", name)];
        let queue = [("controller", name), ("name", name)];
        let counter = |metric: &'static str, help: &'static str| registry.counter(metric, help, &of);
        let result = |result: &str| {
            registry.counter(
                "controller_runtime_reconcile_total",
                "Total number of reconciliations per controller.",
                &[("controller", name), ("result", result)],
            )
        };
        registry
            .gauge(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller.",
                &of,
            )
            .set(concurrency as f64);
        ControllerMetrics {
            success: result("success"),
            error: result("error"),
            requeue: result("requeue"),
            requeue_after: result("requeue_after"),
            errors: counter(
                "controller_runtime_reconcile_errors_total",
                "Total number of reconciliation errors per controller.",
            ),
            terminal_errors: counter(
                "controller_runtime_terminal_reconcile_errors_total",
                "Total number of terminal reconciliation errors per controller.",
            ),
            panics: counter(
                "controller_runtime_reconcile_panics_total",
                "Total number of reconciliation panics per controller.",
            ),
            timeouts: counter(
                "controller_runtime_reconcile_timeouts_total",
                "Total number of reconciliation timeouts per controller.",
            ),
            active: registry.gauge(
                "controller_runtime_active_workers",
                "Number of currently used workers per controller.",
                &of,
            ),
            time: registry.histogram(
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller.",
                &of,
                RECONCILE_BUCKETS,
            ),
            queue_time: registry.histogram(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested.",
                &queue,
                QUEUE_BUCKETS,
            ),
            work_time: registry.histogram(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes.",
                &queue,
                QUEUE_BUCKETS,
            ),
            deferred: counter(
                "stead_reconciles_deferred_total",
                "Times a reconcile waited for the cache to see our own writes.",
            ),
            plain_total: counter("reconcile_total", "Total number of reconciliations."),
            plain_errors: counter("reconcile_errors_total", "Total number of failed reconciliations."),
            plain_time: registry.histogram(
                "reconcile_duration_seconds",
                "Length of time per reconciliation.",
                &of,
                RECONCILE_BUCKETS,
            ),
            metrics: self.clone(),
            name: name.into(),
        }
    }
}

impl ControllerMetrics {
    /// A reconcile has ended.
    pub(crate) fn finished(&self, took: Duration, failed: Option<&crate::Error>) {
        self.time.observe(took.as_secs_f64());
        self.plain_time.observe(took.as_secs_f64());
        self.work_time.observe(took.as_secs_f64());
        self.plain_total.increment();
        if let Some(error) = failed {
            self.error.increment();
            self.errors.increment();
            self.plain_errors.increment();
            if error.class() == crate::Class::UserMistake {
                self.terminal_errors.increment();
            }
        }
    }

    /// Counts what woke a key.
    pub(crate) fn woken(&self, reason: &str) {
        self.metrics
            .registry
            .counter(
                "stead_reconcile_triggers_total",
                "What woke a key.",
                &[("controller", &self.name), ("reason", reason)],
            )
            .increment();
    }

    /// Reads the queue, when metrics are asked for.
    pub(crate) fn read_queue(&self, queue: &crate::queue::Queue) {
        let now = tokio::time::Instant::now();
        let registry = &self.metrics.registry;
        let labels = [("controller", &*self.name), ("name", &*self.name)];
        queue.inspect(|ledger| {
            for class in crate::queue::Class::ALL {
                let labels = [labels[0], labels[1], ("priority", class.label())];
                registry
                    .gauge("workqueue_depth", "Current depth of workqueue by workqueue and priority.", &labels)
                    .set(ledger.depth(class) as f64);
            }
            let (sum, longest) = ledger.unfinished(now);
            registry
                .gauge(
                    "workqueue_unfinished_work_seconds",
                    "How many seconds of work has been done that is in progress and hasn't been observed by work_duration.",
                    &labels,
                )
                .set(sum.as_secs_f64());
            registry
                .gauge(
                    "workqueue_longest_running_processor_seconds",
                    "How many seconds has the longest running processor for workqueue been running.",
                    &labels,
                )
                .set(longest.as_secs_f64());
            registry
                .counter("workqueue_adds_total", "Total number of adds handled by workqueue.", &labels)
                .set(ledger.adds);
            registry
                .counter("workqueue_retries_total", "Total number of retries handled by workqueue.", &labels)
                .set(ledger.retries);
        });
    }
}
