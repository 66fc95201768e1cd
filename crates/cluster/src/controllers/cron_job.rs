//! CronJobs: a Job at each time of a schedule.

mod timing;

use super::{created, job, ownership};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::ObjectMeta;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Severity, Store};
use stead_machinery::cron::Schedule;

const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Adds the controller of CronJobs.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let reconciler = CronJobs {
        crons: cache.store(),
        jobs: cache.store(),
    };
    let controller = Controller::new("cronjob", reconciler)
        .for_::<CronJob>()
        .owns::<Job>()
        .may(Rule::root::<CronJob>())
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

struct CronJobs {
    crons: Store<CronJob>,
    jobs: Store<Job>,
}

impl Reconciler for CronJobs {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(cron) = self.crons.get(key) else {
            return Ok(Outcome::Settled);
        };
        let spec = &cron.spec;
        if cron.metadata.deletion_timestamp.is_some() {
            return Ok(Outcome::Settled);
        }
        let uid = cron.metadata.uid.as_deref().unwrap_or_default();
        let mut jobs = self.jobs.owned_by(uid);
        jobs.retain(|job| ownership::is_controlled_by(&job.metadata, uid));
        for old in timing::history(spec, &jobs) {
            context.writer().delete(&**old, Propagation::Background).await?;
            let note = format!("Deleted job {}", old.metadata.name.as_deref().unwrap_or_default());
            tell(context, &cron, Severity::Normal, "SuccessfulDelete", &note);
        }
        for (name, end) in just_finished(&cron, &jobs) {
            let note = format!("Saw completed job: {name}, condition: {end}");
            tell(context, &cron, Severity::Normal, "SawCompletedJob", &note);
        }
        let mut status = observed(&cron, &jobs);
        let next = run(context, &cron, spec, &jobs, &mut status).await?;
        let before = json!(cron.status.clone().unwrap_or_default());
        if let Some(patch) = job::difference(&before, &json!(status)) {
            context.writer().patch_status(&*cron, json!({"status": patch})).await?;
        }
        Ok(next.map_or(Outcome::Settled, Outcome::CheckAgain))
    }
}

/// Starts the run that is due, if one is, and says when the next one will be.
async fn run(
    context: &Context,
    cron: &Arc<CronJob>,
    spec: &CronJobSpec,
    jobs: &[Arc<Job>],
    status: &mut CronJobStatus,
) -> Result<Option<Duration>, Error> {
    if spec.suspend == Some(true) {
        return Ok(None);
    }
    let warn = |reason: &str, note: &str| tell(context, cron, Severity::Warning, reason, note);
    let Ok(schedule) = spec.schedule.parse::<Schedule>() else {
        warn(
            "UnparseableSchedule",
            &format!("unparseable schedule: {:?}", spec.schedule),
        );
        return Ok(None);
    };
    let zone = match spec.time_zone.as_deref() {
        None => TimeZone::UTC,
        Some(name) => match TimeZone::get(name) {
            Ok(zone) => zone,
            Err(_) => {
                warn("UnknownTimeZone", &format!("invalid timeZone: {name:?}"));
                return Ok(None);
            }
        },
    };
    let now = context.now();
    let later = schedule
        .next_after(now, &zone)
        .and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    let since = timing::since(cron, spec, now);
    let Some(due) = timing::latest(&schedule, &zone, since, now) else {
        return Ok(later);
    };
    let active: Vec<_> = jobs
        .iter()
        .filter(|job| job::verdict::finished_at(job).is_none())
        .collect();
    match spec.concurrency_policy.as_deref() {
        Some("Forbid") if !active.is_empty() => {
            let note = "Not starting job because prior execution is running and concurrency policy is Forbid";
            tell(context, cron, Severity::Normal, "JobAlreadyActive", note);
            return Ok(later);
        }
        Some("Replace") => {
            for job in &active {
                context.writer().delete(&***job, Propagation::Background).await?;
            }
            status.active = None;
        }
        _ => {}
    }
    let job = build(cron, spec, due, &zone);
    created(context.writer().create(&job).await)?;
    let note = format!("Created job {}", job.metadata.name.as_deref().unwrap_or_default());
    tell(context, cron, Severity::Normal, "SuccessfulCreate", &note);
    let mut about = reference("Job", &job.metadata);
    about.api_version = Some("batch/v1".to_string());
    if !status.active.iter().flatten().any(|known| known.name == about.name) {
        status.active.get_or_insert_default().push(about);
    }
    status.last_schedule_time = Some(Time(due));
    Ok(later)
}

/// An event about a CronJob.
fn tell(context: &Context, cron: &CronJob, severity: Severity, reason: &str, note: &str) {
    let about = reference("CronJob", &cron.metadata);
    context.events().tell(about, severity, reason, "Scheduling", note);
}

/// The Jobs that the status still tells as running and that are over, each with how.
fn just_finished(cron: &CronJob, jobs: &[Arc<Job>]) -> Vec<(String, &'static str)> {
    let active = cron.status.iter().flat_map(|status| status.active.iter().flatten());
    let finished = |known: &ObjectReference| {
        let job = jobs.iter().find(|job| job.metadata.name == known.name)?;
        let end = ["Complete", "Failed"].into_iter().find(|end| {
            job.status
                .as_ref()
                .is_some_and(|status| job::verdict::is_true(status, end))
        })?;
        Some((known.name.clone()?, end))
    };
    active.filter_map(finished).collect()
}

/// The Job of one scheduled time. Its name holds the time, so that a second try finds the first one's work.
fn build(cron: &CronJob, spec: &CronJobSpec, due: Timestamp, zone: &TimeZone) -> Job {
    let template = spec.job_template.metadata.clone().unwrap_or_default();
    let mut annotations = template.annotations.unwrap_or_default();
    let local = due.to_zoned(zone.clone());
    let text = local.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string();
    annotations.insert(SCHEDULED.to_string(), text.replace("+00:00", "Z"));
    let name = cron.metadata.name.as_deref().unwrap_or_default();
    Job {
        metadata: ObjectMeta {
            name: Some(format!("{name}-{}", due.as_second().div_euclid(60))),
            namespace: cron.metadata.namespace.clone(),
            labels: template.labels,
            annotations: Some(annotations),
            owner_references: Some(vec![ownership::controller_reference(cron)]),
            ..ObjectMeta::default()
        },
        spec: spec.job_template.spec.clone(),
        status: None,
    }
}

/// The status that these Jobs make.
fn observed(cron: &CronJob, jobs: &[Arc<Job>]) -> CronJobStatus {
    let before = cron.status.clone().unwrap_or_default();
    let mut active: Vec<ObjectReference> = jobs
        .iter()
        .filter(|job| job::verdict::finished_at(job).is_none() && job.metadata.deletion_timestamp.is_none())
        .map(|job| reference("Job", &job.metadata))
        .collect();
    active.sort_by(|one, other| one.name.cmp(&other.name));
    let completed = jobs
        .iter()
        .filter_map(|job| job.status.as_ref()?.completion_time.clone());
    let successful = completed.map(|time| time.0).max().map(Time);
    CronJobStatus {
        active: (!active.is_empty()).then_some(active),
        last_successful_time: successful.max(before.last_successful_time),
        last_schedule_time: before.last_schedule_time,
    }
}

fn reference(kind: &str, meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some("batch/v1".to_string()),
        kind: Some(kind.to_string()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}
