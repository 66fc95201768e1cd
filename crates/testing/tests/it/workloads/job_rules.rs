//! The finer rules of Jobs: what counts as a failure, when enough has succeeded, and what may change on the way.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

fn work(script: Value) -> Value {
    let mut work = template("work", script);
    work["spec"]["restartPolicy"] = json!("Never");
    work
}

fn fails_with(code: &str) -> Value {
    work(json!({"exit-after": "1s", "exit-code": code}))
}

fn on_codes(action: &str, operator: &str, codes: &[i32]) -> Value {
    json!({"action": action, "onExitCodes": {"operator": operator, "values": codes}})
}

fn indexed(completions: i32, parallelism: i32) -> Value {
    json!({"completions": completions, "parallelism": parallelism, "completionMode": "Indexed"})
}

async fn over(cluster: &HollowCluster, how: &str) -> Value {
    until(cluster, "jobs/work", minutes(30), |job| condition(job, how, "True")).await
}

/// Waits until so many pods of the Job run and none is on its way out, and gives their indexes.
async fn indexes(cluster: &HollowCluster, wanted: usize) -> Vec<String> {
    let list = until(cluster, "pods?labelSelector=app=work", minutes(2), |list| {
        let running = |pod: &&Value| pod["status"]["phase"] == "Running";
        items(list).len() == wanted && items(list).iter().filter(running).count() == wanted
    })
    .await;
    let label = "batch.kubernetes.io/job-completion-index";
    let mut found: Vec<String> = items(&list)
        .iter()
        .map(|pod| {
            pod["metadata"]["labels"][label]
                .as_str()
                .unwrap_or_default()
                .to_string()
        })
        .collect();
    found.sort();
    found
}

#[tokio::test(start_paused = true)]
async fn the_first_rule_that_fits_a_failure_decides() {
    for (rules, reason_) in [
        (
            vec![on_codes("Count", "In", &[7]), on_codes("FailJob", "In", &[7])],
            "BackoffLimitExceeded",
        ),
        (
            vec![on_codes("FailJob", "In", &[7]), on_codes("Count", "In", &[7])],
            "PodFailurePolicy",
        ),
        (vec![on_codes("FailJob", "NotIn", &[1, 2])], "PodFailurePolicy"),
        (vec![on_codes("FailJob", "NotIn", &[7])], "BackoffLimitExceeded"),
        (
            vec![
                json!({"action": "FailJob", "onExitCodes": {"containerName": "main", "operator": "In", "values": [7]}}),
            ],
            "PodFailurePolicy",
        ),
    ] {
        let cluster = cluster_of(1).await;
        let policy = json!({"backoffLimit": 1, "podFailurePolicy": {"rules": rules}});
        job(&cluster, fails_with("7"), policy).await;
        let job = over(&cluster, "Failed").await;
        assert_eq!(reason(&job, "Failed"), reason_, "{rules:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_policy_says_which_container_failed_how_and_by_which_rule() {
    let cluster = cluster_of(1).await;
    job(
        &cluster,
        fails_with("42"),
        json!({"podFailurePolicy": {"rules": [on_codes("FailJob", "In", &[42])]}}),
    )
    .await;
    let job = over(&cluster, "Failed").await;
    let pod = name(&pods(&cluster, "work").await[0]);
    let expected =
        format!("Container main for pod default/{pod} failed with exit code 42 matching FailJob rule at index 0");
    assert_eq!(told(&job, "Failed")["message"], expected);
}

#[tokio::test(start_paused = true)]
async fn a_disruption_may_fail_a_job() {
    let cluster = cluster_of(1).await;
    let rule = json!({"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]});
    let mut endless = work(json!({"stop-after": "1h"}));
    endless["spec"]["terminationGracePeriodSeconds"] = json!(5);
    job(&cluster, endless, json!({"podFailurePolicy": {"rules": [rule]}})).await;
    indexes(&cluster, 1).await;
    let pod = name(&pods(&cluster, "work").await[0]);
    evict(&cluster, &pod).await.expect("an eviction");
    let job = over(&cluster, "Failed").await;
    let why = told(&job, "Failed")["message"].as_str().unwrap_or_default().to_string();
    assert_eq!(
        why,
        format!("Pod default/{pod} has condition DisruptionTarget matching FailJob rule at index 0")
    );
}

#[tokio::test(start_paused = true)]
async fn without_a_policy_a_disruption_counts_as_a_failure() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({})), json!({"backoffLimit": 0})).await;
    indexes(&cluster, 1).await;
    evict(&cluster, &name(&pods(&cluster, "work").await[0]))
        .await
        .expect("an eviction");
    let job = over(&cluster, "Failed").await;
    assert_eq!(
        (reason(&job, "Failed"), &job["status"]["failed"]),
        ("BackoffLimitExceeded", &json!(1))
    );
}

#[tokio::test(start_paused = true)]
async fn successes_are_enough_by_number_by_index_or_by_the_first_rule_of_several() {
    for (rules, completed) in [
        (json!([{"succeededCount": 2}]), "0,1"),
        (json!([{"succeededIndexes": "1"}]), "0,1"),
        (json!([{"succeededIndexes": "4"}, {"succeededCount": 1}]), "0"),
        (json!([{"succeededIndexes": "0,2-3", "succeededCount": 2}]), "0-2"),
    ] {
        let cluster = cluster_of(1).await;
        let spec = merged(indexed(5, 1), json!({"successPolicy": {"rules": rules}}));
        job(&cluster, work(json!({"exit-after": "3s"})), spec).await;
        let job = over(&cluster, "Complete").await;
        assert_eq!(job["status"]["completedIndexes"], completed, "{rules}");
        assert_eq!(reason(&job, "SuccessCriteriaMet"), "SuccessPolicy");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_has_succeeded_ends_those_that_still_run_before_it_says_so() {
    let cluster = cluster_of(1).await;
    let spec = merged(
        indexed(3, 3),
        json!({"successPolicy": {"rules": [{"succeededCount": 1}]}}),
    );
    job(&cluster, work(json!({"stop-after": "20s"})), spec).await;
    indexes(&cluster, 3).await;
    let first = name(&pods(&cluster, "work").await[0]);
    change(
        &cluster,
        &format!("pods/{first}/status"),
        json!({"status": {"phase": "Succeeded"}}),
    )
    .await;
    let early = over(&cluster, "SuccessCriteriaMet").await;
    assert!(
        !condition(&early, "Complete", "True"),
        "two pods are still ending: {early}"
    );
    let done = over(&cluster, "Complete").await;
    assert!(
        done["status"]["active"].is_null() && done["status"]["terminating"] == 0,
        "{done}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_job_has_failed_when_its_last_pod_is_gone() {
    let cluster = cluster_of(1).await;
    job(
        &cluster,
        work(json!({"stop-after": "20s"})),
        json!({"activeDeadlineSeconds": 10}),
    )
    .await;
    let early = over(&cluster, "FailureTarget").await;
    assert!(!condition(&early, "Failed", "True"), "{early}");
    assert_eq!(
        early["status"]["terminating"].as_i64().unwrap_or(0) + early["status"]["active"].as_i64().unwrap_or(0),
        1
    );
    let job = over(&cluster, "Failed").await;
    assert_eq!(reason(&job, "Failed"), "DeadlineExceeded");
}

#[tokio::test(start_paused = true)]
async fn a_pod_on_its_way_out_is_replaced_at_once() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({"stop-after": "25s"})), json!({})).await;
    indexes(&cluster, 1).await;
    let first = name(&pods(&cluster, "work").await[0]);
    remove(&cluster, &format!("pods/{first}")).await;
    cluster.pass(Duration::from_secs(15)).await;
    let all = cluster.list("pods?labelSelector=app=work").await.expect("pods");
    assert_eq!(all.len(), 2, "the old one ends while the new one runs");
    let job = cluster.get("jobs/work").await.expect("it");
    assert_eq!(job["status"]["failed"], 1, "{job}");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_counts_from_the_last_start() {
    let cluster = cluster_of(1).await;
    job(
        &cluster,
        work(json!({})),
        json!({"activeDeadlineSeconds": 60, "suspend": true}),
    )
    .await;
    cluster.pass(minutes(3)).await;
    let waiting = cluster.get("jobs/work").await.expect("it");
    assert!(
        waiting["status"]["startTime"].is_null() && !condition(&waiting, "Failed", "True"),
        "{waiting}"
    );
    change(&cluster, "jobs/work", json!({"spec": {"suspend": false}})).await;
    cluster.pass(Duration::from_secs(40)).await;
    let running = cluster.get("jobs/work").await.expect("it");
    assert_eq!(running["status"]["active"], 1, "{running}");
    over(&cluster, "Failed").await;
}

#[tokio::test(start_paused = true)]
async fn an_indexed_job_may_grow_and_shrink() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({})), indexed(2, 2)).await;
    assert_eq!(indexes(&cluster, 2).await, ["0", "1"]);
    for (size, expected) in [(4, vec!["0", "1", "2", "3"]), (1, vec!["0"]), (3, vec!["0", "1", "2"])] {
        change(
            &cluster,
            "jobs/work",
            json!({"spec": {"completions": size, "parallelism": size}}),
        )
        .await;
        assert_eq!(indexes(&cluster, size).await, expected, "{size}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_runs_nothing_waits() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({"exit-after": "2s"})), json!({"parallelism": 0})).await;
    cluster.pass(minutes(1)).await;
    let idle = cluster.get("jobs/work").await.expect("it");
    assert!(
        idle["status"]["active"].is_null() && idle["status"]["startTime"].is_string(),
        "{idle}"
    );
    change(&cluster, "jobs/work", json!({"spec": {"parallelism": 1}})).await;
    over(&cluster, "Complete").await;
}

#[tokio::test(start_paused = true)]
async fn a_time_to_live_may_be_set_when_the_job_is_over() {
    for (seconds, life) in [(0, Duration::from_secs(1)), (90, Duration::from_secs(100))] {
        let cluster = cluster_of(1).await;
        job(&cluster, work(json!({"exit-after": "1s"})), json!({})).await;
        over(&cluster, "Complete").await;
        cluster.pass(minutes(1)).await;
        cluster.get("jobs/work").await.expect("nobody said that it shall go");
        change(
            &cluster,
            "jobs/work",
            json!({"spec": {"ttlSecondsAfterFinished": seconds}}),
        )
        .await;
        gone(&cluster, "jobs/work", life).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_are_kept_until_they_are_counted_and_freed_when_their_job_goes() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({})), json!({"parallelism": 2})).await;
    indexes(&cluster, 2).await;
    for pod in pods(&cluster, "work").await {
        assert_eq!(
            pod["metadata"]["finalizers"],
            json!(["batch.kubernetes.io/job-tracking"])
        );
    }
    cluster.delete("jobs/work", "Orphan").await.expect("a deletion");
    gone(&cluster, "jobs/work", SOON).await;
    until(&cluster, "pods?labelSelector=app=work", minutes(1), |list| {
        let free =
            |pod: &Value| pod["metadata"]["finalizers"].is_null() && pod["metadata"]["ownerReferences"].is_null();
        items(list).len() == 2 && items(list).iter().all(free)
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_job_that_is_deleted_takes_its_pods_along() {
    for how in ["Background", "Foreground"] {
        let cluster = cluster_of(1).await;
        job(&cluster, work(json!({"stop-after": "5s"})), json!({"parallelism": 2})).await;
        indexes(&cluster, 2).await;
        cluster.delete("jobs/work", how).await.expect("a deletion");
        count(&cluster, "pods", 0).await;
        gone(&cluster, "jobs/work", SOON).await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_pods_of_a_job_carry_its_name_and_its_number() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({})), json!({})).await;
    indexes(&cluster, 1).await;
    let job = cluster.get("jobs/work").await.expect("it");
    let labels = pods(&cluster, "work").await[0]["metadata"]["labels"].clone();
    for (label, value) in [
        ("job-name", &job["metadata"]["name"]),
        ("batch.kubernetes.io/job-name", &job["metadata"]["name"]),
        ("controller-uid", &job["metadata"]["uid"]),
        ("batch.kubernetes.io/controller-uid", &job["metadata"]["uid"]),
    ] {
        assert_eq!(&labels[label], value, "{label}");
    }
    let chosen = &job["spec"]["selector"]["matchLabels"]["batch.kubernetes.io/controller-uid"];
    assert_eq!(chosen, &job["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn an_index_is_in_the_name_the_labels_and_the_environment_of_its_pod() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({})), indexed(2, 2)).await;
    indexes(&cluster, 2).await;
    let one = "pods?labelSelector=batch.kubernetes.io/job-completion-index=1";
    let pod = cluster.list(one).await.expect("pods").remove(0);
    assert!(name(&pod).starts_with("work-1-"), "{}", name(&pod));
    let env = &pod["spec"]["containers"][0]["env"][0];
    assert_eq!(env["name"], "JOB_COMPLETION_INDEX");
    let path = "metadata.labels['batch.kubernetes.io/job-completion-index']";
    assert_eq!(env["valueFrom"]["fieldRef"]["fieldPath"], path);
    assert_eq!(
        pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"],
        "1"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_failure_may_be_one_too_many() {
    let cluster = cluster_of(1).await;
    job(&cluster, fails_with("1"), json!({"backoffLimit": 0})).await;
    let job = over(&cluster, "Failed").await;
    assert_eq!(job["status"]["failed"], 1);
    assert_eq!(
        told(&job, "Failed")["message"],
        "Job has reached the specified backoff limit"
    );
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_job_is_an_event() {
    for (code, reason) in [("0", "Completed"), ("1", "BackoffLimitExceeded")] {
        let cluster = cluster_of(1).await;
        job(&cluster, fails_with(code), json!({"backoffLimit": 0})).await;
        let note = event(&cluster, reason).await;
        let expected = if code == "0" {
            "Job completed"
        } else {
            "Job has reached the specified backoff limit"
        };
        assert_eq!(note, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_tells_how_many_of_its_pods_are_ready() {
    let cluster = cluster_of(1).await;
    job(&cluster, work(json!({"ready-after": "20s"})), json!({"parallelism": 2})).await;
    indexes(&cluster, 2).await;
    let early = until(&cluster, "jobs/work", SOON, |job| job["status"]["active"] == 2).await;
    assert_eq!(early["status"]["ready"], 0);
    until(&cluster, "jobs/work", minutes(1), |job| job["status"]["ready"] == 2).await;
}
