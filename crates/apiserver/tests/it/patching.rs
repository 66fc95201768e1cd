//! Patches of every kind, and who owns what afterwards.

use crate::api::Api;
use serde_json::{Value, json};

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

fn deployment(replicas: i64) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {
            "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web:1"}]},
            },
        },
    })
}

async fn apply(api: &Api, query: &str, object: &Value) -> crate::api::Answer {
    let path = format!("{DEPLOYMENTS}/web?{query}");
    api.call("PATCH", &path, "application/apply-patch+yaml", object.to_string())
        .await
}

#[tokio::test]
async fn three_kinds_of_patches_change_one_object() {
    let api = Api::start().await;
    api.post(DEPLOYMENTS, deployment(1)).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let operations = json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]);
    let patched = api
        .call("PATCH", &path, "application/json-patch+json", operations.to_string())
        .await
        .ok();
    assert_eq!(patched["spec"]["replicas"], 2);
    assert_eq!(patched["metadata"]["generation"], 2);
    let merged = api.merge(&path, json!({"metadata": {"labels": {"a": "b"}}})).await.ok();
    assert_eq!(merged["metadata"]["generation"], 2, "labels are no part of the spec");
    let strategic = json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}]}}}});
    let both = api
        .call(
            "PATCH",
            &path,
            "application/strategic-merge-patch+json",
            strategic.to_string(),
        )
        .await
        .ok();
    assert_eq!(
        both["spec"]["template"]["spec"]["containers"].as_array().unwrap().len(),
        2
    );
    let annotated = api
        .merge(&path, json!({"metadata": {"annotations": {"a": "b"}}}))
        .await
        .ok();
    assert_eq!(
        annotated["metadata"]["generation"], 4,
        "annotations of a Deployment count"
    );
}

#[tokio::test]
async fn apply_creates_conflicts_takes_over_and_removes() {
    let api = Api::start().await;
    let first = apply(&api, "fieldManager=one", &deployment(1)).await;
    assert_eq!(first.code, 201);
    let first = first.ok();
    assert_eq!(first["metadata"]["managedFields"][0]["manager"], "one");
    assert_eq!(first["metadata"]["managedFields"][0]["operation"], "Apply");
    assert_eq!(
        apply(&api, "fieldManager=one", &deployment(1)).await.ok(),
        first,
        "nothing changed"
    );

    let conflict = apply(&api, "fieldManager=two", &deployment(3)).await;
    let (code, reason, message) = conflict.failure();
    assert_eq!((code, reason.as_str()), (409, "Conflict"));
    assert_eq!(
        message,
        "Apply failed with 1 conflict: conflict with \"one\": .spec.replicas"
    );
    assert_eq!(
        conflict.json()["details"]["causes"][0]["reason"],
        "FieldManagerConflict"
    );
    let forced = apply(&api, "fieldManager=two&force=true", &deployment(3)).await.ok();
    assert_eq!(forced["spec"]["replicas"], 3);

    let mut less = deployment(3);
    less["spec"].as_object_mut().unwrap().remove("replicas");
    apply(&api, "fieldManager=two", &less).await.ok();
    let missing = apply(&api, "", &deployment(1)).await;
    missing.fails(
        422,
        "Invalid",
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch",
    );
}

#[tokio::test]
async fn a_status_has_a_path_and_an_owner_of_its_own() {
    let api = Api::start().await;
    let created = api.post(DEPLOYMENTS, deployment(1)).await.ok();
    let path = format!("{DEPLOYMENTS}/web");
    let ignored = api.merge(&path, json!({"status": {"replicas": 7}})).await.ok();
    assert_eq!(
        ignored["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    let status = json!({"status": {"replicas": 7}, "spec": {"replicas": 9}});
    let changed = api
        .merge(&format!("{path}/status?fieldManager=controller"), status)
        .await
        .ok();
    assert_eq!(
        (&changed["status"]["replicas"], &changed["spec"]["replicas"]),
        (&json!(7), &json!(1))
    );
    assert_eq!(changed["metadata"]["generation"], 1);
    let owner = changed["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .iter()
        .find(|entry| entry["manager"] == "controller")
        .unwrap();
    assert_eq!(owner["subresource"], "status");
    assert_eq!(owner["fieldsV1"], json!({"f:status": {"f:replicas": {}}}));
}

#[tokio::test]
async fn what_is_sent_is_owned_though_it_stays_as_it_is() {
    let api = Api::start().await;
    let maps = "/api/v1/namespaces/default/configmaps";
    let path = format!("{maps}/held");
    api.post(
        maps,
        json!({"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}),
    )
    .await
    .ok();
    api.delete(&path).await.ok();
    let before = api.get(&path).await.ok()["metadata"]["deletionTimestamp"].clone();
    let sent = json!({"metadata": {"deletionTimestamp": "2020-01-01T00:00:00Z"}});
    let patched = api.merge(&format!("{path}?fieldManager=late"), sent).await.ok();
    assert_eq!(patched["metadata"]["deletionTimestamp"], before);
    let owners = patched["metadata"]["managedFields"].as_array().unwrap();
    let late = owners.iter().find(|owner| owner["manager"] == "late").unwrap();
    assert_eq!(late["fieldsV1"], json!({"f:metadata": {"f:deletionTimestamp": {}}}));
}

#[tokio::test]
async fn unknown_fields_are_warned_of_refused_or_ignored() {
    let api = Api::start().await;
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"dat":{},"data":{"a":"1","a":"2"}}"#;
    let path = "/api/v1/namespaces/default/configmaps";
    let strict = api
        .call(
            "POST",
            &format!("{path}?fieldValidation=Strict"),
            "application/json",
            body,
        )
        .await;
    strict.fails(
        400,
        "BadRequest",
        "ConfigMap in version \"v1\" cannot be handled as a ConfigMap: strict decoding error: unknown field \"dat\", duplicate field \"data.a\"",
    );
    let warned = api.call("POST", path, "application/json", body).await;
    assert_eq!(warned.code, 201);
    let warnings: Vec<_> = warned
        .headers
        .get_all("warning")
        .iter()
        .map(|w| w.to_str().unwrap())
        .collect();
    assert_eq!(
        warnings,
        [
            "299 - \"unknown field \\\"dat\\\"\"",
            "299 - \"duplicate field \\\"data.a\\\"\""
        ]
    );
    assert_eq!(warned.json()["data"]["a"], "2");
}
