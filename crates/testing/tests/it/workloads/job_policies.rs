//! Jobs in trouble: which failures count, how long to wait, and when enough is enough.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

fn work(script: Value) -> Value {
    let mut work = template("work", script);
    work["spec"]["restartPolicy"] = json!("Never");
    work
}

fn fails() -> Value {
    work(json!({"exit-after": "1s", "exit-code": "1"}))
}

/// Work that does not end by itself, nor when it is asked to: it is killed, and has failed.
fn endless() -> Value {
    let mut work = work(json!({"stop-after": "10m"}));
    work["spec"]["terminationGracePeriodSeconds"] = json!(20);
    work
}

async fn running(cluster: &HollowCluster, count: usize) -> Vec<Value> {
    let list = until(cluster, "pods?labelSelector=app=work", minutes(2), |list| {
        let pods = list["items"].as_array().into_iter().flatten();
        pods.filter(|pod| pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null())
            .count()
            == count
    })
    .await;
    let mut pods = list["items"].as_array().cloned().unwrap_or_default();
    pods.retain(|pod| pod["status"]["phase"] == "Running");
    pods
}

async fn over(cluster: &HollowCluster, how: &str) -> Value {
    until(cluster, "jobs/work", minutes(120), |job| condition(job, how, "True")).await
}

#[tokio::test(start_paused = true)]
async fn a_disruption_may_be_ignored() {
    let cluster = cluster_of(1).await;
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let policy = json!({"podFailurePolicy": {"rules": [rule]}, "backoffLimit": 0});
    job(&cluster, endless(), policy).await;
    let first = running(&cluster, 1).await;
    evict(&cluster, &name(&first[0])).await.expect("an eviction");
    until(&cluster, "jobs/work", minutes(2), |job| job["status"]["active"] == 1).await;
    let second = running(&cluster, 1).await;
    assert_ne!(name(&first[0]), name(&second[0]));
    let job = cluster.get("jobs/work").await.expect("the job");
    assert!(
        job["status"]["failed"].is_null() || job["status"]["failed"] == 0,
        "{job}"
    );
    assert!(!condition(&job, "Failed", "True"), "{job}");
}

#[tokio::test(start_paused = true)]
async fn an_index_may_fail_for_good_while_others_go_on() {
    let cluster = cluster_of(1).await;
    let rule = json!({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [1]}});
    let spec = json!({"completions": 2, "parallelism": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 5,
        "podFailurePolicy": {"rules": [rule]}});
    job(&cluster, fails(), spec).await;
    let job = over(&cluster, "Failed").await;
    assert_eq!(job["status"]["failedIndexes"], "0,1");
    assert_eq!(job["status"]["failed"], 2, "each index failed once: {job}");
}

#[tokio::test(start_paused = true)]
async fn too_many_failed_indexes_end_a_job() {
    let cluster = cluster_of(1).await;
    let spec = json!({"completions": 10, "parallelism": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
        "maxFailedIndexes": 2});
    job(&cluster, fails(), spec).await;
    let job = over(&cluster, "Failed").await;
    assert_eq!(reason(&job, "Failed"), "MaxFailedIndexesExceeded");
}

#[tokio::test(start_paused = true)]
async fn some_successes_may_be_enough() {
    let cluster = cluster_of(1).await;
    let spec = json!({"completions": 5, "parallelism": 1, "completionMode": "Indexed",
        "successPolicy": {"rules": [{"succeededIndexes": "1-2", "succeededCount": 1}]}});
    job(&cluster, work(json!({"exit-after": "5s"})), spec).await;
    let job = over(&cluster, "Complete").await;
    assert_eq!(reason(&job, "Complete"), "SuccessPolicy");
    assert_eq!(job["status"]["completedIndexes"], "0,1", "{job}");
}

#[tokio::test(start_paused = true)]
async fn tries_come_at_longer_and_longer_intervals() {
    let cluster = cluster_of(1).await;
    job(&cluster, fails(), json!({"backoffLimit": 3})).await;
    over(&cluster, "Failed").await;
    let mut starts: Vec<jiff::Timestamp> = cluster
        .list("pods?labelSelector=app=work")
        .await
        .expect("pods")
        .iter()
        .filter_map(|pod| pod["metadata"]["creationTimestamp"].as_str()?.parse().ok())
        .collect();
    starts.sort();
    let waits: Vec<i64> = starts
        .windows(2)
        .map(|two| two[1].duration_since(two[0]).as_secs())
        .collect();
    assert_eq!(waits.len(), 3);
    for (wait, least) in waits.iter().zip([10, 20, 40]) {
        assert!((least..least + 5).contains(wait), "{waits:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_of_work_is_done_when_one_pod_says_so() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({"exit-after": "30s"})), json!({"parallelism": 3})).await;
    running(&cluster, 3).await;
    let job = over(&cluster, "Complete").await;
    assert!(job["status"]["succeeded"].as_i64() >= Some(1), "{job}");
    assert!(job["spec"]["completions"].is_null(), "{job}");
}

#[tokio::test(start_paused = true)]
async fn parallelism_may_change_while_a_job_runs() {
    let cluster = cluster_of(1).await;
    job(&cluster, endless(), json!({"completions": 6, "parallelism": 2})).await;
    running(&cluster, 2).await;
    for count in [5, 1, 0] {
        let patch = json!({"spec": {"parallelism": count}});
        cluster.patch("jobs/work", patch).await.expect("a change");
        running(&cluster, count).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_suspended_ends_its_pods_and_forgets_its_start() {
    let cluster = cluster_of(1).await;
    job(&cluster, endless(), json!({})).await;
    running(&cluster, 1).await;
    cluster
        .patch("jobs/work", json!({"spec": {"suspend": true}}))
        .await
        .expect("a pause");
    let job = until(&cluster, "jobs/work", minutes(1), |job| {
        condition(job, "Suspended", "True")
    })
    .await;
    assert!(job["status"]["startTime"].is_null(), "{job}");
    running(&cluster, 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_replacement_may_have_to_wait_for_the_end_of_the_old_pod() {
    let cluster = cluster_of(1).await;
    job(&cluster, endless(), json!({"podReplacementPolicy": "Failed"})).await;
    let first = running(&cluster, 1).await;
    let pod = format!("pods/{}", name(&first[0]));
    cluster.delete(&pod, "Background").await.expect("a deletion");
    cluster.pass(Duration::from_secs(10)).await;
    let all = cluster.list("pods?labelSelector=app=work").await.expect("pods");
    assert_eq!(all.len(), 1, "the old one has not ended");
    let job = cluster.get("jobs/work").await.expect("the job");
    assert_eq!(job["status"]["terminating"], 1, "{job}");
    cluster.pass(Duration::from_secs(30)).await;
    running(&cluster, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_job_of_somebody_else_is_left_to_them() {
    let cluster = cluster_of(1).await;
    job(&cluster, endless(), json!({"managedBy": "example.com/other"})).await;
    cluster.pass(minutes(5)).await;
    assert!(pods(&cluster, "work").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn pods_that_restart_in_place_count_towards_the_limit() {
    let cluster = cluster_of(1).await;
    let mut again = fails();
    again["spec"]["restartPolicy"] = json!("OnFailure");
    job(&cluster, again, json!({"backoffLimit": 2})).await;
    let job = over(&cluster, "Failed").await;
    assert_eq!(reason(&job, "Failed"), "BackoffLimitExceeded");
}

async fn cron(cluster: &HollowCluster, extra: Value) {
    let template = work(json!({"exit-after": "5s"}));
    let spec = merged(
        json!({"schedule": "*/10 * * * *", "jobTemplate": {"spec": {"template": template}}}),
        extra,
    );
    let object = json!({"metadata": {"name": "tick"}, "spec": spec});
    cluster.create("cronjobs", object).await.expect("a cron job");
}

async fn jobs_now(cluster: &HollowCluster) -> usize {
    cluster.list("jobs").await.expect("jobs").len()
}

#[tokio::test(start_paused = true)]
async fn the_last_missed_run_is_made_up_for_unless_its_deadline_is_over() {
    for (deadline, expected) in [(Value::Null, 1), (json!(600), 1), (json!(60), 0)] {
        let cluster = cluster_of(1).await;
        cron(&cluster, json!({"suspend": true, "startingDeadlineSeconds": deadline})).await;
        // Three runs are missed; the last of them five minutes ago.
        cluster.pass(minutes(35)).await;
        cluster
            .patch("cronjobs/tick", json!({"spec": {"suspend": false}}))
            .await
            .expect("a resume");
        cluster.pass(minutes(1)).await;
        assert_eq!(jobs_now(&cluster).await, expected, "{deadline}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_history_of_nothing_keeps_nothing() {
    let cluster = cluster_of(1).await;
    cron(&cluster, json!({"successfulJobsHistoryLimit": 0})).await;
    cluster.pass(minutes(32)).await;
    assert_eq!(jobs_now(&cluster).await, 0);
    let tick = cluster.get("cronjobs/tick").await.expect("it");
    assert_eq!(tick["status"]["lastScheduleTime"], "2026-01-01T00:30:00Z");
}

#[tokio::test(start_paused = true)]
async fn jobs_go_with_their_cron_job() {
    let cluster = cluster_of(1).await;
    cron(&cluster, json!({})).await;
    cluster.pass(minutes(12)).await;
    assert_eq!(jobs_now(&cluster).await, 1);
    cluster.delete("cronjobs/tick", "Background").await.expect("a deletion");
    until(&cluster, "jobs", minutes(1), |list| {
        list["items"].as_array().is_some_and(Vec::is_empty)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn nonsense_in_a_schedule_is_refused() {
    let cluster = cluster_of(1).await;
    let template = work(json!({}));
    for (schedule, zone) in [
        ("61 * * * *", json!(null)),
        ("* * * *", json!(null)),
        ("* * * * *", json!("Mars/Base")),
    ] {
        let spec = json!({"schedule": schedule, "timeZone": zone, "jobTemplate": {"spec": {"template": template}}});
        let object = json!({"metadata": {"name": "tick"}, "spec": spec});
        let refused = cluster.create("cronjobs", object).await.unwrap_err();
        assert_eq!(refused.code, 422, "{schedule} {zone}");
    }
}

/// A Job that replaces only pods that have failed, in Kubernetes' sense of the word.
fn careful() -> Value {
    let rule = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    json!({"podFailurePolicy": {"rules": [rule]}, "backoffLimit": 0})
}

/// Waits until another pod runs in the place of this one.
async fn replaced(cluster: &HollowCluster, lost: &Value) -> Value {
    let list = until(cluster, "pods?labelSelector=app=work", minutes(3), |list| {
        items(list)
            .iter()
            .any(|pod| name(pod) != name(lost) && pod["status"]["phase"] == "Running")
    })
    .await;
    gone(cluster, &format!("pods/{}", name(lost)), minutes(1)).await;
    let other = items(&list).iter().find(|pod| name(pod) != name(lost));
    other.expect("it was seen").clone()
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_is_deleted_has_failed_by_disruption() {
    let cluster = cluster_of(2).await;
    job(&cluster, endless(), careful()).await;
    let first = running(&cluster, 1).await.remove(0);
    let node = first["spec"]["nodeName"].as_str().unwrap_or_default();
    set_power(&cluster, node, json!("stopped")).await;
    remove(&cluster, &format!("nodes/{node}")).await;
    replaced(&cluster, &first).await;
    let job = cluster.get("jobs/work").await.expect("the job");
    assert!(job["status"]["failed"].as_i64().unwrap_or(0) == 0, "ignored: {job}");
}

#[tokio::test(start_paused = true)]
async fn a_pod_whose_node_is_off_for_good_has_failed() {
    let cluster = cluster_of(2).await;
    job(&cluster, endless(), json!({"podReplacementPolicy": "Failed"})).await;
    let first = running(&cluster, 1).await.remove(0);
    let node = first["spec"]["nodeName"].as_str().unwrap_or_default();
    set_power(&cluster, node, json!("stopped")).await;
    until(&cluster, &format!("nodes/{node}"), minutes(3), |node| {
        condition(node, "Ready", "Unknown")
    })
    .await;
    let taint = json!([{"key": "node.kubernetes.io/out-of-service", "value": "off", "effect": "NoExecute"}]);
    change(&cluster, &format!("nodes/{node}"), json!({"spec": {"taints": taint}})).await;
    replaced(&cluster, &first).await;
    until(&cluster, "jobs/work", minutes(1), |job| job["status"]["failed"] == 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_deleted_before_it_has_a_node_has_failed() {
    let cluster = cluster_of(1).await;
    let mut nowhere = endless();
    nowhere["spec"]["nodeSelector"] = json!({"no": "where"});
    job(&cluster, nowhere, json!({"podReplacementPolicy": "Failed"})).await;
    let first = count(&cluster, "pods?labelSelector=app=work", 1).await.remove(0);
    remove(&cluster, &format!("pods/{}", name(&first))).await;
    gone(&cluster, &format!("pods/{}", name(&first)), minutes(2)).await;
    until(&cluster, "jobs/work", minutes(2), |job| {
        job["status"]["failed"] == 1 && job["status"]["active"] == 1
    })
    .await;
}

fn noted(pod: &Value, what: &str) -> Value {
    pod["metadata"]["annotations"][format!("batch.kubernetes.io/{what}")].clone()
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_ignored_uses_up_no_patience_of_its_index() {
    let cluster = cluster_of(1).await;
    let index = json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 1});
    let mut spec = merged(careful(), index);
    spec.as_object_mut().expect("an object").remove("backoffLimit");
    job(&cluster, endless(), spec).await;
    let mut last = running(&cluster, 1).await.remove(0);
    for ignored in 1..=3 {
        evict(&cluster, &name(&last)).await.expect("an eviction");
        last = replaced(&cluster, &last).await;
        assert_eq!(noted(&last, "job-index-failure-count"), "0", "{last}");
        assert_eq!(
            noted(&last, "job-index-ignored-failure-count"),
            ignored.to_string().as_str(),
            "{last}"
        );
    }
    let job = cluster.get("jobs/work").await.expect("the job");
    assert_eq!(job["status"]["failedIndexes"], "", "{job}");
}

#[tokio::test(start_paused = true)]
async fn the_last_failed_pod_of_an_index_stays_until_the_next_one_has_its_count() {
    let cluster = cluster_of(1).await;
    let spec = json!({"completions": 1, "completionMode": "Indexed", "backoffLimitPerIndex": 2});
    job(&cluster, fails(), spec).await;
    let mut counts = Vec::new();
    for _ in 0..3 {
        let list = until(&cluster, "pods?labelSelector=app=work", minutes(5), |list| {
            items(list)
                .iter()
                .any(|pod| pod["status"]["phase"] == "Failed" && pod["metadata"]["deletionTimestamp"].is_null())
        })
        .await;
        let mut failed = items(&list).iter().filter(|pod| pod["status"]["phase"] == "Failed");
        let failed = failed.find(|pod| pod["metadata"]["deletionTimestamp"].is_null());
        let failed = failed.expect("it was seen");
        counts.push(noted(failed, "job-index-failure-count"));
        // Somebody tidies up at once; the finalizer keeps what still has to be counted on.
        remove(&cluster, &format!("pods/{}", name(failed))).await;
    }
    assert_eq!(counts, ["0", "1", "2"]);
    let job = over(&cluster, "Failed").await;
    assert_eq!(
        (&job["status"]["failedIndexes"], &job["status"]["failed"]),
        (&json!("0"), &json!(3)),
        "{job}"
    );
}
