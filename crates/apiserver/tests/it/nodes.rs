//! What a node answers itself: logs and sessions go on to its kubelet.

use crate::api::Api;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper_util::rt::TokioIo;
use serde_json::json;
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
