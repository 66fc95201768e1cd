//! The loop that takes keys from the queue and runs reconciles.
//!
//! A reconcile that panics, hangs or fails concerns its own key and nobody else's.

use super::{Controller, Keys, Options, Undecodable};
use crate::cache::Cache;
use crate::clock::Clock;
use crate::error::{Class, Error};
use crate::events::Recorder;
use crate::gate::Gate;
use crate::history::{History, Memory, Run};
use crate::key::Key;
use crate::kind::Kind;
use crate::leader::Fence;
use crate::metrics::{ControllerMetrics, Metrics};
use crate::outcome::Outcome;
use crate::plan::Severity;
use crate::queue::{Job, Queue, Verdict, Wake};
use crate::reconciler::{AnyReconciler, Context};
use crate::writer::Writer;
use futures::FutureExt;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::Instrument;

/// How soon a key that waits for the cache is looked at again, if no event wakes it before.
const CONSISTENCY_CHECK: Duration = Duration::from_millis(50);
/// A resync is spread over its period in so many steps.
const RESYNC_STEPS: u32 = 64;

/// A controller that is connected to a cache and can run.
#[derive(Clone)]
pub(crate) struct Runtime {
    pub name: Arc<str>,
    pub queue: Queue,
    pub history: Arc<History>,
    pub root: Option<Kind>,
    reconciler: Arc<dyn AnyReconciler>,
    options: Options,
    gate: Arc<Gate>,
    metrics: ControllerMetrics,
    keys: Vec<Keys>,
    undecodable: Vec<Undecodable>,
    context: Arc<Template>,
    runs: Arc<AtomicU64>,
}

/// What every context of a controller has in common.
pub(crate) struct Template {
    pub client: Client,
    pub cache: Cache,
    pub writer: Writer,
    pub clock: Arc<dyn Clock>,
    pub events: Recorder,
    pub fence: Fence,
    pub metrics: Metrics,
    owned: Arc<[Arc<dyn super::OwnedStore>]>,
}

/// What the manager has for a controller.
pub(crate) struct Surroundings {
    pub client: Client,
    pub cache: Cache,
    pub writer: Writer,
    pub clock: Arc<dyn Clock>,
    pub events: Recorder,
    pub fence: Fence,
    pub metrics: Metrics,
    pub seed: u64,
    pub memory: Memory,
}

impl Runtime {
    /// Connects a controller to a cache: from now on events fill its queue.
    pub fn connect(controller: Controller, around: Surroundings) -> Self {
        let mut settings = controller.options.queue.clone();
        settings.seed ^= around.seed;
        let queue = Queue::new(settings);
        let (mut owned, mut keys, mut undecodable) = (Vec::new(), Vec::new(), Vec::new());
        for connect in controller.sources {
            let connected = connect(&around.cache, &queue);
            owned.extend(connected.owned);
            keys.extend(connected.keys);
            undecodable.extend(connected.undecodable);
        }
        for trigger in &controller.triggers {
            trigger.connect(&queue);
        }
        let metrics = around
            .metrics
            .controller(&controller.name, controller.options.concurrency);
        let (reader, read) = (metrics.clone(), queue.clone());
        around
            .metrics
            .registry()
            .before_render(move || reader.read_queue(&read));
        Runtime {
            name: controller.name,
            queue,
            history: Arc::new(History::new(around.memory)),
            root: controller.root,
            reconciler: controller.reconciler,
            options: controller.options,
            gate: Arc::new(Gate::new(around.cache.clone())),
            metrics,
            keys,
            undecodable,
            context: Arc::new(Template {
                client: around.client,
                cache: around.cache,
                writer: around.writer,
                clock: around.clock,
                events: around.events,
                fence: around.fence,
                metrics: around.metrics,
                owned: owned.into(),
            }),
            runs: Arc::new(AtomicU64::new(around.seed)),
        }
    }

    /// Works until `stop`, then lets what runs finish. The manager gives up waiting at its own deadline.
    pub async fn run(self, stop: CancellationToken) {
        let mut running = JoinSet::new();
        let _resync = AbortOnDropHandle::new(tokio::spawn(self.clone().resync(stop.clone())));
        while !stop.is_cancelled() {
            while running.len() >= self.options.concurrency {
                running.join_next().await;
            }
            let job = tokio::select! {
                () = stop.cancelled() => break,
                job = self.queue.next() => job,
                Some(_) = running.join_next(), if !running.is_empty() => continue,
            };
            let Some(job) = job else { break };
            match self.gate.behind(&job.key, Instant::now()) {
                Some(what) => {
                    tracing::debug!(controller = %self.name, key = %job.key, what, "the cache is behind our writes");
                    self.metrics.deferred.increment();
                    self.queue.defer(job, CONSISTENCY_CHECK);
                }
                None => {
                    running.spawn(self.clone().work(job));
                }
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// One run of one key.
    async fn work(self, job: Job) {
        let key = job.key.clone();
        let mut ending = Ending {
            queue: &self.queue,
            key: &key,
            verdict: Verdict::Failed { not_before: None },
        };
        let id = self.runs.fetch_add(1, Ordering::Relaxed);
        let context = self.context_for(&job, id);
        let (at, started) = (context.now(), Instant::now());
        self.metrics.queue_time.observe(job.waited.as_secs_f64());
        self.metrics.active.add(1.0);
        for reason in &job.reasons {
            self.metrics.woken(reason.label());
        }
        let span = tracing::info_span!(
            "reconcile",
            controller = %self.name,
            %key,
            reconcile_id = context.id(),
            outcome = tracing::field::Empty,
            error = tracing::field::Empty,
        );
        let result = self.attempt(&context, &key).instrument(span.clone()).await;
        let took = started.elapsed();
        let written = context.writer.take_written();
        self.gate.expect(&key, &written, Instant::now());
        self.metrics.active.add(-1.0);
        self.metrics.finished(took, result.as_ref().err());
        match &result {
            Ok(outcome) => span.record("outcome", tracing::field::display(outcome)),
            Err(error) => span.record("error", tracing::field::display(error)),
        };
        span.in_scope(|| self.log(&result, took));
        ending.verdict = self.judge(&result);
        self.history.record(
            &key,
            Run {
                id: context.id(),
                at,
                took,
                reasons: job.reasons,
                outcome: result.as_ref().map_or_else(Error::to_string, Outcome::to_string),
                failed: result.as_ref().err().map(Error::class),
                writes: written,
                further_writes: 0,
                plan: context.plan.lock().take(),
            },
        );
    }

    async fn attempt(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let broken = self.undecodable.iter().find_map(|find| find(key));
        if let (Some(broken), Some(kind)) = (broken, &self.root) {
            return Err(self.report_undecodable(kind, key, broken));
        }
        // Lost leadership ends the run at its next await: whoever leads now may be at work already.
        let guarded = AssertUnwindSafe(self.reconciler.run(context, key)).catch_unwind();
        let timed = tokio::time::timeout(self.options.timeout, guarded);
        tokio::select! {
            biased;
            () = self.context.fence.lost() => Err(Error::NotLeader { what: format!("reconcile {key}") }),
            result = timed => match result {
                Ok(Ok(result)) => result,
                Ok(Err(panic)) => {
                    self.metrics.panics.increment();
                    Err(Error::Panic(panic_message(&*panic)))
                }
                Err(_) => {
                    self.metrics.timeouts.increment();
                    Err(Error::Timeout(self.options.timeout))
                }
            },
        }
    }

    /// The object's own status cannot be written without knowing what it holds, so people hear of it by an event.
    fn report_undecodable(&self, kind: &Kind, key: &Key, broken: crate::cache::Undecodable) -> Error {
        let about = ObjectReference {
            api_version: Some(kind.api_version()),
            kind: Some(kind.kind.to_string()),
            namespace: key.namespace().map(str::to_owned),
            name: Some(key.name().to_owned()),
            uid: broken.uid,
            ..ObjectReference::default()
        };
        let error = Error::Undecodable {
            kind: Box::new(kind.clone()),
            key: key.clone(),
            message: broken.message,
        };
        let (reason, note) = (error.reason(), error.to_string());
        self.context
            .events
            .tell(about, Severity::Warning, reason, "Reconcile", &note);
        error
    }

    /// How often every root is looked at without any event.
    pub fn resync_period(&self) -> Option<Duration> {
        self.options.resync
    }

    fn judge(&self, result: &Result<Outcome, Error>) -> Verdict {
        match result {
            Ok(Outcome::Settled | Outcome::Waiting { .. }) => {
                self.metrics.success.increment();
                Verdict::Settled
            }
            Ok(Outcome::CheckAgain(after)) => {
                self.metrics.requeue_after.increment();
                Verdict::After(*after)
            }
            Err(error) => match error.class() {
                Class::Conflict => Verdict::Conflicted,
                Class::Transient | Class::UserMistake | Class::Bug => Verdict::Failed {
                    not_before: error.retry_after(),
                },
            },
        }
    }

    fn log(&self, result: &Result<Outcome, Error>, took: Duration) {
        match result {
            Ok(outcome) => tracing::debug!(%outcome, ?took, "reconciled"),
            Err(error) => match error.class() {
                Class::Conflict => tracing::debug!(%error, ?took, "somebody was faster"),
                Class::Transient | Class::UserMistake => tracing::warn!(%error, ?took, "reconcile failed"),
                Class::Bug => tracing::error!(%error, ?took, "reconcile failed by our own mistake"),
            },
        }
    }

    fn context_for(&self, job: &Job, id: u64) -> Context {
        let template = &self.context;
        Context {
            controller: self.name.clone(),
            id,
            reasons: job.reasons.clone().into(),
            failures: job.failures,
            client: template.client.clone(),
            cache: template.cache.clone(),
            writer: template.writer.fresh(),
            clock: template.clock.clone(),
            events: template.events.clone(),
            metrics: template.metrics.clone(),
            owned: template.owned.clone(),
            plan: Arc::default(),
        }
    }

    /// Looks at every root once a period, a few at a time: a burst of all of them would starve events.
    async fn resync(self, stop: CancellationToken) {
        let Some(period) = self.options.resync else { return };
        let step = period / RESYNC_STEPS;
        loop {
            let keys: Vec<Key> = self.keys.iter().flat_map(|keys| keys()).collect();
            let batch = keys.len().div_ceil(RESYNC_STEPS as usize).max(1);
            let mut batches = keys.chunks(batch);
            for _ in 0..RESYNC_STEPS {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = tokio::time::sleep(step) => {}
                }
                for key in batches.next().into_iter().flatten() {
                    self.queue.add(key.clone(), crate::queue::Class::Low, Wake::Resync);
                }
            }
        }
    }
}

/// Gives a key back when its run is over, however it ends: a run that is cancelled at the end of the drain must
/// not leave a key that this process never looks at again.
struct Ending<'a> {
    queue: &'a Queue,
    key: &'a Key,
    verdict: Verdict,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.queue.done(self.key, self.verdict);
    }
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
