//! Custom resources in several versions, which a webhook converts.

use super::api::Api;
use super::webhooks::Hook;
use serde_json::{Value, json};
use std::sync::atomic::Ordering;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const V1: &str = "/apis/example.com/v1/namespaces/default/gauges";
const V2: &str = "/apis/example.com/v2/namespaces/default/gauges";

/// Two versions: `spec.celsius` in the stored one, `spec.kelvin` in the other.
fn definition(hook: &Hook) -> Value {
    let version = |name: &str, field: &str, storage: bool| {
        json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "integer"}}}},
        }}})
    };
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "gauges.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"plural": "gauges", "kind": "Gauge"},
            "versions": [version("v1", "celsius", true), version("v2", "kelvin", false)],
            "conversion": {"strategy": "Webhook", "webhook": {
                "conversionReviewVersions": ["v1"],
                "clientConfig": {"url": hook.url, "caBundle": hook.authorities},
            }},
        },
    })
}

fn review(request: &Value, converted: Vec<Value>) -> Value {
    json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": {
        "uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": converted,
    }})
}

async fn thermometer() -> Hook {
    Hook::serve_whole(|asked| {
        let request = &asked["request"];
        let wanted = request["desiredAPIVersion"].as_str().unwrap();
        let converted = request["objects"].as_array().unwrap().iter().map(|object| {
            let mut object = object.clone();
            let spec = &object["spec"];
            object["spec"] = match wanted {
                "example.com/v2" => json!({"kelvin": spec["celsius"].as_i64().unwrap() + 273}),
                _ => json!({"celsius": spec["kelvin"].as_i64().unwrap() - 273}),
            };
            object["apiVersion"] = wanted.into();
            // Metadata is not the webhook's to change.
            object["metadata"]["resourceVersion"] = "1".into();
            object
        });
        review(request, converted.collect())
    })
    .await
}

fn gauge(version: &str, spec: Value) -> Value {
    json!({"apiVersion": format!("example.com/{version}"), "kind": "Gauge", "metadata": {"name": "a"}, "spec": spec})
}

#[tokio::test]
async fn an_object_is_written_and_read_in_both_versions() {
    let api = Api::start().await;
    let hook = thermometer().await;
    api.post(DEFINITIONS, definition(&hook)).await.ok();
    let made = api.post(V2, gauge("v2", json!({"kelvin": 300}))).await.ok();
    assert_eq!(
        (&made["apiVersion"], &made["spec"]),
        (&json!("example.com/v2"), &json!({"kelvin": 300}))
    );
    let stored = api.get(&format!("{V1}/a")).await.ok();
    assert_eq!(stored["spec"], json!({"celsius": 27}));
    assert_eq!(
        stored["metadata"]["resourceVersion"],
        made["metadata"]["resourceVersion"]
    );
    let merged = api
        .merge(&format!("{V1}/a"), json!({"spec": {"celsius": 0}}))
        .await
        .ok();
    assert_eq!(merged["spec"], json!({"celsius": 0}));
    assert_eq!(api.get(&format!("{V2}/a")).await.ok()["spec"], json!({"kelvin": 273}));
}

#[tokio::test]
async fn a_list_is_converted_with_one_question() {
    let api = Api::start().await;
    let hook = thermometer().await;
    api.post(DEFINITIONS, definition(&hook)).await.ok();
    for name in ["a", "b", "c"] {
        let mut object = gauge("v1", json!({"celsius": 1}));
        object["metadata"]["name"] = name.into();
        api.post(V1, object).await.ok();
    }
    assert_eq!(hook.asked.load(Ordering::SeqCst), 0);
    let listed = api.get(V2).await.ok();
    let items = listed["items"].as_array().unwrap();
    assert!(
        items.iter().all(|item| item["spec"] == json!({"kelvin": 274})),
        "{listed}"
    );
    assert_eq!(hook.asked.load(Ordering::SeqCst), 1);
    let watched = api.get(&format!("{V2}?watch=1&timeoutSeconds=1")).await;
    let text = String::from_utf8(watched.body.to_vec()).unwrap();
    assert_eq!(text.matches("\"kelvin\":274").count(), 3, "{text}");
}

/// Readers of the stored version get the stored bytes, so these have to be what its schema makes of them.
#[tokio::test]
async fn what_is_written_through_another_version_is_stored_as_the_stored_one_has_it() {
    let api = Api::start().await;
    let hook = thermometer().await;
    let mut definition = definition(&hook);
    definition["spec"]["conversion"] = json!({"strategy": "None"});
    let versions = &mut definition["spec"]["versions"];
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["unit"] =
        json!({"type": "string", "default": "C"});
    // Being read through another version fills in nothing of that one.
    versions[1]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["mode"] =
        json!({"type": "string", "default": "m"});
    api.post(DEFINITIONS, definition.clone()).await.ok();
    let named = |version: &str, name: &str, spec: Value| {
        let mut object = gauge(version, spec);
        object["metadata"]["name"] = name.into();
        object
    };
    api.post(V1, named("v1", "a", json!({"celsius": 1}))).await.ok();
    api.post(V2, named("v2", "b", json!({"kelvin": 2}))).await.ok();
    let specs = |listed: Value| -> Vec<Value> {
        let items = listed["items"].as_array().unwrap().iter();
        items.map(|item| item["spec"].clone()).collect()
    };
    assert_eq!(
        specs(api.get(V1).await.ok()),
        [json!({"celsius": 1, "unit": "C"}), json!({"unit": "C"})]
    );
    assert_eq!(specs(api.get(V2).await.ok()), [json!({}), json!({})]);
    // Objects that were stored under another schema are brought to this one, beside others that need nothing.
    let path = format!("{DEFINITIONS}/gauges.example.com");
    let mut versions = definition["spec"]["versions"].clone();
    versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["place"] =
        json!({"type": "string", "default": "roof"});
    api.merge(&path, json!({"spec": {"versions": versions}})).await.ok();
    api.post(V1, named("v1", "c", json!({"place": "cellar"}))).await.ok();
    assert_eq!(
        specs(api.get(V1).await.ok()),
        [
            json!({"celsius": 1, "unit": "C", "place": "roof"}),
            json!({"unit": "C", "place": "roof"}),
            json!({"unit": "C", "place": "cellar"}),
        ]
    );
    // The stored version is not served any more, and both get a default that the objects were stored without: each is
    // filled in by the version that it is stored in.
    versions[0]["served"] = false.into();
    versions[0]["storage"] = false.into();
    versions[1]["storage"] = true.into();
    for (at, default) in [(0, "old"), (1, "new")] {
        versions[at]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["age"] =
            json!({"type": "string", "default": default});
    }
    api.merge(&path, json!({"spec": {"versions": versions}})).await.ok();
    assert_eq!(
        specs(api.get(V2).await.ok()),
        [json!({"age": "old"}), json!({"age": "old"}), json!({"age": "old"})]
    );
}

#[tokio::test]
async fn a_webhook_that_fails_is_told_in_kubernetes_words() {
    let api = Api::start().await;
    let hook = Hook::serve_whole(|asked| {
        let mut answer = review(&asked["request"], Vec::new());
        answer["response"]["result"] = json!({"status": "Failure", "message": "too cold"});
        answer
    })
    .await;
    api.post(DEFINITIONS, definition(&hook)).await.ok();
    let refused = api.post(V2, gauge("v2", json!({"kelvin": 1}))).await;
    assert_eq!(
        refused.failure(),
        (
            500,
            String::new(),
            "conversion webhook for example.com/v2, Kind=Gauge failed: too cold".to_string()
        )
    );
    let few = Hook::serve_whole(|asked| review(&asked["request"], Vec::new())).await;
    let api = Api::start().await;
    api.post(DEFINITIONS, definition(&few)).await.ok();
    let (_, _, message) = api.post(V2, gauge("v2", json!({"kelvin": 1}))).await.failure();
    assert_eq!(
        message,
        "conversion webhook for example.com/v2, Kind=Gauge returned 0 objects, expected 1"
    );
}

#[tokio::test]
async fn an_admission_webhook_for_one_version_sees_the_others_converted() {
    let api = Api::start().await;
    let hook = thermometer().await;
    api.post(DEFINITIONS, definition(&hook)).await.ok();
    let warmer = Hook::serve_whole(|review| {
        let request = &review["request"];
        assert_eq!(request["kind"]["version"], "v1");
        assert_eq!(request["requestKind"]["version"], "v2");
        let degrees = request["object"]["spec"]["celsius"].as_i64().unwrap() + 1;
        let patch = json!([{"op": "replace", "path": "/spec/celsius", "value": degrees}]).to_string();
        let patch = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, patch);
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": request["uid"], "allowed": true, "patchType": "JSONPatch", "patch": patch,
        }})
    })
    .await;
    let configuration = json!({"metadata": {"name": "warmer"}, "webhooks": [{
        "name": "warmer.example.com", "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": warmer.url, "caBundle": warmer.authorities},
        "rules": [{"apiGroups": ["example.com"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["gauges"]}],
    }]});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    api.post(path, configuration).await.ok();
    let made = api.post(V2, gauge("v2", json!({"kelvin": 300}))).await.ok();
    assert_eq!(made["spec"], json!({"kelvin": 301}));
}
