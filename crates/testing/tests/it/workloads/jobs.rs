//! Jobs and CronJobs.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

/// The template of pods that end after five seconds with this code.
fn work(code: &str) -> Value {
    let mut work = template("work", json!({"exit-after": "5s", "exit-code": code}));
    work["spec"]["restartPolicy"] = json!("Never");
    work
}

async fn complete(cluster: &HollowCluster) -> Value {
    until(cluster, "jobs/work", minutes(10), |job| {
        condition(job, "Complete", "True")
    })
    .await
}

async fn failed(cluster: &HollowCluster) -> Value {
    until(cluster, "jobs/work", minutes(60), |job| {
        condition(job, "Failed", "True")
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_as_many_at_once_as_it_may_until_all_are_done() {
    let cluster = cluster_of(1).await;
    job(&cluster, work("0"), json!({"completions": 5, "parallelism": 2})).await;
    let mut most = 0;
    let done = until(&cluster, "jobs/work", minutes(5), |job| {
        most = most.max(job["status"]["active"].as_i64().unwrap_or(0));
        condition(job, "Complete", "True")
    })
    .await;
    assert_eq!((most, &done["status"]["succeeded"]), (2, &json!(5)));
    assert!(done["status"]["completionTime"].is_string(), "{done}");
    for pod in pods(&cluster, "work").await {
        assert!(pod["metadata"]["finalizers"].is_null(), "counted pods are free: {pod}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_has_one_pod_for_each_index() {
    let cluster = cluster_of(1).await;
    let indexed = json!({"completions": 3, "parallelism": 3, "completionMode": "Indexed"});
    job(&cluster, work("0"), indexed).await;
    let done = complete(&cluster).await;
    assert_eq!(done["status"]["completedIndexes"], "0-2");
    let mut hosts: Vec<_> = pods(&cluster, "work")
        .await
        .iter()
        .map(|pod| pod["spec"]["hostname"].clone())
        .collect();
    hosts.sort_by_key(Value::to_string);
    assert_eq!(hosts, ["work-0", "work-1", "work-2"]);
}

#[tokio::test(start_paused = true)]
async fn a_job_gives_up_after_its_backoff_limit() {
    let cluster = cluster_of(1).await;
    job(&cluster, work("1"), json!({"backoffLimit": 2})).await;
    let over = failed(&cluster).await;
    assert_eq!(reason(&over, "Failed"), "BackoffLimitExceeded");
    assert_eq!(over["status"]["failed"], 3);
}

#[tokio::test(start_paused = true)]
async fn each_index_has_a_limit_of_its_own() {
    let cluster = cluster_of(1).await;
    let indexed = json!({"completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
    job(&cluster, work("1"), indexed).await;
    let over = failed(&cluster).await;
    assert_eq!(over["status"]["failedIndexes"], "0,1");
    assert_eq!(reason(&over, "Failed"), "FailedIndexes");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_job() {
    let cluster = cluster_of(1).await;
    let mut endless = work("0");
    endless["metadata"]["annotations"] = json!({});
    job(&cluster, endless, json!({"activeDeadlineSeconds": 90})).await;
    let over = failed(&cluster).await;
    assert_eq!(reason(&over, "Failed"), "DeadlineExceeded");
    until(&cluster, "pods?labelSelector=app=work", minutes(1), |list| {
        list["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_policy_judges_failures_by_their_code() {
    let cluster = cluster_of(1).await;
    let on = |operator: &str, code: i32, action: &str| {
        json!({"podFailurePolicy": {"rules": [
        {"action": action, "onExitCodes": {"operator": operator, "values": [code]}}]}, "backoffLimit": 6})
    };
    job(&cluster, work("42"), on("In", 42, "FailJob")).await;
    let over = failed(&cluster).await;
    assert_eq!(reason(&over, "Failed"), "PodFailurePolicy");
    assert_eq!(over["status"]["failed"], 1, "the first failure was enough");
}

#[tokio::test(start_paused = true)]
async fn a_finished_job_is_forgotten_after_its_time() {
    let cluster = cluster_of(1).await;
    job(&cluster, work("0"), json!({"ttlSecondsAfterFinished": 120})).await;
    complete(&cluster).await;
    cluster.pass(Duration::from_secs(60)).await;
    cluster.get("jobs/work").await.expect("still there");
    gone(&cluster, "jobs/work", minutes(2)).await;
    until(&cluster, "pods?labelSelector=app=work", minutes(1), |list| {
        list["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_suspended_job_waits_and_goes_on() {
    let cluster = cluster_of(1).await;
    job(&cluster, work("0"), json!({"suspend": true})).await;
    until(&cluster, "jobs/work", SOON, |job| condition(job, "Suspended", "True")).await;
    cluster.pass(minutes(5)).await;
    assert!(pods(&cluster, "work").await.is_empty());
    cluster
        .patch("jobs/work", json!({"spec": {"suspend": false}}))
        .await
        .expect("a resume");
    let done = complete(&cluster).await;
    assert!(condition(&done, "Suspended", "False"));
}

async fn cron(cluster: &HollowCluster, schedule: &str, lasts: &str, extra: Value) {
    let mut template = template("work", json!({"exit-after": lasts}));
    template["spec"]["restartPolicy"] = json!("Never");
    let spec = merged(
        json!({"schedule": schedule, "jobTemplate": {"spec": {"template": template}}}),
        extra,
    );
    let object = json!({"metadata": {"name": "tick"}, "spec": spec});
    cluster.create("cronjobs", object).await.expect("a cron job");
}

async fn jobs(cluster: &HollowCluster) -> Vec<Value> {
    cluster.list("jobs").await.expect("jobs")
}

#[tokio::test(start_paused = true)]
async fn a_cron_job_runs_on_the_minute_and_keeps_the_last_few() {
    let cluster = cluster_of(1).await;
    cron(&cluster, "*/2 * * * *", "5s", json!({})).await;
    cluster.pass(minutes(1)).await;
    assert!(jobs(&cluster).await.is_empty());
    cluster.pass(minutes(2)).await;
    let first = jobs(&cluster).await;
    assert_eq!(first.len(), 1);
    assert!(condition(&first[0], "Complete", "True"), "{first:?}");
    cluster.pass(minutes(20)).await;
    assert_eq!(jobs(&cluster).await.len(), 3, "the history has three");
    let tick = cluster.get("cronjobs/tick").await.expect("it");
    assert_eq!(tick["status"]["lastScheduleTime"], "2026-01-01T00:22:00Z");
}

#[tokio::test(start_paused = true)]
async fn runs_that_overlap_are_allowed_forbidden_or_replaced() {
    for (policy, active) in [("Allow", 3), ("Forbid", 1), ("Replace", 1)] {
        let cluster = cluster_of(1).await;
        let extra = json!({"concurrencyPolicy": policy});
        cron(&cluster, "* * * * *", "1h", extra).await;
        cluster.pass(Duration::from_secs(200)).await;
        let running = jobs(&cluster).await;
        assert_eq!(running.len(), active, "{policy}");
        let started = running[0]["metadata"]["creationTimestamp"].as_str().unwrap_or_default();
        match policy {
            "Forbid" => assert!(started < "2026-01-01T00:02:00Z", "{started}"),
            "Replace" => assert!(started >= "2026-01-01T00:03:00Z", "{started}"),
            _ => {}
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_schedule_follows_its_time_zone() {
    let cluster = cluster_of(1).await;
    // The story begins at midnight UTC: nine o'clock in Tokyo.
    cron(&cluster, "30 9 * * *", "5s", json!({"timeZone": "Asia/Tokyo"})).await;
    cluster.pass(minutes(29)).await;
    assert!(jobs(&cluster).await.is_empty());
    cluster.pass(minutes(3)).await;
    assert_eq!(jobs(&cluster).await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_cron_job_does_not_run() {
    let cluster = cluster_of(1).await;
    cron(&cluster, "* * * * *", "5s", json!({"suspend": true})).await;
    cluster.pass(minutes(5)).await;
    assert!(jobs(&cluster).await.is_empty());
}
