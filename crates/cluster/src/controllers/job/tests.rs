//! Jobs told by their pods: what is counted, what is needed, and how they end.

use super::ledger::{FINALIZER, INDEX, Ledger};
use super::verdict::{self, Need};
use super::{counted, difference, pod};
use jiff::Timestamp;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};
use std::sync::Arc;

fn job(spec: Value) -> Job {
    let mut whole = json!({"template": {"spec": {"containers": [{"name": "c"}], "restartPolicy": "Never"}},
        "parallelism": 1, "backoffLimit": 6});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "pi", "namespace": "d", "uid": "j"}, "spec": whole})).unwrap()
}

/// A pod as `name phase [index [code]]`; it has our finalizer.
fn a_pod(text: &str) -> Arc<Pod> {
    let words: Vec<&str> = text.split(' ').collect();
    let mut pod = json!({
        "metadata": {"name": words[0], "namespace": "d", "uid": words[0], "finalizers": [FINALIZER]},
        "status": {"phase": words[1]},
    });
    if let Some(index) = words.get(2) {
        pod["metadata"]["annotations"] = json!({INDEX: index});
    }
    if let Some(code) = words.get(3) {
        let code: i32 = code.parse().unwrap();
        let ended = json!({"exitCode": code, "finishedAt": "2026-01-01T00:00:00Z"});
        pod["status"]["containerStatuses"] = json!([{"name": "c", "ready": false, "restartCount": 0,
            "image": "", "imageID": "", "state": {"terminated": ended}}]);
    }
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn pods(texts: &[&str]) -> Vec<Arc<Pod>> {
    texts.iter().map(|text| a_pod(text)).collect()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn now() -> Timestamp {
    at("2026-01-01T00:01:00Z")
}

/// How the Job ends with these pods: `Complete CompletionsReached`, or nothing.
fn end(job: &Job, have: &[&str]) -> Option<String> {
    let spec = job.spec.as_ref().unwrap();
    let ledger = Ledger::new(spec, &JobStatus::default(), &pods(have));
    let verdict = verdict::of(spec, &JobStatus::default(), &ledger, now())?;
    Some(format!("{} {}", verdict.conditions().1, verdict.words().0))
}

fn need(job: &Job, have: &[&str]) -> Need {
    let spec = job.spec.as_ref().unwrap();
    verdict::need(spec, &Ledger::new(spec, &JobStatus::default(), &pods(have)))
}

#[test]
fn a_pod_is_noted_then_freed_then_counted_and_never_twice() {
    let job = job(json!({"completions": 2}));
    let spec = job.spec.as_ref().unwrap();
    let mut owned = pods(&["a Succeeded", "b Running"]);
    let noted = Ledger::new(spec, &JobStatus::default(), &owned);
    assert_eq!((noted.succeeded, noted.all_succeeded()), (0, 1));
    let status = counted(&job, spec, &noted);
    // The finalizer is still there: the pod stays noted.
    let again = Ledger::new(spec, &status, &owned);
    assert_eq!((again.succeeded, again.all_succeeded()), (0, 1));
    Arc::make_mut(&mut owned[0]).metadata.finalizers = None;
    let freed = Ledger::new(spec, &status, &owned);
    assert_eq!((freed.succeeded, freed.all_succeeded()), (1, 1));
    assert!(freed.everything_is_counted());
    let status = counted(&job, spec, &freed);
    // Counted, and the pod may even be gone.
    assert_eq!(Ledger::new(spec, &status, &owned[1..]).all_succeeded(), 1);
    assert_eq!(Ledger::new(spec, &status, &owned).all_succeeded(), 1);
}

#[test]
fn a_job_runs_no_more_pods_than_it_still_needs() {
    let plain = |plain, surplus| Need {
        plain,
        surplus,
        indexes: vec![],
    };
    let five = job(json!({"completions": 5, "parallelism": 2}));
    assert_eq!(need(&five, &[]), plain(2, 0));
    assert_eq!(need(&five, &["a Succeeded", "b Running"]), plain(1, 0));
    assert_eq!(
        need(&five, &["a Succeeded", "b Succeeded", "c Succeeded", "d Succeeded"]),
        plain(1, 0)
    );
    let none = job(json!({"completions": 5, "parallelism": 0}));
    assert_eq!(need(&none, &["a Running"]), plain(0, 1));
    let queue = job(json!({"parallelism": 3}));
    assert_eq!(need(&queue, &["a Succeeded", "b Running"]), plain(0, 0));
}

#[test]
fn a_job_completes_when_enough_pods_have_succeeded() {
    let two = job(json!({"completions": 2}));
    assert_eq!(end(&two, &["a Succeeded"]), None);
    assert_eq!(
        end(&two, &["a Succeeded", "b Succeeded"]).as_deref(),
        Some("Complete CompletionsReached")
    );
    let queue = job(json!({"parallelism": 2}));
    assert_eq!(end(&queue, &["a Succeeded", "b Running"]), None);
    assert_eq!(
        end(&queue, &["a Succeeded", "b Failed"]).as_deref(),
        Some("Complete CompletionsReached")
    );
}

#[test]
fn a_job_fails_beyond_its_backoff_limit() {
    let one = job(json!({"completions": 1, "backoffLimit": 1}));
    assert_eq!(end(&one, &["a Failed"]), None);
    assert_eq!(
        end(&one, &["a Failed", "b Failed"]).as_deref(),
        Some("Failed BackoffLimitExceeded")
    );
}

#[test]
fn a_job_fails_at_its_deadline() {
    let job = job(json!({"completions": 1, "activeDeadlineSeconds": 30}));
    let spec = job.spec.as_ref().unwrap();
    let status = |start: &str| -> JobStatus { serde_json::from_value(json!({"startTime": start})).unwrap() };
    let ledger = Ledger::default();
    let verdict = verdict::of(spec, &status("2026-01-01T00:00:30Z"), &ledger, now()).unwrap();
    assert_eq!(verdict.words().0, "DeadlineExceeded");
    assert_eq!(verdict::of(spec, &status("2026-01-01T00:00:31Z"), &ledger, now()), None);
}

#[test]
fn every_index_needs_one_success() {
    let three = job(json!({"completions": 3, "parallelism": 2, "completionMode": "Indexed"}));
    assert_eq!(need(&three, &[]).indexes, [0, 1]);
    assert_eq!(need(&three, &["a Succeeded 0", "b Running 1"]).indexes, [2]);
    assert_eq!(end(&three, &["a Succeeded 0", "b Succeeded 1", "c Succeeded 1"]), None);
    let done = ["a Succeeded 0", "b Succeeded 1", "c Succeeded 2"];
    assert_eq!(end(&three, &done).as_deref(), Some("Complete CompletionsReached"));
    let spec = three.spec.as_ref().unwrap();
    let status = counted(&three, spec, &Ledger::new(spec, &JobStatus::default(), &pods(&done)));
    assert_eq!(status.completed_indexes.as_deref(), Some("0-2"));
}

#[test]
fn an_index_that_failed_too_often_does_not_stop_the_others() {
    let two = job(json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0}));
    assert_eq!(end(&two, &["a Failed 0", "b Running 1"]), None);
    assert!(need(&two, &["a Failed 0", "b Running 1"]).indexes.is_empty());
    assert_eq!(
        end(&two, &["a Failed 0", "b Succeeded 1"]).as_deref(),
        Some("Failed FailedIndexes")
    );
}

#[test]
fn a_failure_policy_fails_or_forgives_by_exit_code() {
    let policy = json!({"rules": [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [42]}},
        {"action": "Ignore", "onExitCodes": {"operator": "NotIn", "values": [1]}},
    ]});
    let job = job(json!({"completions": 1, "backoffLimit": 0, "podFailurePolicy": policy}));
    assert_eq!(
        end(&job, &["a Failed 0 42"]).as_deref(),
        Some("Failed PodFailurePolicy")
    );
    assert_eq!(end(&job, &["a Failed 0 7"]), None);
    assert_eq!(
        end(&job, &["a Failed 0 1"]).as_deref(),
        Some("Failed BackoffLimitExceeded")
    );
}

#[test]
fn a_success_policy_names_the_indexes_that_are_enough() {
    let policy = json!({"rules": [{"succeededIndexes": "0", "succeededCount": 1}]});
    let leader = job(json!({"completions": 3, "completionMode": "Indexed", "successPolicy": policy}));
    assert_eq!(end(&leader, &["b Succeeded 1"]), None);
    assert_eq!(
        end(&leader, &["a Succeeded 0"]).as_deref(),
        Some("Complete SuccessPolicy")
    );
}

#[test]
fn failures_in_a_row_make_the_next_pod_wait_longer() {
    let job = job(json!({"completions": 1}));
    let spec = job.spec.as_ref().unwrap();
    let wait = |have: &[&str], time: &str| verdict::wait(spec, &pods(have), at(time)).map(|left| left.as_secs());
    assert_eq!(wait(&["a Failed 0 1"], "2026-01-01T00:00:04Z"), Some(6));
    assert_eq!(
        wait(&["a Failed 0 1", "b Failed 0 1"], "2026-01-01T00:00:04Z"),
        Some(16)
    );
    assert_eq!(wait(&["a Failed 0 1"], "2026-01-01T00:00:10Z"), None);
}

#[test]
fn an_indexed_pod_knows_its_index() {
    let job = job(json!({"completions": 2, "completionMode": "Indexed"}));
    let pod = pod(&job, job.spec.as_ref().unwrap(), Some(1), (0, 0));
    assert_eq!(pod.metadata.generate_name.as_deref(), Some("pi-1-"));
    let spec = pod.spec.unwrap();
    assert_eq!(spec.hostname.as_deref(), Some("pi-1"));
    assert_eq!(spec.containers[0].env.as_ref().unwrap()[0].name, "JOB_COMPLETION_INDEX");
}

#[test]
fn a_difference_clears_what_is_gone() {
    let patch = difference(
        &json!({"a": 1, "b": {"c": [1], "d": 2}}),
        &json!({"a": 1, "b": {"d": 3}}),
    );
    assert_eq!(patch, Some(json!({"b": {"c": null, "d": 3}})));
    assert_eq!(difference(&json!({"a": 1}), &json!({"a": 1})), None);
}
