//! Lists and watches.

use crate::api::Api;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use stead_apiserver::server::Body;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// An open watch, read event by event.
struct Watching {
    body: Body,
    events: VecDeque<Value>,
}

impl Watching {
    async fn open(api: &Api, path: &str) -> Watching {
        let request = Request::get(path).body(Full::new(Bytes::new())).unwrap();
        let response = api.send(request).await;
        assert_eq!(response.status(), 200);
        Watching {
            body: response.into_body(),
            events: VecDeque::new(),
        }
    }

    /// The next event; `None` at the end of the stream.
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            let frame = tokio::time::timeout(Duration::from_secs(10), self.body.frame())
                .await
                .expect("an event within ten seconds")?;
            let data = frame.unwrap().into_data().unwrap();
            let text = String::from_utf8(data.to_vec()).unwrap();
            self.events
                .extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
    }

    /// `ADDED x`.
    async fn told(&mut self) -> String {
        let event = self.next().await.expect("the watch goes on");
        let name = event["object"]["metadata"]["name"].as_str().unwrap_or_default();
        format!("{} {name}", event["type"].as_str().unwrap())
    }
}

fn labelled(name: &str, tier: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"tier": tier}}})
}

#[tokio::test]
async fn a_watcher_sees_what_matches_its_selector_come_change_and_go() {
    let api = Api::start().await;
    api.post(MAPS, labelled("a", "web")).await.ok();
    let mut watch = Watching::open(&api, &format!("{MAPS}?watch=1&labelSelector=tier%3Dweb")).await;
    assert_eq!(watch.told().await, "ADDED a");
    api.post(MAPS, labelled("b", "db")).await.ok();
    api.merge(&format!("{MAPS}/b"), json!({"metadata": {"labels": {"tier": "web"}}}))
        .await
        .ok();
    assert_eq!(watch.told().await, "ADDED b");
    api.merge(&format!("{MAPS}/a"), json!({"data": {"k": "v"}})).await.ok();
    assert_eq!(watch.told().await, "MODIFIED a");
    let left = api
        .merge(&format!("{MAPS}/a"), json!({"metadata": {"labels": {"tier": "db"}}}))
        .await
        .ok();
    let event = watch.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(
        event["object"]["metadata"]["labels"]["tier"], "web",
        "the last state that matched"
    );
    assert_eq!(
        event["object"]["metadata"]["resourceVersion"],
        left["metadata"]["resourceVersion"]
    );
    api.delete(&format!("{MAPS}/b")).await.ok();
    assert_eq!(watch.told().await, "DELETED b");
}

#[tokio::test]
async fn a_streaming_list_ends_its_first_part_with_an_annotated_bookmark() {
    let api = Api::start().await;
    api.post(MAPS, labelled("a", "web")).await.ok();
    let query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = Watching::open(&api, &format!("{MAPS}?{query}")).await;
    assert_eq!(watch.told().await, "ADDED a");
    let end = watch.next().await.unwrap();
    assert_eq!(end["type"], "BOOKMARK");
    assert_eq!(
        end["object"]["metadata"]["annotations"],
        json!({"k8s.io/initial-events-end": "true"})
    );
    api.post(MAPS, labelled("b", "web")).await.ok();
    assert_eq!(watch.told().await, "ADDED b");
}

#[tokio::test]
async fn a_long_list_comes_in_pages_of_one_state() {
    let api = Api::start().await;
    for name in ["a", "b", "c", "d", "e"] {
        api.post(MAPS, labelled(name, "web")).await.ok();
    }
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().unwrap();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_string())
            .collect()
    };
    let first = api.get(&format!("{MAPS}?limit=2")).await.ok();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    assert_eq!(first["kind"], "ConfigMapList");
    assert!(
        first["items"][0].get("kind").is_none(),
        "items of built-in kinds carry no kind"
    );
    api.delete(&format!("{MAPS}/d")).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap();
    let second = api.get(&format!("{MAPS}?limit=2&continue={token}")).await.ok();
    assert_eq!(names(&second), ["c", "d"], "the pages are of one state");
    assert_eq!(
        second["metadata"]["resourceVersion"],
        first["metadata"]["resourceVersion"]
    );
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = api.get(&format!("{MAPS}?limit=2&continue={token}")).await.ok();
    assert_eq!(names(&third), ["e"]);
    assert!(third["metadata"].get("continue").is_none());
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_is_waited_for_and_then_refused() {
    let api = Api::start().await;
    let refused = api.get(&format!("{MAPS}?resourceVersion=999999")).await;
    let (code, reason, message) = refused.failure();
    assert_eq!((code, reason.as_str()), (504, "Timeout"));
    assert!(
        message.starts_with("Timeout: Too large resource version: 999999, current: "),
        "{message}"
    );
    assert_eq!(
        refused.json()["details"]["causes"][0]["reason"],
        "ResourceVersionTooLarge"
    );
    assert_eq!(refused.json()["details"]["retryAfterSeconds"], 1);
}

#[tokio::test]
async fn a_list_of_many_is_streamed_byte_for_byte() {
    let api = Api::start().await;
    let filling = "x".repeat(2000);
    for index in 0..200 {
        let mut object = labelled(&format!("m{index:03}"), "web");
        object["data"] = json!({"filling": filling});
        api.post(MAPS, object).await.ok();
    }
    let list = api.get(MAPS).await;
    let length: usize = list.headers["content-length"].to_str().unwrap().parse().unwrap();
    assert_eq!(length, list.body.len());
    assert_eq!(list.ok()["items"].as_array().unwrap().len(), 200);
    let request = Request::get(MAPS)
        .header("accept-encoding", "gzip")
        .body(Full::new(Bytes::new()))
        .unwrap();
    let compressed = api.answer(request).await;
    assert_eq!(compressed.headers["content-encoding"], "gzip");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&compressed.body[..]), &mut text).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 200);
}
