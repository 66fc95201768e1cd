//! Roll-outs in detail: how far each step goes, what it waits for, and what it says when it gets nowhere.

use super::story::*;
use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;

fn rolling(surge: Value, unavailable: Value) -> Value {
    json!({"strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": unavailable}}})
}

/// A Deployment that is up, and then gets pods that never become ready.
async fn stuck(cluster: &HollowCluster, replicas: i32, strategy: Value) {
    deployment(cluster, replicas, json!({}), strategy).await;
    until(cluster, "deployments/web", SOON, rolled_out(replicas.into())).await;
    let broken = image_with("web:2", json!({"ready-after": "never"}));
    change(cluster, "deployments/web", broken).await;
}

fn counts(deployment: &Value) -> [i64; 4] {
    let fields = [
        "replicas",
        "updatedReplicas",
        "availableReplicas",
        "unavailableReplicas",
    ];
    fields.map(|field| deployment["status"][field].as_i64().unwrap_or(0))
}

#[tokio::test(start_paused = true)]
async fn percentages_round_surge_up_and_missing_ones_down() {
    let cluster = cluster().await;
    stuck(&cluster, 10, rolling(json!("25%"), json!("25%"))).await;
    let still = |web: &Value| counts(web) == [13, 5, 8, 5];
    until(&cluster, "deployments/web", minutes(1), still).await;
    stays(&cluster, "deployments/web", minutes(1), still).await;
}

#[tokio::test(start_paused = true)]
async fn where_both_limits_round_to_nought_one_pod_may_be_missing() {
    let cluster = cluster().await;
    stuck(&cluster, 3, rolling(json!(0), json!("10%"))).await;
    let still = |web: &Value| counts(web) == [3, 1, 2, 1];
    until(&cluster, "deployments/web", minutes(1), still).await;
    stays(&cluster, "deployments/web", minutes(1), still).await;
}

#[tokio::test(start_paused = true)]
async fn without_surge_there_are_never_more_pods_than_wanted() {
    let cluster = cluster().await;
    deployment(&cluster, 4, json!({"ready-after": "3s"}), rolling(json!(0), json!(2))).await;
    until(&cluster, "deployments/web", SOON, rolled_out(4)).await;
    change(&cluster, "deployments/web", image("web:2")).await;
    let mut most = 0;
    until(&cluster, "deployments/web", minutes(2), |web| {
        most = most.max(counts(web)[0]);
        rolled_out(4)(web)
    })
    .await;
    assert_eq!(most, 4);
}

#[tokio::test(start_paused = true)]
async fn all_pods_may_be_replaced_at_once_where_all_may_be_missing() {
    let cluster = cluster().await;
    stuck(&cluster, 3, rolling(json!(0), json!("100%"))).await;
    until(&cluster, "deployments/web", minutes(1), |web| {
        counts(web) == [3, 3, 0, 3]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn pods_that_never_worked_do_not_hold_up_the_next_roll_out() {
    let cluster = cluster().await;
    let careful = rolling(json!(1), json!(0));
    deployment(&cluster, 3, json!({"ready-after": "never"}), careful).await;
    until(&cluster, "deployments/web", SOON, |web| counts(web) == [3, 3, 0, 3]).await;
    change(
        &cluster,
        "deployments/web",
        image_with("web:2", json!({"ready-after": null})),
    )
    .await;
    until(&cluster, "deployments/web", minutes(1), rolled_out(3)).await;
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_that_is_overtaken_by_another_is_given_up() {
    let cluster = cluster().await;
    stuck(&cluster, 4, rolling(json!(1), json!(0))).await;
    until(&cluster, "deployments/web", SOON, |web| counts(web)[1] == 1).await;
    change(
        &cluster,
        "deployments/web",
        image_with("web:3", json!({"ready-after": null})),
    )
    .await;
    until(&cluster, "deployments/web", minutes(1), rolled_out(4)).await;
    assert_eq!(images(&cluster, "web").await, ["web:3"; 4]);
    let sets = cluster.list("replicasets").await.expect("sets");
    let mut sizes: Vec<_> = sets.iter().map(|set| set["spec"]["replicas"].as_i64()).collect();
    sizes.sort();
    assert_eq!(sizes, [Some(0), Some(0), Some(4)]);
}

#[tokio::test(start_paused = true)]
async fn an_old_pod_stays_until_its_successor_has_proved_itself() {
    let cluster = cluster().await;
    let slowly = merged(rolling(json!(1), json!(0)), json!({"minReadySeconds": 30}));
    deployment(&cluster, 2, json!({}), slowly).await;
    until(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
    change(&cluster, "deployments/web", image("web:2")).await;
    cluster.pass(Duration::from_secs(25)).await;
    let early = cluster.get("deployments/web").await.expect("it");
    assert_eq!(
        counts(&early),
        [3, 1, 2, 1],
        "the first new pod is ready, and not for long enough"
    );
    cluster.pass(Duration::from_secs(30)).await;
    let later = cluster.get("deployments/web").await.expect("it");
    assert_eq!(counts(&later)[1], 2, "each of them takes its time");
    until(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
}

#[tokio::test(start_paused = true)]
async fn too_few_available_pods_are_told_as_such() {
    let cluster = cluster().await;
    let mut gated = rolling(json!(1), json!(1));
    gated["template"] = gated_template("web");
    deployment(&cluster, 3, json!({}), gated).await;
    let web = until(&cluster, "deployments/web", SOON, |web| {
        condition(web, "Available", "False") && counts(web) == [3, 3, 0, 3]
    })
    .await;
    assert_eq!(reason(&web, "Available"), "MinimumReplicasUnavailable");
    for pod in pods(&cluster, "web").await.iter().take(2) {
        open_gate(&cluster, &name(pod), "True").await;
    }
    let web = until(&cluster, "deployments/web", SOON, |web| {
        condition(web, "Available", "True")
    })
    .await;
    assert_eq!(counts(&web)[2], 2, "one may be missing");
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_pause_does_not_count_towards_the_deadline() {
    let cluster = cluster().await;
    deployment(
        &cluster,
        2,
        json!({"ready-after": "20s"}),
        json!({"progressDeadlineSeconds": 60}),
    )
    .await;
    until(&cluster, "deployments/web", minutes(1), rolled_out(2)).await;
    let mut update = image("web:2");
    update["spec"]["paused"] = json!(true);
    change(&cluster, "deployments/web", update).await;
    cluster.pass(minutes(5)).await;
    change(&cluster, "deployments/web", json!({"spec": {"paused": false}})).await;
    let mut seen = Vec::new();
    until(&cluster, "deployments/web", minutes(2), |web| {
        let now = reason(web, "Progressing").to_string();
        if seen.last() != Some(&now) {
            seen.push(now);
        }
        rolled_out(2)(web)
    })
    .await;
    assert!(!seen.contains(&"ProgressDeadlineExceeded".to_string()), "{seen:?}");
    assert!(seen.contains(&"ReplicaSetUpdated".to_string()), "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_that_is_complete_stays_so_however_the_deployment_is_scaled() {
    let cluster = cluster().await;
    deployment(&cluster, 1, json!({}), json!({"progressDeadlineSeconds": 30})).await;
    until(&cluster, "deployments/web", minutes(1), rolled_out(1)).await;
    make(&cluster, "resourcequotas", "full", json!({"hard": {"pods": "1"}})).await;
    until(&cluster, "resourcequotas/full", SOON, |quota| {
        quota["status"]["hard"]["pods"] == "1"
    })
    .await;
    change(&cluster, "deployments/web", json!({"spec": {"replicas": 3}})).await;
    until(&cluster, "deployments/web", SOON, |web| {
        condition(web, "ReplicaFailure", "True")
    })
    .await;
    stays(&cluster, "deployments/web", minutes(2), |web| {
        reason(web, "Progressing") == "NewReplicaSetAvailable"
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn one_that_is_late_stays_so_while_it_is_paused() {
    let cluster = cluster().await;
    let soon = merged(rolling(json!(1), json!(0)), json!({"progressDeadlineSeconds": 30}));
    stuck(&cluster, 2, soon).await;
    let late = |web: &Value| reason(web, "Progressing") == "ProgressDeadlineExceeded";
    until(&cluster, "deployments/web", minutes(2), late).await;
    change(&cluster, "deployments/web", json!({"spec": {"paused": true}})).await;
    stays(&cluster, "deployments/web", minutes(1), late).await;
}

#[tokio::test(start_paused = true)]
async fn a_paused_deployment_grows_from_nothing() {
    let cluster = cluster().await;
    deployment(&cluster, 0, json!({}), json!({})).await;
    count(&cluster, "replicasets", 1).await;
    change(
        &cluster,
        "deployments/web",
        json!({"spec": {"paused": true, "replicas": 3}}),
    )
    .await;
    until(&cluster, "deployments/web", SOON, |web| counts(web) == [3, 3, 3, 0]).await;
}

#[tokio::test(start_paused = true)]
async fn what_keeps_pods_from_being_made_is_told_by_the_deployment_too() {
    let cluster = cluster().await;
    make(&cluster, "resourcequotas", "none", json!({"hard": {"pods": "1"}})).await;
    until(&cluster, "resourcequotas/none", SOON, |quota| {
        quota["status"]["hard"]["pods"] == "1"
    })
    .await;
    deployment(&cluster, 2, json!({}), json!({})).await;
    let web = until(&cluster, "deployments/web", minutes(1), |web| {
        condition(web, "ReplicaFailure", "True")
    })
    .await;
    let failure = told(&web, "ReplicaFailure");
    assert_eq!(failure["reason"], "FailedCreate");
    assert!(
        failure["message"]
            .as_str()
            .unwrap_or_default()
            .contains("exceeded quota: none"),
        "{failure}"
    );
    remove(&cluster, "resourcequotas/none").await;
    let web = until(&cluster, "deployments/web", minutes(20), rolled_out(2)).await;
    assert!(told(&web, "ReplicaFailure").is_null(), "it is over: {web}");
}

#[tokio::test(start_paused = true)]
async fn pods_on_their_way_out_are_counted_apart() {
    let cluster = cluster().await;
    deployment(&cluster, 3, json!({"stop-after": "20s"}), json!({})).await;
    until(&cluster, "deployments/web", SOON, rolled_out(3)).await;
    scale(&cluster, "deployments/web", 1).await;
    let web = until(&cluster, "deployments/web", SOON, |web| {
        web["status"]["terminatingReplicas"] == 2
    })
    .await;
    assert_eq!(counts(&web)[0], 1, "they are no replicas any more");
    until(&cluster, "deployments/web", minutes(1), |web| {
        web["status"]["terminatingReplicas"].as_i64().unwrap_or(0) == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_roll_out_that_stands_still_shrinks_in_proportion() {
    let cluster = cluster().await;
    stuck(&cluster, 10, rolling(json!(4), json!(0))).await;
    until(&cluster, "deployments/web", SOON, |web| counts(web) == [14, 4, 10, 4]).await;
    change(
        &cluster,
        "deployments/web",
        json!({"spec": {"paused": true, "replicas": 3}}),
    )
    .await;
    until(&cluster, "deployments/web", minutes(1), |web| {
        counts(web) == [7, 2, 5, 2]
    })
    .await;
    change(&cluster, "deployments/web", json!({"spec": {"paused": false}})).await;
    until(&cluster, "deployments/web", minutes(1), |web| {
        counts(web) == [6, 3, 3, 3]
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn every_step_of_a_scale_is_an_event() {
    let cluster = cluster().await;
    deployment(&cluster, 2, json!({}), json!({})).await;
    let up = event(&cluster, "ScalingReplicaSet").await;
    assert!(
        up.starts_with("Scaled up replica set web-") && up.ends_with(" from 0 to 2"),
        "{up}"
    );
    until(&cluster, "deployments/web", SOON, rolled_out(2)).await;
    scale(&cluster, "deployments/web", 1).await;
    until(&cluster, "events", SOON, |list| {
        let mut notes = items(list).iter().filter_map(|event| event["note"].as_str());
        notes.any(|note| note.starts_with("Scaled down replica set web-") && note.ends_with(" from 2 to 1"))
    })
    .await;
}
