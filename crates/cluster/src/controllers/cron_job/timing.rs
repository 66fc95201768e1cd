//! Which run of a CronJob is due, and which finished ones are forgotten. Pure.

use crate::controllers::job;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobSpec, Job};
use std::sync::Arc;
use stead_machinery::cron::Schedule;

/// How far back to look for the last due time, step by step: a frequent schedule is found in the first hour, and a
/// rare one has few times in a year. So a cluster that slept for long does not walk through every minute of it.
const WINDOWS: [SignedDuration; 4] = [
    SignedDuration::from_hours(1),
    SignedDuration::from_hours(24),
    SignedDuration::from_hours(24 * 32),
    SignedDuration::from_hours(24 * 366),
];

/// From when on missed runs count.
pub fn since(cron: &CronJob, spec: &CronJobSpec, now: Timestamp) -> Timestamp {
    let last = cron
        .status
        .as_ref()
        .and_then(|status| status.last_schedule_time.as_ref());
    let since = last
        .or(cron.metadata.creation_timestamp.as_ref())
        .map_or(now, |time| time.0);
    let deadline = spec.starting_deadline_seconds.map(SignedDuration::from_secs);
    let limit = deadline.and_then(|deadline| now.checked_sub(deadline).ok());
    limit.map_or(since, |limit| since.max(limit))
}

/// The latest time of the schedule after `since` and not after `now`: earlier ones that were missed stay missed.
pub fn latest(schedule: &Schedule, zone: &TimeZone, since: Timestamp, now: Timestamp) -> Option<Timestamp> {
    let mut starts: Vec<Timestamp> = WINDOWS
        .iter()
        .filter_map(|window| now.checked_sub(*window).ok())
        .filter(|start| *start > since)
        .collect();
    starts.push(since);
    starts.into_iter().find_map(|start| {
        let next = |time: &Timestamp| schedule.next_after(*time, zone).filter(|next| *next <= now);
        std::iter::successors(next(&start), next).last()
    })
}

/// Finished Jobs beyond the limits, the oldest ones.
pub fn history<'a>(spec: &CronJobSpec, jobs: &'a [Arc<Job>]) -> Vec<&'a Arc<Job>> {
    let succeeded = |job: &&Arc<Job>| {
        let status = job.status.as_ref();
        status.is_some_and(|status| job::verdict::is_true(status, "Complete"))
    };
    let finished = jobs
        .iter()
        .filter(|job| job::verdict::finished_at(job).is_some() && job.metadata.deletion_timestamp.is_none());
    let (mut good, mut bad): (Vec<_>, Vec<_>) = finished.partition(succeeded);
    let mut stale = Vec::new();
    for (list, limit) in [
        (&mut good, spec.successful_jobs_history_limit.unwrap_or(3)),
        (&mut bad, spec.failed_jobs_history_limit.unwrap_or(1)),
    ] {
        list.sort_by_key(|job| {
            let started = job.status.as_ref().and_then(|status| status.start_time.as_ref());
            (started.map(|time| time.0), job.metadata.name.clone())
        });
        let surplus = list.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        stale.extend(list.iter().take(surplus).copied());
    }
    stale
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn cron(spec: Value, last: Option<&str>) -> CronJob {
        let mut whole = json!({"schedule": "*/5 * * * *", "jobTemplate": {}});
        whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
        let meta = json!({"name": "c", "creationTimestamp": "2026-01-01T00:00:30Z"});
        serde_json::from_value(json!({"metadata": meta, "spec": whole, "status": {"lastScheduleTime": last}})).unwrap()
    }

    fn due(cron: &CronJob, now: &str) -> Option<String> {
        let spec = &cron.spec;
        let zone = spec
            .time_zone
            .as_deref()
            .map_or(TimeZone::UTC, |name| TimeZone::get(name).unwrap());
        let schedule = spec.schedule.parse().unwrap();
        latest(&schedule, &zone, since(cron, spec, at(now)), at(now)).map(|time| time.to_string())
    }

    #[test]
    fn a_run_is_due_once() {
        let new = cron(json!({}), None);
        assert_eq!(due(&new, "2026-01-01T00:04:59Z"), None);
        assert_eq!(
            due(&new, "2026-01-01T00:05:00Z").as_deref(),
            Some("2026-01-01T00:05:00Z")
        );
        let ran = cron(json!({}), Some("2026-01-01T00:05:00Z"));
        assert_eq!(due(&ran, "2026-01-01T00:09:59Z"), None);
    }

    #[test]
    fn of_many_missed_runs_only_the_last_is_made_up_for() {
        let slept = cron(json!({"schedule": "* * * * *"}), Some("2020-01-01T00:00:00Z"));
        assert_eq!(
            due(&slept, "2026-01-01T00:09:30Z").as_deref(),
            Some("2026-01-01T00:09:00Z")
        );
        let yearly = cron(json!({"schedule": "@yearly"}), Some("2020-01-01T00:00:00Z"));
        assert_eq!(
            due(&yearly, "2026-06-01T00:00:00Z").as_deref(),
            Some("2026-01-01T00:00:00Z")
        );
    }

    #[test]
    fn a_run_that_is_too_late_is_left_out() {
        let strict = cron(json!({"startingDeadlineSeconds": 60}), None);
        assert_eq!(due(&strict, "2026-01-01T00:07:00Z"), None);
        assert_eq!(
            due(&strict, "2026-01-01T00:05:59Z").as_deref(),
            Some("2026-01-01T00:05:00Z")
        );
    }

    #[test]
    fn the_time_zone_decides_what_midnight_is() {
        let berlin = cron(json!({"schedule": "0 0 * * *", "timeZone": "Europe/Berlin"}), None);
        assert_eq!(
            due(&berlin, "2026-01-01T23:30:00Z").as_deref(),
            Some("2026-01-01T23:00:00Z")
        );
    }

    #[test]
    fn finished_jobs_beyond_the_limits_are_forgotten() {
        let job = |name: &str, end: &str| -> Arc<Job> {
            let condition = json!({"type": end, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"});
            let conditions = if end.is_empty() { json!([]) } else { json!([condition]) };
            let job = json!({"metadata": {"name": name}, "status": {"conditions": conditions}});
            Arc::new(serde_json::from_value(job).unwrap())
        };
        let jobs = [
            job("a", "Complete"),
            job("b", "Complete"),
            job("c", "Failed"),
            job("d", "Failed"),
            job("e", ""),
        ];
        let cron = cron(
            json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0}),
            None,
        );
        let stale = history(&cron.spec, &jobs);
        let names: Vec<_> = stale.iter().map(|job| job.metadata.name.as_deref().unwrap()).collect();
        assert_eq!(names, ["a", "c", "d"]);
    }
}
