//! Stories about webhooks without a cluster.

use super::*;
use crate::metrics::Metrics;
use base64::Engine;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::json;

async fn ask(webhooks: Webhooks, path: &str, request: Value) -> Value {
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request});
    let response = webhooks
        .handlers
        .answer(path, review.to_string().as_bytes(), &Metrics::default());
    let body = axum::body::to_bytes(response.into_body(), 1 << 20).await.unwrap();
    serde_json::from_slice::<Value>(&body).unwrap()["response"].clone()
}

fn request(object: Value) -> Value {
    json!({"uid": "7", "operation": "CREATE", "name": "a", "object": object, "userInfo": {}})
}

#[tokio::test]
async fn a_denial_says_why_and_keeps_the_uid() {
    let webhooks = Webhooks::new().validate("/v", |asked: &Asked<ConfigMap>| {
        match asked.object.as_ref().and_then(|object| object.data.as_ref()) {
            Some(_) => Ok(vec!["be careful".to_owned()]),
            None => Err(Denial::new("data is missing")),
        }
    });
    let answer = ask(webhooks, "/v", request(json!({"metadata": {"name": "a"}}))).await;
    assert_eq!(answer["uid"], "7");
    assert_eq!(answer["allowed"], false);
    assert_eq!(answer["status"]["message"], "data is missing");
}

#[tokio::test]
async fn f46_a_mutation_keeps_fields_that_the_type_does_not_know() {
    let webhooks = Webhooks::new().mutate("/m", |object: &mut ConfigMap, _: &Asked<ConfigMap>| {
        object
            .metadata
            .labels
            .get_or_insert_default()
            .insert("a/b".to_owned(), "c".to_owned());
        Ok(())
    });
    let object = json!({"metadata": {"name": "a", "fromTheFuture": 1}, "alsoNew": {"x": 1}});
    let answer = ask(webhooks, "/m", request(object)).await;
    let patch = answer["patch"].as_str().unwrap();
    let patch = base64::engine::general_purpose::STANDARD.decode(patch).unwrap();
    let patch: Value = serde_json::from_slice(&patch).unwrap();
    assert_eq!(
        patch,
        json!([{"op": "add", "path": "/metadata/labels", "value": {"a/b": "c"}}])
    );
}

#[tokio::test]
async fn what_cannot_be_read_is_left_to_the_schema_and_refused_after_it() {
    let unreadable = || request(json!({"metadata": {"name": "a"}, "data": 7}));
    let change = |_: &mut ConfigMap, _: &Asked<ConfigMap>| panic!("not asked");
    let answer = ask(Webhooks::new().mutate("/m", change), "/m", unreadable()).await;
    assert_eq!(answer, json!({"allowed": true, "uid": "7"}));
    let check = |_: &Asked<ConfigMap>| panic!("not asked");
    let answer = ask(Webhooks::new().validate("/v", check), "/v", unreadable()).await;
    assert_eq!(answer["allowed"], false);
    let message = answer["status"]["message"].as_str().unwrap();
    assert!(message.starts_with("the object cannot be read"), "{message}");
}

#[tokio::test]
async fn an_object_that_replaces_an_unreadable_one_is_changed_as_any_other() {
    let webhooks = Webhooks::new().mutate("/m", |object: &mut ConfigMap, asked: &Asked<ConfigMap>| {
        assert!(asked.old_object.is_none(), "nobody can say what it was");
        object.immutable = Some(true);
        Ok(())
    });
    let mut request = request(json!({"metadata": {"name": "a"}}));
    request["operation"] = json!("UPDATE");
    request["oldObject"] = json!({"metadata": {"name": "a"}, "data": 7});
    let answer = ask(webhooks, "/m", request).await;
    assert_eq!(answer["allowed"], true);
    assert_eq!(answer["patchType"], "JSONPatch");
}

#[tokio::test]
async fn a_handler_that_panics_denies_its_own_request_only() {
    let webhooks = Webhooks::new().validate("/v", |_: &Asked<ConfigMap>| panic!("oh"));
    let answer = ask(webhooks, "/v", request(json!({"metadata": {"name": "a"}}))).await;
    assert_eq!(answer["allowed"], false);
}

#[tokio::test]
async fn conversion_keeps_the_order_and_reports_failure_for_all() {
    let convert = |mut object: Value, version: &str| {
        object["convertedTo"] = json!(version);
        Ok(object)
    };
    let request = json!({"uid": "1", "desiredAPIVersion": "x/v2", "objects": [
        {"apiVersion": "x/v1", "n": 1}, {"apiVersion": "x/v2", "n": 2}]});
    let answer = ask(Webhooks::new().convert("/c", convert), "/c", request.clone()).await;
    assert_eq!(answer["result"]["status"], "Success");
    assert_eq!(answer["convertedObjects"][0]["convertedTo"], "x/v2");
    assert_eq!(answer["convertedObjects"][1]["convertedTo"], Value::Null);
    let failing = Webhooks::new().convert("/c", |_, _| Err("no".to_owned()));
    assert_eq!(ask(failing, "/c", request).await["result"]["message"], "no");
}

#[test]
fn f41_rotation_overlaps_so_that_every_certificate_is_known_before_it_is_shown() {
    let names = vec!["hooks.ops.svc".to_owned()];
    let mut now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    let mut material = Material::default().renewed(&names, now).unwrap();
    let mut bundles = vec![material.bundle()];
    for _ in 0..(4 * 365) {
        now += SignedDuration::from_hours(12);
        let next = material.renewed(&names, now).unwrap();
        let serving = next.serving.as_ref().unwrap();
        assert!(serving.until > now, "an expired certificate at {now}");
        // The API server may still have the bundle of the look before.
        let known = bundles.last().unwrap();
        assert!(known.contains(serving.signer.trim_end()), "an unknown signer at {now}");
        bundles.push(next.bundle());
        material = next;
    }
    let authorities = bundles.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert!(authorities >= 2, "the authority was never rotated");
}

#[test]
fn the_bundle_is_set_where_it_differs_and_nowhere_else() {
    let target = Target::Validating("ours".to_owned());
    let object = json!({"metadata": {"resourceVersion": "9"}, "webhooks": [{"name": "a", "clientConfig": {}}]});
    let patch = target.patch(&object, "PEM").unwrap();
    assert_eq!(patch["webhooks"][0]["clientConfig"]["caBundle"], "UEVN");
    assert_eq!(patch["metadata"]["resourceVersion"], "9");
    assert_eq!(target.patch(&patch, "PEM"), None);
    let definition = json!({"spec": {"conversion": {"strategy": "None"}}});
    assert_eq!(Target::Conversion("x".to_owned()).patch(&definition, "PEM"), None);
}
