//! Paths below an object: scale, eviction, binding, finalize, approval.

use crate::api::Api;
use serde_json::{Value, json};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    })
}

#[tokio::test]
async fn a_scheduler_binds_a_pod_once() {
    let api = Api::start().await;
    api.post(PODS, pod("p")).await.ok();
    let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}});
    let bound = api.post(&format!("{PODS}/p/binding"), binding.clone()).await;
    assert_eq!(bound.code, 201);
    let seen = api.get(&format!("{PODS}/p")).await.ok();
    assert_eq!(seen["spec"]["nodeName"], "n1");
    assert_eq!(seen["status"]["conditions"][0]["type"], "PodScheduled");
    api.post(&format!("{PODS}/p/binding"), binding).await.fails(
        409,
        "Conflict",
        "Operation cannot be fulfilled on pods/binding \"p\": pod p is already assigned to node \"n1\"",
    );
    let listed = api.get(&format!("{PODS}?fieldSelector=spec.nodeName%3Dn1")).await.ok();
    assert_eq!(listed["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_pod_on_a_node_gets_time_to_end() {
    let api = Api::start().await;
    let mut object = pod("p");
    object["spec"]["nodeName"] = "n1".into();
    api.post(PODS, object).await.ok();
    let path = format!("{PODS}/p");
    let ending = api.delete(&path).await.ok();
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(ending["metadata"]["deletionTimestamp"], "2027-01-15T08:00:30Z");
    assert_eq!(api.delete(&path).await.ok(), ending);
    let now = json!({"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}).to_string();
    api.call("DELETE", &path, "application/json", now).await.ok();
    assert_eq!(api.get(&path).await.code, 404);
}

#[tokio::test]
async fn an_eviction_respects_the_budget() {
    let api = Api::start().await;
    api.post(PODS, pod("p")).await.ok();
    api.merge(
        &format!("{PODS}/p/status"),
        json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}}),
    )
    .await
    .ok();
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}},
    });
    api.post(budgets, budget).await.ok();
    let status = |allowed: i64| json!({"status": {"observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
    api.merge(&format!("{budgets}/b/status"), status(0)).await.ok();
    let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}});
    let refused = api.post(&format!("{PODS}/p/eviction"), eviction.clone()).await;
    refused.fails(
        429,
        "TooManyRequests",
        "Cannot evict pod as it would violate the pod's disruption budget.",
    );
    assert_eq!(refused.json()["details"]["causes"][0]["reason"], "DisruptionBudget");
    assert_eq!(
        refused.json()["details"]["causes"][0]["message"],
        "The disruption budget b needs 1 healthy pods and has 1 currently"
    );
    api.merge(&format!("{budgets}/b/status"), status(1)).await.ok();
    assert_eq!(api.post(&format!("{PODS}/p/eviction"), eviction).await.code, 201);
    assert_eq!(api.get(&format!("{PODS}/p")).await.code, 404);
    let budget = api.get(&format!("{budgets}/b")).await.ok();
    assert_eq!(budget["status"]["disruptionsAllowed"], 0);
    assert_eq!(budget["status"]["disruptedPods"], json!({"p": "2027-01-15T08:00:00Z"}));
}

#[tokio::test]
async fn a_workload_is_scaled_through_its_scale() {
    let api = Api::start().await;
    let sets = "/apis/apps/v1/namespaces/default/replicasets";
    let set = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "r"},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}},
        },
    });
    api.post(sets, set).await.ok();
    let path = format!("{sets}/r/scale");
    let mut scale = api.get(&path).await.ok();
    assert_eq!(scale["spec"], json!({"replicas": 1}));
    assert_eq!(scale["status"], json!({"replicas": 0, "selector": "app=web"}));
    scale["spec"]["replicas"] = 4.into();
    let scaled = api.put(&path, scale.clone()).await.ok();
    assert_eq!(
        (&scaled["kind"], &scaled["spec"]["replicas"]),
        (&json!("Scale"), &json!(4))
    );
    let (code, reason, _) = api.put(&path, scale).await.failure();
    assert_eq!((code, reason.as_str()), (409, "Conflict"), "the version is old");
    assert_eq!(
        api.merge(&path, json!({"spec": {"replicas": 2}})).await.ok()["spec"]["replicas"],
        2
    );
    let object = api.get(&format!("{sets}/r")).await.ok();
    assert_eq!(
        (&object["spec"]["replicas"], &object["metadata"]["generation"]),
        (&json!(2), &json!(3))
    );
    api.merge(&path, json!({"spec": {"replicas": -1}})).await.fails(
        422,
        "Invalid",
        "Scale.autoscaling \"r\" is invalid: spec.replicas: Invalid value: -1: must be greater than or equal to 0",
    );
}

#[tokio::test]
async fn a_namespace_is_gone_once_it_is_finalized() {
    let api = Api::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    api.post("/api/v1/namespaces", namespace).await.ok();
    let mut going = api.delete("/api/v1/namespaces/n").await.ok();
    going["spec"]["finalizers"] = json!([]);
    api.put("/api/v1/namespaces/n/finalize", going).await.ok();
    assert_eq!(api.get("/api/v1/namespaces/n").await.code, 404);
    api.delete("/api/v1/namespaces/default").await.fails(
        403,
        "Forbidden",
        "namespaces \"default\" is forbidden: this namespace may not be deleted",
    );
}

#[tokio::test]
async fn containers_for_debugging_are_judged_and_never_go_or_change() {
    let api = Api::start().await;
    api.post(PODS, pod("p")).await.ok();
    let path = format!("{PODS}/p/ephemeralcontainers");
    let with = |containers: Value| json!({"spec": {"ephemeralContainers": containers}});
    let refused = api.merge(&path, with(json!([{"name": "No Name", "image": "i"}]))).await;
    assert_eq!(refused.code, 422, "{}", refused.json());
    let known = json!({"name": "d", "image": "i"});
    api.merge(&path, with(json!([known]))).await.ok();
    api.merge(&path, with(json!([known, {"name": "e", "image": "i"}])))
        .await
        .ok();
    api.merge(
        &path,
        with(json!([{"name": "d", "image": "j"}, {"name": "e", "image": "i"}])),
    )
    .await
    .fails(
        422,
        "Invalid",
        "Pod \"p\" is invalid: spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be \
             changed\n",
    );
    // They come through this path alone.
    let whole = api.merge(&format!("{PODS}/p"), with(json!([known]))).await;
    assert_eq!(whole.code, 422, "{}", whole.json());
    api.merge(&path, with(Value::Null)).await.fails(
        422,
        "Invalid",
        "Pod \"p\" is invalid: [spec.ephemeralContainers: Forbidden: existing ephemeral containers \"d\" may not be removed\n, \
         spec.ephemeralContainers: Forbidden: existing ephemeral containers \"e\" may not be removed\n]",
    );
}

#[tokio::test]
async fn a_pod_is_resized_within_its_class_and_only_in_what_can_change() {
    let api = Api::start().await;
    let mut made = pod("p");
    made["spec"]["containers"][0]["resources"] = json!({"requests": {"cpu": "100m", "memory": "32Mi"}});
    api.post(PODS, made).await.ok();
    let path = format!("{PODS}/p/resize");
    let patch =
        |resources: Value| json!({"spec": {"containers": [{"name": "web", "resources": resources}]}}).to_string();
    let resize = async |resources: Value| {
        let kind = "application/strategic-merge-patch+json";
        api.call("PATCH", &path, kind, patch(resources)).await
    };
    let resized = resize(json!({"requests": {"cpu": "200m"}})).await.ok();
    assert_eq!(
        resized["spec"]["containers"][0]["resources"]["requests"],
        json!({"cpu": "200m", "memory": "32Mi"})
    );
    resize(json!({"requests": {"cpu": null}})).await.fails(
        422,
        "Invalid",
        "Pod \"p\" is invalid: spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
    );
    let negative = resize(json!({"requests": {"cpu": "-1"}})).await;
    assert_eq!(negative.code, 422, "{}", negative.json());
    resize(json!({"requests": {"ephemeral-storage": "1Gi"}})).await.fails(
        422,
        "Invalid",
        "Pod \"p\" is invalid: spec: Forbidden: only cpu and memory resources are mutable",
    );
    resize(json!({"limits": {"cpu": "200m", "memory": "32Mi"}})).await.fails(
        422,
        "Invalid",
        "Pod \"p\" is invalid: spec: Invalid value: \"Burstable\": Pod QOS Class may not change as a result of resizing",
    );
    let more = json!([{"name": "web", "image": "web:1"}, {"name": "more", "image": "web:1"}]);
    let more = api.merge(&path, json!({"spec": {"containers": more}})).await;
    assert!(
        more.failure()
            .2
            .contains("spec.containers: Forbidden: containers may not be added or removed on resize"),
        "{}",
        more.json()
    );
    let running = json!({"status": {"containerStatuses": [{"name": "web", "image": "web:1", "imageID": "", "ready": true,
        "restartCount": 0, "state": {"running": {"startedAt": "2027-01-15T08:00:00Z"}}}]}});
    api.merge(&format!("{PODS}/p/status"), running).await.ok();
    resize(json!({"requests": {"cpu": "300m"}})).await.fails(
        422,
        "Invalid",
        "Pod \"p\" is invalid: spec: Forbidden: Pod running on node without support for resize",
    );
}
