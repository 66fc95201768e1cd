//! The words that the stories are told in.

use serde_json::{Value, json};
use std::time::Duration;
use stead_test::hollow_cluster::{HollowCluster, Refused};
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

/// A condition, or nothing.
pub fn told<'a>(object: &'a Value, type_: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let mut found = conditions.into_iter().flatten();
    found.find(|one| one["type"] == type_).unwrap_or(&Value::Null)
}

/// Creates an object of this name with this spec.
pub async fn make(cluster: &HollowCluster, plural: &str, name: &str, spec: Value) -> Value {
    let object = json!({"metadata": {"name": name}, "spec": spec});
    cluster.create(plural, object).await.expect("it is well-formed")
}

/// Changes an object.
pub async fn change(cluster: &HollowCluster, what: &str, patch: Value) -> Value {
    cluster.patch(what, patch).await.expect("it may be changed")
}

/// Deletes an object, and what it owns after it.
pub async fn remove(cluster: &HollowCluster, what: &str) {
    cluster.delete(what, "Background").await.expect("it is there");
}

/// Sets the number of pods of a workload.
pub async fn scale(cluster: &HollowCluster, what: &str, replicas: i64) {
    change(cluster, what, json!({"spec": {"replicas": replicas}})).await;
}

/// A pod of an app that follows a script, with further fields in its spec.
pub async fn pod(cluster: &HollowCluster, name: &str, app: &str, script: Value, spec: Value) -> Value {
    let mut pod = template(app, script);
    pod["metadata"]["name"] = json!(name);
    pod["spec"] = merged(pod["spec"].take(), spec);
    cluster.create("pods", pod).await.expect("a pod")
}

/// A pod that has done its work.
pub async fn ended_pod(cluster: &HollowCluster, name: &str, app: &str) {
    let never = json!({"restartPolicy": "Never"});
    pod(cluster, name, app, json!({"exit-after": "1s"}), never).await;
    until(cluster, &format!("pods/{name}"), SOON, |pod| {
        pod["status"]["phase"] == "Succeeded"
    })
    .await;
}

/// The nodes of an app's pods.
pub async fn nodes_of(cluster: &HollowCluster, app: &str) -> Vec<String> {
    let pods = pods(cluster, app).await;
    let nodes = pods.iter().map(|pod| pod["spec"]["nodeName"].as_str());
    let mut nodes: Vec<String> = nodes.map(|node| node.unwrap_or_default().to_owned()).collect();
    nodes.sort();
    nodes
}

/// Waits until a pod runs, and gives it.
pub async fn runs(cluster: &HollowCluster, name: &str) -> Value {
    until(cluster, &format!("pods/{name}"), minutes(1), |pod| {
        pod["status"]["phase"] == "Running"
    })
    .await
}

/// Waits until a list has so many items, and gives them.
pub async fn count(cluster: &HollowCluster, what: &str, wanted: usize) -> Vec<Value> {
    let list = until(cluster, what, minutes(2), |list| items(list).len() == wanted).await;
    items(&list).to_vec()
}

/// The items of a list.
pub fn items(list: &Value) -> &[Value] {
    list["items"].as_array().map_or(&[], Vec::as_slice)
}

/// Looks at an object for some time, in all of which it has to stay as it is.
pub async fn stays(cluster: &HollowCluster, what: &str, time: Duration, mut is: impl FnMut(&Value) -> bool) {
    for _ in 0..20 {
        let value = cluster.get(what).await.expect("it is there");
        assert!(is(&value), "{what} has changed: {value}");
        cluster.pass(time / 20).await;
    }
}

/// What a change of the image of a template looks like.
pub fn image(image: &str) -> Value {
    json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}})
}

/// The same, with another script for the pods.
pub fn image_with(name: &str, script: Value) -> Value {
    let mut change = image(name);
    for (key, value) in script.as_object().into_iter().flatten() {
        change["spec"]["template"]["metadata"]["annotations"][format!("hollow.stead.dev/{key}")] = value.clone();
    }
    change
}

/// The images of an app's pods, by the pods' names.
pub async fn images(cluster: &HollowCluster, app: &str) -> Vec<String> {
    let mut pods = pods(cluster, app).await;
    pods.sort_by_key(name);
    let image = |pod: &Value| pod["spec"]["containers"][0]["image"].as_str().map(str::to_string);
    pods.iter().filter_map(image).collect()
}

/// A Deployment called `web`.
pub async fn deployment(cluster: &HollowCluster, replicas: i32, script: Value, extra: Value) {
    let spec = json!({"replicas": replicas, "selector": selector("web"), "template": template("web", script)});
    make(cluster, "deployments", "web", merged(spec, extra)).await;
}

/// Whether all pods of a Deployment are new and available.
pub fn rolled_out(replicas: i64) -> impl FnMut(&Value) -> bool {
    move |deployment| {
        let status = &deployment["status"];
        let all = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas"];
        all.iter().all(|field| status[*field] == replicas)
            && status["observedGeneration"] == deployment["metadata"]["generation"]
    }
}

/// A ReplicaSet called `web`.
pub async fn replica_set(cluster: &HollowCluster, replicas: i32, script: Value) {
    let spec = json!({"replicas": replicas, "selector": selector("web"), "template": template("web", script)});
    make(cluster, "replicasets", "web", spec).await;
}

/// Whether a set has so many pods, all of them ready.
pub fn all_ready(count: i64) -> impl FnMut(&Value) -> bool {
    move |set| {
        set["status"]["readyReplicas"] == count
            && set["status"]["replicas"] == count
            && set["status"]["observedGeneration"] == set["metadata"]["generation"]
    }
}

/// Asks for the eviction of a pod.
pub async fn evict(cluster: &HollowCluster, name: &str) -> Result<Value, Refused> {
    let path = format!("/api/v1/namespaces/default/pods/{name}/eviction");
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    cluster.request("POST", &path, eviction).await
}

/// Waits for an event with this reason, and gives its words.
pub async fn event(cluster: &HollowCluster, reason: &str) -> String {
    let list = until(cluster, "events", minutes(2), |list| {
        items(list).iter().any(|event| event["reason"] == reason)
    })
    .await;
    let found = items(&list).iter().find(|event| event["reason"] == reason);
    let note = found.map(|event| &event["note"]);
    note.and_then(Value::as_str).unwrap_or_default().to_string()
}

/// What was told of objects of a kind under a reason, once there is anything.
pub async fn notes(cluster: &HollowCluster, kind: &str, reason: &str) -> Vec<String> {
    let is_it = |event: &&Value| event["regarding"]["kind"] == kind && event["reason"] == reason;
    let list = until(cluster, "events", minutes(5), |list| {
        items(list).iter().any(|event| is_it(&event))
    })
    .await;
    let note = |event: &Value| event["note"].as_str().unwrap_or_default().to_string();
    let mut notes: Vec<String> = items(&list).iter().filter(is_it).map(note).collect();
    notes.sort();
    notes
}

/// Stops a node, cuts it off, or brings it back.
pub async fn set_power(cluster: &HollowCluster, node: &str, power: Value) {
    let patch = json!({"metadata": {"annotations": {"stead.dev/power": power}}});
    change(cluster, &format!("nodes/{node}"), patch).await;
}

/// A template whose pods are ready when somebody has opened their gate.
pub fn gated_template(app: &str) -> Value {
    let mut gated = template(app, json!({}));
    gated["spec"]["readinessGates"] = json!([{"conditionType": "example.com/open"}]);
    gated
}

/// Opens or shuts the gate of a pod.
pub async fn open_gate(cluster: &HollowCluster, name: &str, status: &str) {
    let pod = cluster.get(&format!("pods/{name}")).await.expect("a pod");
    let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|one| one["type"] != "example.com/open");
    conditions.push(json!({"type": "example.com/open", "status": status}));
    let patch = json!({"status": {"conditions": conditions}});
    change(cluster, &format!("pods/{name}/status"), patch).await;
}
