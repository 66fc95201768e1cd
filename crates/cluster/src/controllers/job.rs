//! Jobs: pods that run until enough of them have succeeded.

mod indexes;
mod ledger;
mod policy;
#[cfg(test)]
mod tests;
pub mod verdict;

use super::ownership::Family;
use super::pod_control::{self, PodControl};
use super::{ownership, pods};
use crate::clock;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{EnvVar, EnvVarSource, ObjectFieldSelector, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use ledger::{FINALIZER, INDEX, INDEX_FAILURES, INDEX_IGNORED, Ledger, Stage, size};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Store};
use verdict::Verdict;

/// The only controller name that is ours, in `spec.managedBy`.
const MANAGED_BY: &str = "kubernetes.io/job-controller";

/// Adds the controller of Jobs.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let jobs = cache.store::<Job>();
    let reconciler = Jobs {
        jobs: jobs.clone(),
        pods: Family::new(cache.store()),
    };
    let controller = Controller::new("job", reconciler)
        .for_::<Job>()
        .owns::<Pod>()
        .watches::<Pod>(ownership::adopters(jobs, selector))
        .may(Rule::root::<Job>())
        .may(Rule::new("batch", &["jobs"], &["delete"]))
        .without_resync()
        .concurrency(8);
    manager.add(controller);
}

fn selector(job: &Job) -> Option<stead_machinery::selector::LabelSelector> {
    pods::selector(job.spec.as_ref()?.selector.as_ref()?)
}

struct Jobs {
    jobs: Store<Job>,
    pods: Family<Pod>,
}

impl Reconciler for Jobs {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(job) = self.jobs.get(key) else {
            return self.free_orphans(context, key).await;
        };
        let (Some(spec), Some(selector)) = (&job.spec, selector(&job)) else {
            return Ok(Outcome::Settled);
        };
        if spec.managed_by.as_deref().is_some_and(|name| name != MANAGED_BY) {
            return Ok(Outcome::Settled);
        }
        let free = |pod: &Pod| pod.metadata.deletion_timestamp.is_none();
        let owned = ownership::claim_pods(context, &self.pods, &*job, &selector, free).await?;
        if job.metadata.deletion_timestamp.is_some() {
            return free_all(context, &owned).await;
        }
        if let Some(at) = verdict::finished_at(&job) {
            free_all(context, &owned).await?;
            return expire(context, &job, spec, at).await;
        }
        let before = job.status.clone().unwrap_or_default();
        let ledger = Ledger::new(spec, &before, &owned);
        let mut after = counted(&job, spec, &ledger);
        let went = self.go_on(context, &job, spec, &ledger, &owned, &mut after).await;
        // Whatever was refused, users read in the status how far the Job has come.
        if let Some(patch) = difference(&json!(before), &json!(after)) {
            context.writer().patch_status(&*job, json!({"status": patch})).await?;
        }
        // Only what the status has noted by now may go.
        let stage = match verdict::is_ending(&after) {
            true => Stage::Ending,
            false => Stage::Running,
        };
        free_all(context, &ledger.counted(&owned, stage)).await?;
        Ok(went?.map_or(Outcome::Settled, Outcome::CheckAgain))
    }
}

impl Jobs {
    /// Makes and deletes pods, notes in the status how it goes, and says when to look again.
    async fn go_on(
        &self,
        context: &Context,
        job: &Job,
        spec: &JobSpec,
        ledger: &Ledger,
        owned: &[Arc<Pod>],
        status: &mut JobStatus,
    ) -> Result<Option<Duration>, Error> {
        let now = context.now();
        let suspended = spec.suspend == Some(true);
        if status.start_time.is_none() && !suspended {
            status.start_time = Some(Time(now));
        }
        if let Some(verdict) = verdict::of(spec, status, ledger, now) {
            self.finish(context, job, status, ledger, &verdict).await?;
            return Ok(None);
        }
        if suspended {
            dismiss(context, job, &ledger.active).await?;
            status.start_time = None;
            if verdict::set(status, "Suspended", "True", ("JobSuspended", "Job suspended"), now) {
                tell(context, job, Severity::Normal, "Suspended", "Job suspended");
            }
            return Ok(None);
        }
        if verdict::is_true(status, "Suspended") {
            verdict::set(status, "Suspended", "False", ("JobResumed", "Job resumed"), now);
            tell(context, job, Severity::Normal, "Resumed", "Job resumed");
            status.start_time = Some(Time(now));
        }
        let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or_default();
        let deadline = verdict::deadline(spec, status).map(until);
        let need = verdict::need(spec, ledger);
        if need.surplus > 0 {
            dismiss(context, job, &verdict::surplus(spec, ledger, need.surplus)).await?;
        }
        let missing = need.plain > 0 || !need.indexes.is_empty();
        let mut next = deadline;
        let mut indexes = need.indexes;
        if spec.backoff_limit_per_index.is_some() {
            // Each index has its own patience.
            indexes.retain(|index| {
                let last = ledger.held.get(index);
                let left = last.and_then(|last| verdict::wait_of_index(last, now));
                next = next.into_iter().chain(left).min();
                left.is_none()
            });
        } else if let Some(left) = verdict::wait(spec, owned, now).filter(|_| missing) {
            return Ok(Some(deadline.map_or(left, |at| at.min(left))));
        }
        let plain = (0..need.plain).map(|_| pod(job, spec, None, (0, 0)));
        let indexed = indexes.iter().map(|index| {
            let last = ledger.held.get(index);
            let failures = last.map_or((0, 0), |last| ledger::failures_after(spec, last));
            pod(job, spec, Some(*index), failures)
        });
        let pods: Vec<Pod> = plain.chain(indexed).collect();
        let control = PodControl::new(context, job);
        control.create(&pods.iter().collect::<Vec<_>>()).await?;
        Ok(next)
    }

    /// Ends the Job: its last pods go, and once they are gone and counted it says so.
    async fn finish(
        &self,
        context: &Context,
        job: &Job,
        status: &mut JobStatus,
        ledger: &Ledger,
        verdict: &Verdict,
    ) -> Result<(), Error> {
        let now = context.now();
        let (first, last) = verdict.conditions();
        verdict::set(status, first, "True", verdict.words(), now);
        if let Verdict::Failed { .. } = verdict {
            let active = ledger.active.iter().map(|pod| &**pod);
            PodControl::new(context, job).delete(active).await?;
        } else {
            dismiss(context, job, &ledger.active).await?;
        }
        let quiet = ledger.active.is_empty() && ledger.terminating == 0;
        if quiet && ledger.everything_is_counted() {
            verdict::set(status, last, "True", verdict.words(), now);
            let (reason, message) = verdict.words();
            match verdict {
                Verdict::Succeeded { .. } => {
                    status.completion_time = Some(Time(now));
                    tell(context, job, Severity::Normal, "Completed", "Job completed");
                }
                Verdict::Failed { .. } => tell(context, job, Severity::Warning, reason, message),
            }
        }
        Ok(())
    }

    /// Pods of a Job that is gone need not wait to be counted.
    async fn free_orphans(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let all = self.pods.store.in_namespace(key.namespace().unwrap_or_default());
        let of_job = |pod: &&Arc<Pod>| {
            ownership::controller_of(&pod.metadata).is_some_and(|owner| owner.kind == "Job" && owner.name == key.name())
        };
        let orphans: Vec<_> = all.iter().filter(of_job).cloned().collect();
        free_all(context, &orphans).await
    }
}

/// An event about a Job.
fn tell(context: &Context, job: &Job, severity: Severity, reason: &str, note: &str) {
    let about = ownership::about(job);
    context.events().tell(about, severity, reason, "Running", note);
}

/// The status with what the ledger counts.
fn counted(job: &Job, spec: &JobSpec, ledger: &Ledger) -> JobStatus {
    let some = |count: i32| (count > 0).then_some(count);
    let indexes = |indexes: &indexes::Indexes| (indexes.len() > 0).then(|| indexes.to_string());
    let ready = ledger.active.iter().filter(|pod| pods::is_ready(pod)).count();
    let mut status = JobStatus {
        active: some(size(ledger.active.len())),
        ready: Some(size(ready)),
        terminating: Some(ledger.terminating),
        succeeded: some(ledger.succeeded),
        failed: some(ledger.failed),
        uncounted_terminated_pods: Some(ledger.uncounted.clone()),
        ..job.status.clone().unwrap_or_default()
    };
    if ledger::is_indexed(spec) {
        status.completed_indexes = indexes(&ledger.completed);
        status.failed_indexes = spec.backoff_limit_per_index.map(|_| ledger.failed_indexes.to_string());
    }
    status
}

/// A merge patch from one status to another; `None` if they are the same.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Some(old), Some(new)) = (before.as_object(), after.as_object()) else {
        return (before != after).then(|| after.clone());
    };
    let gone = old.keys().filter(|key| !new.contains_key(*key));
    let mut patch: serde_json::Map<String, Value> = gone.map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in new {
        match old.get(key) {
            Some(known) => patch.extend(difference(known, value).map(|part| (key.clone(), part))),
            None => patch.extend([(key.clone(), value.clone())]),
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// A pod of the Job, kept by our finalizer until it is counted. It notes how often its index has failed before, as
/// it counts and as a policy ignored it.
fn pod(job: &Job, spec: &JobSpec, index: Option<i32>, failures: (i32, i32)) -> Pod {
    let meta = &job.metadata;
    let name = meta.name.as_deref().unwrap_or_default();
    let prefix = index.map_or(name.to_string(), |index| format!("{name}-{index}"));
    let mut pod = pods::from_template(&spec.template, meta.namespace.as_deref(), &prefix);
    pod.metadata.owner_references = Some(vec![ownership::controller_reference(job)]);
    pod.metadata
        .finalizers
        .get_or_insert_default()
        .push(FINALIZER.to_string());
    let Some(index) = index else { return pod };
    let annotations = pod.metadata.annotations.get_or_insert_default();
    annotations.insert(INDEX.to_string(), index.to_string());
    if spec.backoff_limit_per_index.is_some() {
        annotations.insert(INDEX_FAILURES.to_string(), failures.0.to_string());
        if failures.1 > 0 {
            annotations.insert(INDEX_IGNORED.to_string(), failures.1.to_string());
        }
    }
    let labels = pod.metadata.labels.get_or_insert_default();
    labels.insert(INDEX.to_string(), index.to_string());
    if let Some(inner) = &mut pod.spec {
        inner.hostname.get_or_insert_with(|| format!("{name}-{index}"));
        let containers = inner.containers.iter_mut();
        for container in containers.chain(inner.init_containers.iter_mut().flatten()) {
            let env = container.env.get_or_insert_default();
            if !env.iter().any(|one| one.name == "JOB_COMPLETION_INDEX") {
                env.push(index_variable());
            }
        }
    }
    pod
}

fn index_variable() -> EnvVar {
    EnvVar {
        name: "JOB_COMPLETION_INDEX".to_string(),
        value: None,
        value_from: Some(EnvVarSource {
            field_ref: Some(ObjectFieldSelector {
                field_path: format!("metadata.labels['{INDEX}']"),
                api_version: Some("v1".to_string()),
            }),
            ..EnvVarSource::default()
        }),
    }
}

/// Deletes pods that shall not be counted.
async fn dismiss(context: &Context, job: &Job, pods: &[Arc<Pod>]) -> Result<(), Error> {
    let control = &PodControl::new(context, job);
    let mut dismissals = Vec::with_capacity(pods.len());
    for pod in pods {
        dismissals.push(async move {
            let freed = unfinalize(context, pod).await?;
            let pod = freed.as_ref().unwrap_or(pod.as_ref());
            control.delete_one(pod).await
        });
    }
    pod_control::all(dismissals.into_iter()).await
}

async fn free_all(context: &Context, pods: &[Arc<Pod>]) -> Result<Outcome, Error> {
    let mut frees = Vec::with_capacity(pods.len());
    for pod in pods {
        frees.push(unfinalize(context, pod));
    }
    pod_control::all(frees.into_iter()).await?;
    Ok(Outcome::Settled)
}

/// Takes our finalizer off a pod; gives the pod after it, if it had one.
async fn unfinalize(context: &Context, pod: &Pod) -> Result<Option<Pod>, Error> {
    if !ledger::has_finalizer(pod) {
        return Ok(None);
    }
    let finalizers = pod.metadata.finalizers.iter().flatten();
    let rest: Vec<_> = finalizers.filter(|name| *name != FINALIZER).collect();
    let patch = json!({"metadata": {"finalizers": rest}});
    match context.writer().patch(pod, patch).await {
        Err(error) if error.is_not_found() => Ok(None),
        other => other?.object().map(Some),
    }
}

/// Deletes a finished Job when its time to live is over.
async fn expire(context: &Context, job: &Job, spec: &JobSpec, finished: Timestamp) -> Result<Outcome, Error> {
    let Some(seconds) = spec.ttl_seconds_after_finished else {
        return Ok(Outcome::Settled);
    };
    let due = clock::after(finished, SignedDuration::from_secs(i64::from(seconds)));
    match Duration::try_from(due.duration_since(context.now())) {
        Ok(left) if !left.is_zero() => Ok(Outcome::CheckAgain(left)),
        _ => {
            context.writer().delete(job, Propagation::Foreground).await?;
            Ok(Outcome::Settled)
        }
    }
}
