//! The life of an object: created, changed, refused, deleted.

use crate::api::Api;
use serde_json::{Value, json};
use std::future::Future;
use std::task::Poll;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

#[tokio::test]
async fn an_object_is_created_read_changed_and_deleted() {
    let api = Api::start().await;
    let created = api.post(MAPS, config_map("x")).await;
    assert_eq!(created.code, 201);
    let created = created.ok();
    assert_eq!(created["metadata"]["namespace"], "default");
    assert_eq!(created["metadata"]["creationTimestamp"], "2027-01-15T08:00:00Z");
    assert_eq!(api.get(&format!("{MAPS}/x")).await.ok(), created);

    let mut changed = created.clone();
    changed["data"]["a"] = "2".into();
    let updated = api.put(&format!("{MAPS}/x"), changed.clone()).await.ok();
    assert_ne!(
        updated["metadata"]["resourceVersion"],
        created["metadata"]["resourceVersion"]
    );
    assert_eq!(updated["metadata"]["uid"], created["metadata"]["uid"]);

    api.put(&format!("{MAPS}/x"), changed).await.fails(
        409,
        "Conflict",
        "Operation cannot be fulfilled on configmaps \"x\": the object has been modified; please apply your changes to the latest version and try again",
    );

    let gone = api.delete(&format!("{MAPS}/x")).await.ok();
    assert_eq!((&gone["kind"], &gone["status"]), (&json!("Status"), &json!("Success")));
    api.get(&format!("{MAPS}/x"))
        .await
        .fails(404, "NotFound", "configmaps \"x\" not found");
}

#[tokio::test]
async fn a_write_that_changes_nothing_makes_no_new_version() {
    let api = Api::start().await;
    let created = api.post(MAPS, config_map("x")).await.ok();
    assert_eq!(api.put(&format!("{MAPS}/x"), created.clone()).await.ok(), created);
    assert_eq!(
        api.merge(&format!("{MAPS}/x"), json!({"data": {"a": "1"}})).await.ok(),
        created
    );
}

#[tokio::test]
async fn finalizers_hold_a_deleted_object() {
    let api = Api::start().await;
    let mut object = config_map("x");
    object["metadata"]["finalizers"] = json!(["stead.dev/hold"]);
    api.post(MAPS, object).await.ok();
    let path = format!("{MAPS}/x");
    let held = api.delete(&path).await.ok();
    assert_eq!(held["metadata"]["deletionTimestamp"], "2027-01-15T08:00:00Z");
    assert_eq!(held["metadata"]["deletionGracePeriodSeconds"], 0);
    assert_eq!(api.delete(&path).await.ok(), held, "deleting again changes nothing");
    let (code, _, message) = api
        .merge(
            &path,
            json!({"metadata": {"finalizers": ["stead.dev/hold", "stead.dev/more"]}}),
        )
        .await
        .failure();
    assert_eq!(code, 422);
    assert!(
        message.contains("no new finalizers can be added if the object is being deleted"),
        "{message}"
    );
    api.merge(&path, json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test]
async fn names_are_generated_and_checked() {
    let api = Api::start().await;
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "x-"}});
    let first = api.post(MAPS, object.clone()).await.ok();
    let second = api.post(MAPS, object).await.ok();
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap().to_string();
    assert!(
        name(&first).starts_with("x-") && name(&first).len() == 7,
        "{}",
        name(&first)
    );
    assert_ne!(name(&first), name(&second));
    let (code, reason, message) = api.post(MAPS, config_map("Not_A_Name")).await.failure();
    assert_eq!((code, reason.as_str()), (422, "Invalid"));
    assert!(
        message.starts_with("ConfigMap \"Not_A_Name\" is invalid: metadata.name: Invalid value: \"Not_A_Name\": a lowercase RFC 1123 subdomain"),
        "{message}"
    );
}

#[tokio::test]
async fn nothing_is_created_in_a_namespace_that_is_missing_or_going() {
    let api = Api::start().await;
    api.post("/api/v1/namespaces/nowhere/configmaps", config_map("x"))
        .await
        .fails(404, "NotFound", "namespaces \"nowhere\" not found");
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    let created = api.post("/api/v1/namespaces", namespace).await.ok();
    assert_eq!(created["spec"]["finalizers"], json!(["kubernetes"]));
    assert_eq!(
        created["metadata"]["labels"],
        json!({"kubernetes.io/metadata.name": "n"})
    );
    let going = api.delete("/api/v1/namespaces/n").await.ok();
    assert_eq!(going["status"]["phase"], "Terminating");
    let refused = api.post("/api/v1/namespaces/n/configmaps", config_map("x")).await;
    refused.fails(
        403,
        "Forbidden",
        "configmaps \"x\" is forbidden: unable to create new content in namespace n because it is being terminated",
    );
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "NamespaceTerminating");
}

/// A deletion without grace marks the pod and then removes it. On a store that answers later than it is asked, the client
/// is gone between the two.
#[tokio::test]
async fn a_pod_is_deleted_to_the_end_when_its_client_hangs_up() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::on_disk(directory.path()).await;
    let path = "/api/v1/namespaces/default/pods/p";
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
        "spec": {"containers": [{"name": "c", "image": "i"}]}});
    api.post("/api/v1/namespaces/default/pods", pod).await.ok();
    {
        let mut asked = std::pin::pin!(api.delete(path));
        let first = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
        assert!(first.await.is_pending(), "it waits for the store");
        seen(&api, path, |pod| !pod["metadata"]["deletionTimestamp"].is_null()).await;
    }
    seen(&api, path, |_| false).await;
}

/// Waits until an object is as a story wants it, or gone.
async fn seen(api: &Api, path: &str, wanted: impl Fn(&Value) -> bool) {
    let found = async {
        loop {
            let answer = api.get(path).await;
            if answer.code == 404 || wanted(&answer.json()) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(20);
    tokio::time::timeout(patience, found)
        .await
        .expect("the pod stays as it was");
}
