//! CronJobs in detail: when a run is due, what it is called, and what becomes of those that were missed.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

fn work(script: Value) -> Value {
    let mut work = template("work", script);
    work["spec"]["restartPolicy"] = json!("Never");
    work
}

/// A CronJob whose runs last for so long. The story begins at midnight.
async fn cron(schedule: &str, lasts: &str, extra: Value) -> HollowCluster {
    let cluster = cluster_of(1).await;
    let job = json!({"spec": {"template": work(json!({"exit-after": lasts}))}});
    make(
        &cluster,
        "cronjobs",
        "tick",
        merged(json!({"schedule": schedule, "jobTemplate": job}), extra),
    )
    .await;
    cluster
}

async fn jobs(cluster: &HollowCluster) -> Vec<String> {
    names(&cluster.list("jobs").await.expect("jobs"))
}

/// The name of the run at so many minutes past midnight.
fn at(minute: i64) -> String {
    format!("tick-{}", 1_767_225_600 / 60 + minute)
}

#[tokio::test(start_paused = true)]
async fn a_run_is_called_after_its_minute() {
    let cluster = cron("*/5 * * * *", "1h", json!({})).await;
    cluster.pass(minutes(11)).await;
    assert_eq!(jobs(&cluster).await, [at(5), at(10)]);
    let job = cluster.get(&format!("jobs/{}", at(5))).await.expect("it");
    let note = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(note, "2026-01-01T00:05:00Z");
    let owner = &job["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["controller"]),
        (&json!("CronJob"), &json!(true))
    );
}

#[tokio::test(start_paused = true)]
async fn labels_and_annotations_of_the_template_come_to_the_job() {
    let job = json!({"metadata": {"labels": {"team": "blue"}, "annotations": {"note": "x"}},
        "spec": {"template": work(json!({}))}});
    let cluster = cron("* * * * *", "1h", json!({"jobTemplate": job})).await;
    let job = count(&cluster, "jobs", 1).await.remove(0);
    assert_eq!(
        (
            &job["metadata"]["labels"]["team"],
            &job["metadata"]["annotations"]["note"]
        ),
        (&json!("blue"), &json!("x"))
    );
}

#[tokio::test(start_paused = true)]
async fn what_runs_and_what_has_succeeded_is_told() {
    let cluster = cron("*/2 * * * *", "30s", json!({})).await;
    let running = until(&cluster, "cronjobs/tick", minutes(3), |tick| {
        tick["status"]["active"].is_array()
    })
    .await;
    assert_eq!(running["status"]["active"][0]["name"], at(2));
    assert!(running["status"]["lastSuccessfulTime"].is_null());
    let done = until(&cluster, "cronjobs/tick", minutes(1), |tick| {
        tick["status"]["active"].is_null()
    })
    .await;
    let time = done["status"]["lastSuccessfulTime"].as_str().unwrap_or_default();
    assert!(time.starts_with("2026-01-01T00:02:3"), "{time}");
    let created = notes(&cluster, "CronJob", "SuccessfulCreate").await;
    assert_eq!(created, [format!("Created job {}", at(2))]);
    let seen = event(&cluster, "SawCompletedJob").await;
    assert_eq!(seen, format!("Saw completed job: {}, condition: Complete", at(2)));
}

#[tokio::test(start_paused = true)]
async fn another_schedule_holds_at_once() {
    let cluster = cron("0 5 * * *", "5s", json!({})).await;
    cluster.pass(minutes(3)).await;
    change(&cluster, "cronjobs/tick", json!({"spec": {"schedule": "*/4 * * * *"}})).await;
    cluster.pass(minutes(2)).await;
    assert_eq!(jobs(&cluster).await, [at(4)]);
}

#[tokio::test(start_paused = true)]
async fn another_time_zone_holds_at_once() {
    let cluster = cron("0 * * * *", "5s", json!({})).await;
    change(&cluster, "cronjobs/tick", json!({"spec": {"timeZone": "Asia/Kolkata"}})).await;
    cluster.pass(minutes(31)).await;
    assert_eq!(jobs(&cluster).await, [at(30)], "half past is the full hour there");
    let job = cluster.get(&format!("jobs/{}", at(30))).await.expect("it");
    let note = &job["metadata"]["annotations"]["batch.kubernetes.io/cronjob-scheduled-timestamp"];
    assert_eq!(note, "2026-01-01T06:00:00+05:30");
}

#[tokio::test(start_paused = true)]
async fn short_words_stand_for_schedules() {
    let cluster = cron("@hourly", "5s", json!({})).await;
    cluster.pass(minutes(61)).await;
    assert_eq!(jobs(&cluster).await, [at(60)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_had_to_wait_for_the_one_before_starts_after_it() {
    let cluster = cron("*/3 * * * *", "4m", json!({"concurrencyPolicy": "Forbid"})).await;
    cluster.pass(Duration::from_secs(60 * 6 + 30)).await;
    assert_eq!(jobs(&cluster).await, [at(3)], "the first one still runs");
    let note = event(&cluster, "JobAlreadyActive").await;
    assert_eq!(
        note,
        "Not starting job because prior execution is running and concurrency policy is Forbid"
    );
    cluster.pass(minutes(1)).await;
    assert_eq!(jobs(&cluster).await, [at(3), at(6)], "what was due is made up for");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_had_to_wait_too_long_is_left_out() {
    let strict = json!({"concurrencyPolicy": "Forbid", "startingDeadlineSeconds": 20});
    let cluster = cron("*/3 * * * *", "4m", strict).await;
    cluster.pass(Duration::from_secs(60 * 8)).await;
    assert_eq!(jobs(&cluster).await, [at(3)]);
    cluster.pass(Duration::from_secs(90)).await;
    assert_eq!(jobs(&cluster).await, [at(3), at(9)]);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_replaced_ends_with_its_pods() {
    let cluster = cron("* * * * *", "1h", json!({"concurrencyPolicy": "Replace"})).await;
    cluster.pass(Duration::from_secs(130)).await;
    assert_eq!(jobs(&cluster).await, [at(2)]);
    let left = count(&cluster, "pods?labelSelector=app=work", 1).await;
    assert_eq!(left[0]["metadata"]["labels"]["job-name"], at(2));
}

#[tokio::test(start_paused = true)]
async fn failures_have_a_history_of_their_own() {
    let failing = json!({"backoffLimit": 0, "template": work(json!({"exit-after": "5s", "exit-code": "1"}))});
    let extra = json!({"failedJobsHistoryLimit": 2, "successfulJobsHistoryLimit": 0, "jobTemplate": {"spec": failing}});
    let cluster = cron("* * * * *", "5s", extra).await;
    cluster.pass(Duration::from_secs(330)).await;
    assert_eq!(jobs(&cluster).await, [at(4), at(5)]);
}

#[tokio::test(start_paused = true)]
async fn jobs_may_outlive_their_cron_job() {
    let cluster = cron("* * * * *", "1h", json!({})).await;
    count(&cluster, "jobs", 1).await;
    cluster.delete("cronjobs/tick", "Orphan").await.expect("a deletion");
    gone(&cluster, "cronjobs/tick", SOON).await;
    cluster.pass(minutes(2)).await;
    let job = cluster.get(&format!("jobs/{}", at(1))).await.expect("it stays");
    assert!(job["metadata"]["ownerReferences"].is_null(), "{job}");
    assert_eq!(jobs(&cluster).await.len(), 1, "and no more come");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_somebody_deleted_is_not_active_any_more_and_not_repeated() {
    let cluster = cron("*/5 * * * *", "1h", json!({})).await;
    until(&cluster, "cronjobs/tick", minutes(6), |tick| {
        tick["status"]["active"].is_array()
    })
    .await;
    remove(&cluster, &format!("jobs/{}", at(5))).await;
    until(&cluster, "cronjobs/tick", SOON, |tick| {
        tick["status"]["active"].is_null()
    })
    .await;
    cluster.pass(minutes(1)).await;
    assert!(jobs(&cluster).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_pause_lets_what_runs_run() {
    let cluster = cron("* * * * *", "2m", json!({})).await;
    count(&cluster, "jobs", 1).await;
    change(&cluster, "cronjobs/tick", json!({"spec": {"suspend": true}})).await;
    cluster.pass(minutes(3)).await;
    let job = cluster.get(&format!("jobs/{}", at(1))).await.expect("it");
    assert!(condition(&job, "Complete", "True"), "{job}");
    assert_eq!(jobs(&cluster).await.len(), 1);
}
