//! The counting of a Job's pods, such that none is counted twice and none is forgotten.
//!
//! A finished pod is first noted by its UID in the status, then loses the finalizer that kept it, then is counted.
//! Whoever dies in between finds in the status and in the finalizers how far it had come.

use super::indexes::Indexes;
use super::policy::{self, Failure};
use super::verdict::ended_at;
use crate::controllers::pods;
use k8s_openapi::api::batch::v1::{JobSpec, JobStatus, UncountedTerminatedPods};
use k8s_openapi::api::core::v1::Pod;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;

/// Keeps a pod until it is counted.
pub const FINALIZER: &str = "batch.kubernetes.io/job-tracking";
pub const INDEX: &str = "batch.kubernetes.io/job-completion-index";
pub const INDEX_FAILURES: &str = "batch.kubernetes.io/job-index-failure-count";
/// Failures that a policy ignores: they count for the wait only.
pub const INDEX_IGNORED: &str = "batch.kubernetes.io/job-index-ignored-failure-count";

/// Whether a Job goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    Running,
    /// No pod of it will be made any more.
    Ending,
}

/// What is known of a Job's pods.
#[derive(Debug, Default)]
pub struct Ledger {
    pub succeeded: i32,
    pub failed: i32,
    pub uncounted: UncountedTerminatedPods,
    pub active: Vec<Arc<Pod>>,
    pub terminating: i32,
    pub completed: Indexes,
    pub failed_indexes: Indexes,
    /// Why a pod's failure fails the Job.
    pub fatal: Option<String>,
    /// Failed pods that count for nothing: they only lose their finalizer.
    pub ignored: Vec<Arc<Pod>>,
    /// Where each index has its own limit: the last failed pod of each index that has to be tried again. The one
    /// after it carries its count on, so it must not go before that one is there.
    pub held: BTreeMap<i32, Arc<Pod>>,
}

pub fn has_finalizer(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|name| name == FINALIZER)
}

pub fn index_of(pod: &Pod) -> Option<i32> {
    pod.metadata.annotations.as_ref()?.get(INDEX)?.parse().ok()
}

/// How often an index had failed before this pod was made.
pub fn failures_before(pod: &Pod) -> i32 {
    number(pod, INDEX_FAILURES)
}

/// How often an index had been tried in vain before this pod was made, whether that counted or not.
pub fn tries_before(pod: &Pod) -> i32 {
    failures_before(pod).saturating_add(number(pod, INDEX_IGNORED))
}

/// What the pod after a failed one of its index notes: how many failures counted, and how many did not.
pub fn failures_after(spec: &JobSpec, last: &Pod) -> (i32, i32) {
    let (counted, ignored) = (failures_before(last), number(last, INDEX_IGNORED));
    match policy::failure(spec, last) {
        Failure::Ignored => (counted, ignored.saturating_add(1)),
        Failure::Counts | Failure::FailsIndex | Failure::FailsJob(_) => (counted.saturating_add(1), ignored),
    }
}

/// A number in an annotation; nought where there is none, or none that makes sense.
fn number(pod: &Pod, annotation: &str) -> i32 {
    let annotations = pod.metadata.annotations.as_ref();
    let found = annotations.and_then(|all| all.get(annotation)?.parse().ok());
    found.filter(|count| *count >= 0).unwrap_or(0)
}

pub fn replaces_only_failed(spec: &JobSpec) -> bool {
    spec.pod_failure_policy.is_some() || spec.pod_replacement_policy.as_deref() == Some("Failed")
}

/// Whether a pod has failed; one that is going away has, unless the Job wants to see it end first.
pub fn is_failed(spec: &JobSpec, pod: &Pod) -> bool {
    let going = pod.metadata.deletion_timestamp.is_some() && pods::phase(pod) != "Succeeded";
    pods::phase(pod) == "Failed" || going && !replaces_only_failed(spec)
}

pub fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

impl Ledger {
    /// The counts of the status, moved on by what the pods show.
    pub fn new(spec: &JobSpec, status: &JobStatus, owned: &[Arc<Pod>]) -> Self {
        let end = spec.completions.unwrap_or(0);
        let parse = |text: Option<&String>| Indexes::parse(text.map_or("", String::as_str), end);
        let mut ledger = Ledger {
            succeeded: status.succeeded.unwrap_or(0),
            failed: status.failed.unwrap_or(0),
            completed: parse(status.completed_indexes.as_ref()),
            failed_indexes: parse(status.failed_indexes.as_ref()),
            ..Ledger::default()
        };
        let before = status.uncounted_terminated_pods.clone().unwrap_or_default();
        let finalized = owned.iter().filter(|pod| has_finalizer(pod));
        let finalized: HashSet<&String> = finalized.filter_map(|pod| pod.metadata.uid.as_ref()).collect();
        let kept = |uid: &String| finalized.contains(uid);
        let split = |uids: Option<Vec<String>>| -> (Vec<String>, Vec<String>) {
            uids.unwrap_or_default().into_iter().partition(kept)
        };
        let (mut succeeded, done) = split(before.succeeded);
        ledger.succeeded = ledger.succeeded.saturating_add(size(done.len()));
        let (mut failed, done) = split(before.failed);
        ledger.failed = ledger.failed.saturating_add(size(done.len()));
        for pod in owned {
            let uid = pod.metadata.uid.clone().unwrap_or_default();
            if pods::is_active(pod) {
                ledger.active.push(pod.clone());
                continue;
            }
            ledger.terminating += i32::from(pod.metadata.deletion_timestamp.is_some() && !pods::has_ended(pod));
            if !has_finalizer(pod) || succeeded.contains(&uid) || failed.contains(&uid) {
                continue;
            }
            if pods::phase(pod) == "Succeeded" {
                ledger.success(spec, pod, uid, &mut succeeded);
            } else if is_failed(spec, pod) {
                ledger.failure(spec, pod, uid, &mut failed);
            }
        }
        let some = |uids: Vec<String>| (!uids.is_empty()).then_some(uids);
        ledger.uncounted = UncountedTerminatedPods {
            succeeded: some(succeeded),
            failed: some(failed),
        };
        if spec.backoff_limit_per_index.is_some() {
            ledger.hold(spec, owned);
        }
        ledger
    }

    /// Finds the last failed pod of each index that has to be tried again.
    fn hold(&mut self, spec: &JobSpec, owned: &[Arc<Pod>]) {
        let active: BTreeSet<i32> = self.active.iter().filter_map(|pod| index_of(pod)).collect();
        let wanted = 0..spec.completions.unwrap_or(0);
        let order = |pod: &Pod| (tries_before(pod), ended_at(pod));
        for pod in owned.iter().filter(|pod| has_finalizer(pod) && is_failed(spec, pod)) {
            let Some(index) = index_of(pod).filter(|index| wanted.contains(index)) else {
                continue;
            };
            let over = self.completed.0.contains(&index) || self.failed_indexes.0.contains(&index);
            let known = self.held.get(&index);
            if !over && !active.contains(&index) && known.is_none_or(|known| order(known) <= order(pod)) {
                self.held.insert(index, pod.clone());
            }
        }
    }

    /// The pods that need to be kept no longer, once the status has noted what they are.
    pub fn counted(&self, owned: &[Arc<Pod>], stage: Stage) -> Vec<Arc<Pod>> {
        let noted = self.uncounted.succeeded.iter().chain(&self.uncounted.failed).flatten();
        let noted: HashSet<&String> = noted.collect();
        let held = self.held.values().filter(|_| stage == Stage::Running);
        let held: HashSet<Option<&String>> = held.map(|pod| pod.metadata.uid.as_ref()).collect();
        let is_noted = |pod: &&Arc<Pod>| pod.metadata.uid.as_ref().is_some_and(|uid| noted.contains(uid));
        let done = self.ignored.iter().chain(owned.iter().filter(is_noted));
        done.filter(|pod| !held.contains(&pod.metadata.uid.as_ref()))
            .cloned()
            .collect()
    }

    fn success(&mut self, spec: &JobSpec, pod: &Arc<Pod>, uid: String, succeeded: &mut Vec<String>) {
        if !is_indexed(spec) {
            return succeeded.push(uid);
        }
        let valid = |index: &i32| (0..spec.completions.unwrap_or(0)).contains(index);
        match index_of(pod).filter(valid) {
            // A second success of the same index is none.
            Some(index) if self.completed.0.insert(index) => succeeded.push(uid),
            _ => self.ignored.push(pod.clone()),
        }
    }

    fn failure(&mut self, spec: &JobSpec, pod: &Arc<Pod>, uid: String, failed: &mut Vec<String>) {
        let verdict = policy::failure(spec, pod);
        if verdict == Failure::Ignored {
            return self.ignored.push(pod.clone());
        }
        let spent = spec
            .backoff_limit_per_index
            .is_some_and(|limit| failures_before(pod) >= limit);
        let lost = spec.backoff_limit_per_index.is_some() && (spent || verdict == Failure::FailsIndex);
        let open = |index: &i32| !self.completed.0.contains(index);
        if let Some(index) = index_of(pod).filter(|_| lost).filter(open) {
            self.failed_indexes.0.insert(index);
        }
        if let Failure::FailsJob(why) = verdict {
            self.fatal.get_or_insert(why);
        }
        failed.push(uid);
    }

    /// Successes, counted and noted.
    pub fn all_succeeded(&self) -> i32 {
        let noted = size(self.uncounted.succeeded.as_ref().map_or(0, Vec::len));
        self.succeeded.saturating_add(noted)
    }

    /// Failures, counted and noted.
    pub fn all_failed(&self) -> i32 {
        let noted = size(self.uncounted.failed.as_ref().map_or(0, Vec::len));
        self.failed.saturating_add(noted)
    }

    pub fn everything_is_counted(&self) -> bool {
        self.uncounted == UncountedTerminatedPods::default()
    }
}

pub fn size(count: usize) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}
