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
