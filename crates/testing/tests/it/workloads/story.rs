//! The words that the stories are told in.

use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::HollowCluster;
use stead_test::wait;

/// Longer than anything takes that shall happen at once.
pub const SOON: Duration = Duration::from_secs(20);

pub fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

pub async fn cluster() -> HollowCluster {
    cluster_of(3).await
}

pub async fn cluster_of(nodes: usize) -> HollowCluster {
    let cluster = HollowCluster::start(nodes).await.expect("a cluster");
    until(&cluster, "nodes", SOON, move |list| {
        let ready = list["items"].as_array().into_iter().flatten();
        ready.filter(|node| condition(node, "Ready", "True")).count() == nodes
    })
    .await;
    // Pods that come before their account differ from all others.
    until(&cluster, "serviceaccounts/default", SOON, |_| true).await;
    cluster
}

/// A pod template with the label `app`, whose hollow pods follow a script.
pub fn template(app: &str, script: Value) -> Value {
    let mut annotations = json!({});
    for (name, value) in script.as_object().into_iter().flatten() {
        annotations[format!("hollow.stead.dev/{name}")] = value.clone();
    }
    json!({
        "metadata": {"labels": {"app": app}, "annotations": annotations},
        "spec": {"containers": [{"name": "main", "image": "web:1"}]},
    })
}

/// An object with further fields, which replace those that are there.
pub fn merged(mut object: Value, extra: Value) -> Value {
    if let (Some(object), Value::Object(extra)) = (object.as_object_mut(), extra) {
        object.extend(extra);
    }
    object
}

/// A Job called `work` whose pods are made from this template.
pub async fn job(cluster: &HollowCluster, template: Value, extra: Value) {
    let spec = merged(json!({"template": template}), extra);
    let object = json!({"metadata": {"name": "work"}, "spec": spec});
    cluster.create("jobs", object).await.expect("a job");
}

pub fn selector(app: &str) -> Value {
    json!({"matchLabels": {"app": app}})
}

/// Waits until an object or list is as it should be, and gives it.
pub async fn until(cluster: &HollowCluster, what: &str, limit: Duration, mut is: impl FnMut(&Value) -> bool) -> Value {
    let mut look = async || {
        let value = cluster.get(what).await.map_err(|error| error.to_string())?;
        if is(&value) { Ok(value) } else { Err(value.to_string()) }
    };
    let deadline = tokio::time::Instant::now() + limit;
    loop {
        match look().await {
            Ok(value) => return value,
            Err(last) if tokio::time::Instant::now() >= deadline => panic!("{what}: not within {limit:?}: {last}"),
            Err(_) => cluster.pass(limit / 200).await,
        }
    }
}

/// Waits until an object is gone.
pub async fn gone(cluster: &HollowCluster, what: &str, limit: Duration) {
    wait::until(what, limit, async || match cluster.get(what).await {
        Err(error) if error.code == 404 => Ok(()),
        Err(error) => Err(error.to_string()),
        Ok(value) => Err(value.to_string()),
    })
    .await
    .expect("gone");
}

/// The pods of an app that are not going away.
pub async fn pods(cluster: &HollowCluster, app: &str) -> Vec<Value> {
    let mut pods = cluster
        .list(&format!("pods?labelSelector=app={app}"))
        .await
        .expect("pods");
    pods.retain(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    pods
}

pub fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_string()
}

pub fn names(objects: &[Value]) -> Vec<String> {
    let mut names: Vec<_> = objects.iter().map(name).collect();
    names.sort();
    names
}

/// Whether a condition is as it should be.
pub fn condition(object: &Value, type_: &str, status: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    conditions
        .into_iter()
        .flatten()
        .any(|one| one["type"] == type_ && one["status"] == status)
}

/// The reason of a condition.
pub fn reason<'a>(object: &'a Value, type_: &str) -> &'a str {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.into_iter().flatten().find(|one| one["type"] == type_);
    found.and_then(|one| one["reason"].as_str()).unwrap_or_default()
}
