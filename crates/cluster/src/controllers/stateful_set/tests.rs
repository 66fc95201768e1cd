//! StatefulSets told step by step: which pods are made and which go.

use super::identity;
use super::status;
use super::steps::{Place, Step, World};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use serde_json::{Value, json};
use std::sync::Arc;

fn set(spec: Value) -> StatefulSet {
    let mut whole = json!({"selector": {"matchLabels": {"app": "db"}}, "serviceName": "db",
        "template": {"metadata": {"labels": {"app": "db"}}, "spec": {"containers": []}}});
    whole.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    serde_json::from_value(json!({"metadata": {"name": "db", "namespace": "d", "uid": "set"}, "spec": whole})).unwrap()
}

/// Pods as `ordinal revision state`, with the states `ready`, `pending`, `failed` and `going`.
fn pods(texts: &[&str]) -> Vec<Arc<Pod>> {
    let pod = |text: &&str| {
        let [ordinal, revision, state] = text.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{text}")
        };
        let mut pod = json!({
            "metadata": {"name": format!("db-{ordinal}"), "uid": format!("pod-{ordinal}"),
                "labels": {"controller-revision-hash": revision}},
            "status": {"phase": match state { "pending" => "Pending", "failed" => "Failed", _ => "Running" }},
        });
        if state == "ready" || state == "going" {
            pod["status"]["conditions"] =
                json!([{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]);
        }
        if state == "going" {
            pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    texts.iter().map(pod).collect()
}

fn now() -> Timestamp {
    "2026-01-01T00:00:05Z".parse().unwrap()
}

/// Steps read as `+2 new` and `-1`.
#[track_caller]
fn check(spec: Value, have: &[&str], expected: &[&str]) {
    let (set, pods) = (set(spec), pods(have));
    let world = World::new(&set, &pods, "old", "new", now());
    let steps = world.steps().into_iter().map(|step| match step {
        Step::Create { ordinal, revision } => format!("+{ordinal} {revision}"),
        Step::Delete(pod) => format!("-{}", identity::ordinal_in(&set, pod).unwrap()),
    });
    assert_eq!(steps.collect::<Vec<_>>(), expected);
}

#[test]
fn in_order_each_pod_waits_for_the_one_before() {
    let three = || json!({"replicas": 3});
    check(three(), &[], &["+0 new"]);
    check(three(), &["0 new pending"], &[]);
    check(three(), &["0 new ready"], &["+1 new"]);
    check(three(), &["0 new ready", "1 new going"], &[]);
    check(three(), &["0 new ready", "1 new failed"], &["-1"]);
    check(three(), &["0 new ready", "1 new ready", "2 new ready"], &[]);
}

#[test]
fn in_parallel_all_pods_come_and_go_at_once() {
    check(
        json!({"replicas": 3, "podManagementPolicy": "Parallel"}),
        &["1 new pending"],
        &["+0 new", "+2 new"],
    );
    check(
        json!({"replicas": 0, "podManagementPolicy": "Parallel"}),
        &["0 new ready", "1 new pending"],
        &["-1", "-0"],
    );
}

#[test]
fn scaling_down_takes_the_highest_and_waits_until_it_is_gone() {
    check(
        json!({"replicas": 1}),
        &["0 new ready", "1 new ready", "2 new ready"],
        &["-2"],
    );
    check(
        json!({"replicas": 1}),
        &["0 new ready", "1 new ready", "2 new going"],
        &[],
    );
    check(json!({"replicas": 1}), &["0 new pending", "1 new ready"], &[]);
}

#[test]
fn ordinals_start_where_the_set_says() {
    let from_five = || json!({"replicas": 2, "ordinals": {"start": 5}});
    check(from_five(), &["5 new ready"], &["+6 new"]);
    check(from_five(), &["0 new ready", "5 new ready", "6 new ready"], &["-0"]);
}

#[test]
fn an_update_goes_from_the_highest_down_to_the_partition() {
    let rolling = |partition: i32| json!({"replicas": 3, "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": partition}}});
    check(rolling(0), &["0 old ready", "1 old ready", "2 old ready"], &["-2"]);
    check(rolling(0), &["0 old ready", "1 old ready"], &["+2 new"]);
    check(rolling(0), &["0 old ready", "1 old ready", "2 new pending"], &[]);
    check(rolling(0), &["0 old ready", "1 old ready", "2 new ready"], &["-1"]);
    check(rolling(2), &["0 old ready", "1 old ready", "2 new ready"], &[]);
    check(rolling(2), &["0 old ready", "2 new ready"], &["+1 old"]);
    check(rolling(9), &["0 old ready", "1 old ready", "2 old ready"], &[]);
}

#[test]
fn with_on_delete_the_update_waits_for_somebody_to_delete() {
    let manual = || json!({"replicas": 2, "updateStrategy": {"type": "OnDelete"}});
    check(manual(), &["0 old ready", "1 old ready"], &[]);
    check(manual(), &["0 old ready"], &["+1 new"]);
}

#[test]
fn more_pods_may_be_missing_at_once() {
    let two = json!({"replicas": 4, "podManagementPolicy": "Parallel",
        "updateStrategy": {"rollingUpdate": {"maxUnavailable": "50%"}}});
    check(
        two,
        &["0 old ready", "1 old ready", "2 old ready", "3 old ready"],
        &["-3", "-2"],
    );
}

#[test]
fn a_pod_must_be_ready_for_long_enough_before_the_next() {
    check(json!({"replicas": 2, "minReadySeconds": 6}), &["0 new ready"], &[]);
    check(
        json!({"replicas": 2, "minReadySeconds": 5}),
        &["0 new ready"],
        &["+1 new"],
    );
}

#[test]
fn the_status_moves_on_when_the_update_is_through() {
    let set = set(json!({"replicas": 2}));
    let half = pods(&["0 old ready", "1 new ready"]);
    let status = status::of(&set, &World::new(&set, &half, "old", "new", now())).unwrap();
    assert_eq!(
        (
            status.current_revision.as_deref(),
            status.current_replicas,
            status.updated_replicas
        ),
        (Some("old"), Some(1), Some(1))
    );
    let done = pods(&["0 new ready", "1 new ready"]);
    let status = status::of(&set, &World::new(&set, &done, "old", "new", now())).unwrap();
    assert_eq!(
        (
            status.current_revision.as_deref(),
            status.current_replicas,
            status.available_replicas
        ),
        (Some("new"), Some(2), Some(2))
    );
}

#[test]
fn a_pod_has_its_name_its_service_and_its_claims() {
    let set = set(json!({"volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}]}));
    let template = set.spec.as_ref().unwrap().template.clone();
    let pod = identity::pod(&set, &template, 1, "new");
    let spec = pod.spec.unwrap();
    assert_eq!(
        (spec.hostname.as_deref(), spec.subdomain.as_deref()),
        (Some("db-1"), Some("db"))
    );
    let volume = &spec.volumes.unwrap()[0];
    assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().claim_name, "data-db-1");
    assert_eq!(pod.metadata.labels.unwrap()["apps.kubernetes.io/pod-index"], "1");
    let claim = &identity::claims(&set, 1)[0];
    assert_eq!(claim.metadata.name.as_deref(), Some("data-db-1"));
    assert_eq!(claim.metadata.labels.as_ref().unwrap()["app"], "db");
}

#[test]
fn claims_go_with_what_the_retention_policy_names() {
    let policy = json!({"whenDeleted": "Delete", "whenScaled": "Delete"});
    let set = set(json!({"persistentVolumeClaimRetentionPolicy": policy}));
    let pod = &pods(&["1 new ready"])[0];
    let mut claim = PersistentVolumeClaim::default();
    let owners = identity::claim_owners(&set, pod, Place::Kept, &claim).unwrap();
    assert_eq!(
        owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(),
        ["set"]
    );
    claim.metadata.owner_references = Some(owners);
    assert!(identity::claim_owners(&set, pod, Place::Kept, &claim).is_none());
    let owners = identity::claim_owners(&set, pod, Place::Condemned, &claim).unwrap();
    assert_eq!(
        owners.iter().map(|owner| owner.uid.as_str()).collect::<Vec<_>>(),
        ["pod-1"]
    );
}
