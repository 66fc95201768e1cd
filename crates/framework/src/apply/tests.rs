//! Stories about comparing.

use super::*;
use serde_json::{Value, json};

fn deployment(spec: Value, owned: Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "shop", "uid": "u", "resourceVersion": "7",
            "managedFields": [
                {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:paused": {}}}},
                {"manager": "us", "operation": "Apply", "fieldsV1": owned},
            ],
        },
        "spec": spec,
    })
}

fn wish(spec: Value) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"}, "spec": spec})
}

#[test]
fn server_defaults_beside_our_fields_do_not_matter() {
    let owned = json!({"f:spec": {"f:replicas": {}}});
    let live = deployment(
        json!({"replicas": 2, "revisionHistoryLimit": 10, "paused": true}),
        owned,
    );
    assert_eq!(compare(&wish(json!({"replicas": 2})), &live, "us"), Verdict::Same);
}

#[test]
fn a_changed_value_a_new_field_and_a_field_we_dropped_are_found() {
    let owned = json!({"f:spec": {"f:replicas": {}, "f:minReadySeconds": {}}});
    let live = deployment(json!({"replicas": 2, "minReadySeconds": 5}), owned);
    let verdict = compare(&wish(json!({"replicas": 3, "paused": false})), &live, "us");
    let Verdict::Differs(mut places) = verdict else {
        panic!("{verdict:?}")
    };
    places.sort();
    assert_eq!(places, ["/spec/minReadySeconds", "/spec/paused", "/spec/replicas"]);
}

#[test]
fn items_of_keyed_lists_are_found_by_key_whatever_their_place() {
    let owned = json!({"f:spec": {"f:containers": {
        "k:{\"name\":\"a\"}": {".": {}, "f:name": {}, "f:image": {},
            "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}},
    }}});
    let live = deployment(
        json!({"containers": [
            {"name": "injected", "image": "proxy"},
            {"name": "a", "image": "i", "imagePullPolicy": "Always", "ports": [{"containerPort": 80, "protocol": "TCP"}]},
        ]}),
        owned,
    );
    let ours = json!({"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}]}]});
    assert_eq!(compare(&wish(ours), &live, "us"), Verdict::Same);
    let newer = json!({"containers": [{"name": "a", "image": "j", "ports": [{"containerPort": 80}]}]});
    assert_eq!(
        compare(&wish(newer), &live, "us"),
        Verdict::Differs(vec!["/spec/containers/0/image".to_owned()])
    );
}

#[test]
fn quantities_are_compared_as_amounts_and_other_text_is_not() {
    let owned = json!({"f:spec": {"f:resources": {"f:limits": {"f:cpu": {}, "f:memory": {}}}, "f:text": {}}});
    let live = deployment(
        json!({"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}, "text": "1"}),
        owned,
    );
    let same = json!({"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}, "text": "1"});
    assert_eq!(compare(&wish(same), &live, "us"), Verdict::Same);
    let other = json!({"resources": {"limits": {"cpu": "1000m", "memory": "1024Mi"}}, "text": "1000m"});
    assert_eq!(
        compare(&wish(other), &live, "us"),
        Verdict::Differs(vec!["/spec/text".to_owned()])
    );
}

#[test]
fn more_inside_a_value_owned_as_a_whole_is_not_judged() {
    let owned = json!({"f:spec": {"f:selector": {}}});
    let live = deployment(json!({"selector": {"a": "1", "b": "2"}}), owned);
    assert_eq!(
        compare(&wish(json!({"selector": {"a": "1"}})), &live, "us"),
        Verdict::Unsure
    );
    assert_eq!(
        compare(&wish(json!({"selector": {"a": "1", "b": "2"}})), &live, "us"),
        Verdict::Same
    );
}

#[test]
fn an_object_that_we_never_applied_differs() {
    let live = deployment(json!({"replicas": 2}), json!({}));
    let verdict = compare(&wish(json!({"replicas": 2})), &live, "somebody");
    assert_eq!(verdict, Verdict::Differs(vec![String::new()]));
}
