//! How a Job stands: finished or not and why, and which pods it needs now. Pure functions of its ledger.

use super::ledger::{self, Ledger, size};
use super::policy;
use crate::controllers::pods;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{Job, JobCondition, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The first wait after a failure; each failure in a row doubles it.
const FIRST_WAIT: i64 = 10;
const LONGEST_WAIT: i64 = 600;

/// How a Job ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Succeeded { reason: String, message: String },
    Failed { reason: String, message: String },
}

impl Verdict {
    /// What the Job says while its last pods go, and what it says after.
    pub fn conditions(&self) -> (&'static str, &'static str) {
        match self {
            Verdict::Succeeded { .. } => ("SuccessCriteriaMet", "Complete"),
            Verdict::Failed { .. } => ("FailureTarget", "Failed"),
        }
    }

    pub fn words(&self) -> (&str, &str) {
        match self {
            Verdict::Succeeded { reason, message } | Verdict::Failed { reason, message } => (reason, message),
        }
    }
}

pub fn is_true(status: &JobStatus, kind: &str) -> bool {
    status
        .conditions
        .iter()
        .flatten()
        .any(|condition| condition.type_ == kind && condition.status == "True")
}

/// Whether it is decided how the Job ends.
pub fn is_ending(status: &JobStatus) -> bool {
    said(status).is_some()
}

/// When the Job finished, if it has.
pub fn finished_at(job: &Job) -> Option<Timestamp> {
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let last = conditions
        .iter()
        .find(|one| matches!(one.type_.as_str(), "Complete" | "Failed") && one.status == "True")?;
    Some(last.last_transition_time.as_ref()?.0)
}

/// Sets a condition, with a new time only if its status changes; says whether it does.
pub fn set(status: &mut JobStatus, kind: &str, value: &str, words: (&str, &str), now: Timestamp) -> bool {
    let conditions = status.conditions.get_or_insert_default();
    if conditions.iter().any(|one| one.type_ == kind && one.status == value) {
        return false;
    }
    conditions.retain(|one| one.type_ != kind);
    conditions.push(JobCondition {
        type_: kind.to_string(),
        status: value.to_string(),
        reason: Some(words.0.to_string()),
        message: Some(words.1.to_string()),
        last_probe_time: Some(Time(now)),
        last_transition_time: Some(Time(now)),
    });
    true
}

fn said(status: &JobStatus) -> Option<Verdict> {
    let conditions = status.conditions.iter().flatten();
    let mut told = conditions.filter(|condition| condition.status == "True");
    told.find_map(|condition| {
        let reason = condition.reason.clone().unwrap_or_default();
        let message = condition.message.clone().unwrap_or_default();
        match condition.type_.as_str() {
            "SuccessCriteriaMet" => Some(Verdict::Succeeded { reason, message }),
            "FailureTarget" => Some(Verdict::Failed { reason, message }),
            _ => None,
        }
    })
}

/// Whether and how the Job ends. What was said once stays.
pub fn of(spec: &JobSpec, status: &JobStatus, ledger: &Ledger, now: Timestamp) -> Option<Verdict> {
    if let Some(said) = said(status) {
        return Some(said);
    }
    let failed = |reason: &str, message: &str| {
        Some(Verdict::Failed {
            reason: reason.to_string(),
            message: message.to_string(),
        })
    };
    if let Some(why) = &ledger.fatal {
        return failed("PodFailurePolicy", why);
    }
    if ledger.all_failed() > spec.backoff_limit.unwrap_or(6) || too_many_restarts(spec, &ledger.active) {
        return failed("BackoffLimitExceeded", "Job has reached the specified backoff limit");
    }
    if deadline(spec, status).is_some_and(|at| at <= now) {
        return failed("DeadlineExceeded", "Job was active longer than specified deadline");
    }
    if ledger::is_indexed(spec) {
        let limit = spec.max_failed_indexes.unwrap_or(i32::MAX);
        if ledger.failed_indexes.len() > limit {
            return failed(
                "MaxFailedIndexesExceeded",
                "Job has exceeded the specified maximal number of failed indexes",
            );
        }
        let decided = ledger.failed_indexes.len() + ledger.completed.len();
        if ledger.failed_indexes.len() > 0 && decided >= spec.completions.unwrap_or(0) {
            return failed("FailedIndexes", "Job has failed indexes");
        }
        if let Some(message) = policy::success(spec, &ledger.completed) {
            let reason = "SuccessPolicy".to_string();
            return Some(Verdict::Succeeded { reason, message });
        }
    }
    let complete = match spec.completions {
        Some(wanted) if ledger::is_indexed(spec) => ledger.completed.len() >= wanted,
        Some(wanted) => ledger.all_succeeded() >= wanted,
        // Without a number the first success is enough, once all others have ended too.
        None => ledger.all_succeeded() > 0 && ledger.active.is_empty(),
    };
    complete.then(|| Verdict::Succeeded {
        reason: "CompletionsReached".to_string(),
        message: "Reached expected number of succeeded pods".to_string(),
    })
}

/// When the Job will have run for too long.
pub fn deadline(spec: &JobSpec, status: &JobStatus) -> Option<Timestamp> {
    let started = status.start_time.as_ref()?.0;
    let seconds = spec.active_deadline_seconds.filter(|_| spec.suspend != Some(true))?;
    started.checked_add(SignedDuration::from_secs(seconds)).ok()
}

/// Pods that are restarted in place count their restarts against the limit.
fn too_many_restarts(spec: &JobSpec, active: &[Arc<Pod>]) -> bool {
    let policy = spec
        .template
        .spec
        .as_ref()
        .and_then(|spec| spec.restart_policy.as_deref());
    if policy != Some("OnFailure") {
        return false;
    }
    let statuses = active.iter().filter_map(|pod| pod.status.as_ref());
    let containers = statuses.flat_map(|status| {
        let init = status.init_container_statuses.iter().flatten();
        init.chain(status.container_statuses.iter().flatten())
    });
    let restarts: i64 = containers.map(|container| i64::from(container.restart_count)).sum();
    match i64::from(spec.backoff_limit.unwrap_or(6)) {
        0 => restarts > 0,
        limit => restarts >= limit,
    }
}

/// Which pods the Job needs now.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// So many without an index.
    pub plain: i32,
    /// One for each of these indexes.
    pub indexes: Vec<i32>,
    /// So many of the active ones are too many.
    pub surplus: i32,
}

/// What is missing, or too much, in a Job that goes on.
pub fn need(spec: &JobSpec, ledger: &Ledger) -> Need {
    let parallelism = spec.parallelism.unwrap_or(1).max(0);
    let active = size(ledger.active.len());
    let held = match ledger::replaces_only_failed(spec) {
        true => ledger.terminating,
        false => 0,
    };
    if ledger::is_indexed(spec) {
        let taken: BTreeSet<i32> = ledger.active.iter().filter_map(|pod| ledger::index_of(pod)).collect();
        let room = usize::try_from(parallelism - active - held).unwrap_or(0);
        let open = |index: &i32| {
            !taken.contains(index) && !ledger.completed.0.contains(index) && !ledger.failed_indexes.0.contains(index)
        };
        return Need {
            indexes: (0..spec.completions.unwrap_or(0)).filter(open).take(room).collect(),
            surplus: (active - parallelism).max(0),
            plain: 0,
        };
    }
    let wanted = match spec.completions {
        Some(completions) => parallelism.min(completions.saturating_sub(ledger.all_succeeded())),
        None if ledger.all_succeeded() > 0 => active.min(parallelism),
        None => parallelism,
    }
    .max(0);
    Need {
        plain: (wanted - active - held).max(0),
        surplus: (active - wanted).max(0),
        indexes: Vec::new(),
    }
}

/// Which of the active pods go where so many are too many: those whose index is not wanted or is there twice, and
/// then those that are the least worth.
pub fn surplus(spec: &JobSpec, ledger: &Ledger, count: i32) -> Vec<Arc<Pod>> {
    let mut seen = BTreeSet::new();
    let wanted = 0..spec.completions.unwrap_or(0);
    let useless = |pod: &&Arc<Pod>| {
        let index = ledger::index_of(pod).filter(|index| wanted.contains(index));
        ledger::is_indexed(spec) && !index.is_some_and(|index| seen.insert(index))
    };
    let (mut first, rest): (Vec<_>, Vec<_>) = ledger.active.iter().partition(useless);
    let by_worth = pods::by_worth(rest.iter().map(|pod| &***pod).collect());
    let by_uid: HashMap<_, _> = rest.iter().map(|pod| (&pod.metadata.uid, *pod)).collect();
    first.extend(by_worth.into_iter().filter_map(|pod| by_uid.get(&pod.metadata.uid)));
    first.truncate(usize::try_from(count).unwrap_or(0));
    first.into_iter().cloned().collect()
}

/// How long to wait before the next pod of an index, after its last failure.
pub fn wait_of_index(last: &Pod, now: Timestamp) -> Option<Duration> {
    let failures = usize::try_from(ledger::tries_before(last)).unwrap_or(0);
    left(ended_at(last), failures.saturating_add(1), now)
}

/// What is left of the wait after so many failures, the last of which was then.
fn left(last: Timestamp, failures: usize, now: Timestamp) -> Option<Duration> {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(u32::MAX).min(10);
    let seconds = (FIRST_WAIT << doublings).min(LONGEST_WAIT);
    let due = last.checked_add(SignedDuration::from_secs(seconds)).ok()?;
    Duration::try_from(due.duration_since(now))
        .ok()
        .filter(|left| !left.is_zero())
}

/// How long to wait before the next pod, after failures in a row.
pub fn wait(spec: &JobSpec, owned: &[Arc<Pod>], now: Timestamp) -> Option<Duration> {
    let ended = |pod: &&Arc<Pod>| pods::phase(pod) == "Succeeded" || ledger::is_failed(spec, pod);
    let success = owned
        .iter()
        .filter(|pod| pods::phase(pod) == "Succeeded")
        .map(|pod| ended_at(pod))
        .max();
    let failures: Vec<Timestamp> = owned
        .iter()
        .filter(ended)
        .filter(|pod| pods::phase(pod) == "Failed")
        .map(|pod| ended_at(pod))
        .filter(|at| success.is_none_or(|success| *at > success))
        .collect();
    let last = failures.iter().max()?;
    left(*last, failures.len(), now)
}

/// When the last container of a pod ended.
pub fn ended_at(pod: &Pod) -> Timestamp {
    let statuses = pod
        .status
        .iter()
        .flat_map(|status| status.container_statuses.iter().flatten());
    let ends = statuses.filter_map(|container| {
        let terminated = container.state.as_ref()?.terminated.as_ref()?;
        Some(terminated.finished_at.as_ref()?.0)
    });
    let created = pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    ends.max().or(created).unwrap_or(Timestamp::UNIX_EPOCH)
}
