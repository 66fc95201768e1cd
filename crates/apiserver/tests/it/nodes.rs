//! What a node answers itself: logs and sessions go on to its kubelet.

use crate::api::{Answer, Api};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use std::convert::Infallible;
use tokio::net::TcpListener;

/// A kubelet that answers every request with what it was asked.
async fn kubelet() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let echo = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                let asked = format!("{} {}", request.method(), request.uri());
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from(asked))))
            });
            tokio::spawn(hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), echo));
        }
    });
    port
}

#[tokio::test]
async fn logs_come_from_the_kubelet_of_the_pods_node() {
    let api = Api::start().await;
    let port = kubelet().await;
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
        },
    });
    api.post("/api/v1/nodes", node).await.ok();
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: &str| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"nodeName": node, "containers": [{"name": "web", "image": "web:1"}]},
        })
    };
    api.post(pods, pod("p", "n1")).await.ok();
    let log = api
        .get(&format!("{pods}/p/log?follow=false&tailLines=5&pretty=x"))
        .await;
    assert_eq!(log.code, 200);
    assert_eq!(log.body, "GET /containerLogs/default/p/web?follow=false&tailLines=5");
    let exec = api
        .call(
            "POST",
            &format!("{pods}/p/exec?command=echo&command=a%20b&stdout=true&tty=false"),
            "",
            "",
        )
        .await;
    assert_eq!(
        exec.body,
        "POST /exec/default/p/web?output=1&command=echo&command=a%20b"
    );
    let stats = api.get("/api/v1/nodes/n1/proxy/stats/summary?only=cpu").await;
    assert_eq!(stats.body, "GET /stats/summary?only=cpu");
    api.get(&format!("{pods}/p/log?container=x"))
        .await
        .fails(400, "BadRequest", "container x is not valid for pod p");
    api.post(pods, pod("q", "gone")).await.ok();
    api.get(&format!("{pods}/q/log"))
        .await
        .fails(404, "NotFound", "nodes \"gone\" not found");
}

#[tokio::test]
async fn figures_come_from_kubelets_and_hollow_pods_are_scripted() {
    let api = Api::start().await;
    let node =
        |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"n": name}}});
    api.post("/api/v1/nodes", node("hollow")).await.ok();
    let pods = "/api/v1/namespaces/default/pods";
    for (name, cpu) in [("a", "250m"), ("b", "nonsense")] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "labels": {"app": name}, "annotations": {"hollow.stead.dev/cpu": cpu}},
            "spec": {"nodeName": "hollow", "containers": [{"name": "web", "image": "web:1"}]},
        });
        api.post(pods, pod).await.ok();
        let running = json!({"status": {"phase": "Running"}});
        api.merge(&format!("{pods}/{name}/status"), running).await.ok();
    }
    let figures = "/apis/metrics.k8s.io/v1beta1";
    let list = api
        .get(&format!("{figures}/namespaces/default/pods?labelSelector=app%3Da"))
        .await
        .json();
    assert_eq!(list["kind"], "PodMetricsList", "{list}");
    assert_eq!(
        list["items"][0]["containers"][0]["usage"]["cpu"], "250000000n",
        "{list}"
    );
    assert_eq!(list["items"].as_array().map(Vec::len), Some(1));
    let node = api.get(&format!("{figures}/nodes/hollow")).await.json();
    assert_eq!(
        node["usage"],
        json!({"cpu": "250000000n", "memory": "8192Ki"}),
        "{node}"
    );
    assert_eq!(
        api.get(&format!("{figures}/namespaces/default/pods/none")).await.code,
        404
    );
    let groups = api.get("/apis").await.json();
    assert!(groups.to_string().contains("metrics.k8s.io/v1beta1"));
}

/// A request in the name of a node.
async fn as_node(api: &Api, node: &str, method: &str, path: &str, body: Value) -> Answer {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", media)
        .header("impersonate-user", format!("system:node:{node}"))
        .header("impersonate-group", "system:nodes")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    api.answer(request).await
}

#[tokio::test]
async fn a_node_changes_itself_and_its_pods_and_nothing_of_others() {
    let api = Api::start().await;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = |name: &str, node: &str| {
        json!({
            "metadata": {"name": name, "labels": {"app": name}},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i:1", "envFrom": [
                {"secretRef": {"name": format!("{name}-secret")}}]}]},
        })
    };
    for (name, node) in [("one", "n1"), ("two", "n2")] {
        let object = json!({"metadata": {"name": node, "labels": {"kubernetes.io/hostname": node}}});
        as_node(&api, node, "POST", "/api/v1/nodes", object).await.ok();
        api.post(pods, pod(name, node)).await.ok();
        let secret = json!({"metadata": {"name": format!("{name}-secret")}, "stringData": {"a": "b"}});
        api.post("/api/v1/namespaces/default/secrets", secret).await.ok();
    }
    let n1 = |method: &'static str, path: String, body: Value| {
        let api = &api;
        async move { as_node(api, "n1", method, &path, body).await }
    };
    let status = json!({"status": {"phase": "Running"}});
    n1("PATCH", format!("{pods}/one/status"), status.clone()).await.ok();
    n1(
        "PATCH",
        "/api/v1/nodes/n1/status".into(),
        json!({"status": {"phase": "Running"}}),
    )
    .await
    .ok();
    n1("GET", "/api/v1/namespaces/default/secrets/one-secret".into(), json!({}))
        .await
        .ok();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    n1("POST", leases.into(), json!({"metadata": {"name": "n1"}}))
        .await
        .ok();

    let refused = [
        (
            "PATCH",
            format!("{pods}/two/status"),
            status,
            "node \"n1\" can only update pod status for pods",
        ),
        (
            "DELETE",
            format!("{pods}/two"),
            json!({}),
            "node \"n1\" can only delete pods with",
        ),
        (
            "POST",
            pods.to_string(),
            pod("three", "n1"),
            "can only create mirror pods",
        ),
        (
            "POST",
            pods.to_string(),
            {
                let mut mirror = pod("two", "n1");
                mirror["metadata"] = json!({"name": "mirror", "annotations": {"kubernetes.io/config.mirror": "x"}});
                mirror
            },
            "a mirror pod may not reference secrets",
        ),
        (
            "PATCH",
            format!("{pods}/one/status"),
            json!({"metadata": {"labels": {"app": "x"}}}),
            "cannot update labels",
        ),
        (
            "PATCH",
            format!("{pods}/one/status"),
            json!({"status": {"resourceClaimStatuses": [{"name": "d", "resourceClaimName": "theirs"}]}}),
            "cannot update resource claim statues",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/secrets/two-secret".into(),
            json!({}),
            "no relationship found",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/secrets".into(),
            json!({}),
            "No Object name found",
        ),
        (
            "PATCH",
            "/api/v1/nodes/n2/status".into(),
            json!({"status": {}}),
            "node 'n1' cannot patch node 'n2'",
        ),
        (
            "PATCH",
            "/api/v1/nodes/n1".into(),
            json!({"spec": {"taints": []}}),
            "is not allowed to modify taints",
        ),
        (
            "PATCH",
            "/api/v1/nodes/n1".into(),
            json!({"metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
            "is not allowed to modify labels: node-role.kubernetes.io/control-plane",
        ),
        (
            "POST",
            leases.into(),
            json!({"metadata": {"name": "n3"}}),
            "with the same name as the requesting node",
        ),
        (
            "POST",
            "/api/v1/namespaces/default/serviceaccounts/default/token".into(),
            json!({"spec": {}}),
            "node requested token not bound to a pod",
        ),
        (
            "POST",
            "/apis/apps/v1/namespaces/default/deployments".into(),
            json!({}),
            "cannot create resource",
        ),
    ];
    for (method, path, body, why) in refused {
        let answer = n1(method, path.clone(), body).await;
        let (code, reason, message) = answer.failure();
        assert_eq!(
            (code, reason.as_str()),
            (403, "Forbidden"),
            "{method} {path}: {message}"
        );
        assert!(message.contains(why), "{method} {path}: {message}");
    }
}

#[tokio::test]
async fn a_node_gets_tokens_for_the_audiences_of_drivers_and_of_its_roles() {
    let api = Api::start().await;
    let accounts = "/api/v1/namespaces/default/serviceaccounts";
    api.post(accounts, json!({"metadata": {"name": "default"}})).await.ok();
    let drivers = "/apis/storage.k8s.io/v1/csidrivers";
    let driver = json!({"metadata": {"name": "keys.example.com"}, "spec": {"tokenRequests": [{"audience": "keys"}]}});
    api.post(drivers, driver).await.ok();
    let pod = json!({"metadata": {"name": "p"}, "spec": {"nodeName": "n1", "serviceAccountName": "default",
        "containers": [{"name": "c", "image": "i:1"}],
        "volumes": [{"name": "v", "csi": {"driver": "keys.example.com"}}]}});
    let pod = api.post("/api/v1/namespaces/default/pods", pod).await.ok();
    let asked = async |audience: &str| {
        let bound = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"]});
        let request = json!({"spec": {"audiences": [audience], "boundObjectRef": bound}});
        as_node(&api, "n1", "POST", &format!("{accounts}/default/token"), request).await
    };
    asked("keys").await.ok();
    asked("bank").await.fails(
        403,
        "Forbidden",
        "serviceaccounts \"default\" is forbidden: audience \"bank\" not found in pod spec volume, system:node:n1 is not \
         authorized to request tokens for this audience",
    );
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    let role = json!({"metadata": {"name": "bank"}, "rules": [{"apiGroups": [""], "resources": ["bank"],
        "verbs": ["request-serviceaccounts-token-audience"], "resourceNames": ["default"]}]});
    let binding = json!({"metadata": {"name": "bank"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "bank"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:nodes"}]});
    api.post(&format!("{rbac}/clusterroles"), role).await.ok();
    api.post(&format!("{rbac}/clusterrolebindings"), binding).await.ok();
    asked("bank").await.ok();
}
