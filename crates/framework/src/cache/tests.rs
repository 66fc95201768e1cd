//! Stories about the cache, with a server that plays a script.

use super::decode::{self, Decoded};
use super::*;
use crate::key::Key;
use bytes::Bytes;
use futures::StreamExt;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::client::Body;
use kube::core::DynamicObject;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::convert::Infallible;

type Script = Arc<Mutex<VecDeque<(&'static str, u16, String)>>>;

/// A server that answers lists and watches from a script; a watch stays open after its lines. When the script has
/// nothing more of a sort, a watch is silent and a list is refused.
fn scripted(script: &Script) -> Client {
    let script = script.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let query = request.uri().query().unwrap_or_default().to_owned();
        let sort = match (
            query.contains("watch=true"),
            query.contains("limit=1&") || query.ends_with("limit=1"),
        ) {
            (true, _) => "watch",
            (false, true) => "confirm",
            (false, false) => "list",
        };
        let script = script.clone();
        async move {
            let next = {
                let mut script = script.lock();
                match script.iter().position(|(wanted, ..)| *wanted == sort) {
                    Some(position) => script.remove(position),
                    None => None,
                }
            };
            let (code, text) = match next {
                Some((_, code, text)) => (code, text),
                None if sort == "watch" => (200, String::new()),
                None => (
                    503,
                    json!({"kind": "Status", "code": 503, "message": "the script is over"}).to_string(),
                ),
            };
            let first = futures::stream::iter([Ok::<_, Infallible>(http_body::Frame::data(Bytes::from(text)))]);
            let body: UnsyncBoxBody<Bytes, Infallible> = match sort {
                "watch" => StreamBody::new(first.chain(futures::stream::pending()).boxed()).boxed_unsync(),
                _ => StreamBody::new(first.boxed()).boxed_unsync(),
            };
            Response::builder().status(code).body(body)
        }
    });
    Client::new(service, "default")
}

fn note(name: &str, uid: &str, version: u64) -> Value {
    json!({"metadata": {"name": name, "namespace": "a", "uid": uid, "resourceVersion": version.to_string()}})
}

fn list(version: u64, items: &[Value]) -> String {
    json!({"metadata": {"resourceVersion": version.to_string()}, "items": items}).to_string()
}

fn event(sort: &str, object: Value) -> String {
    format!("{}\n", json!({"type": sort, "object": object}))
}

fn store() -> (Store<ConfigMap>, Arc<Mutex<Vec<String>>>) {
    let store = Store::<ConfigMap>::new(Kind::of::<ConfigMap>(), Metrics::default());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = heard.clone();
    store.subscribe(move |change| {
        let object = change.object();
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let what = match change {
            Change::Listed(_) => "listed",
            Change::Created(_) => "created",
            Change::Updated { .. } => "updated",
            Change::Deleted(_) => "deleted",
        };
        told.lock().push(format!("{what} {uid}"));
    });
    (store, heard)
}

fn items(objects: &[Value]) -> Vec<Decoded<ConfigMap>> {
    let text = list(1, objects);
    let page = decode::page(text.as_bytes()).unwrap();
    page.items.into_iter().filter_map(decode::object).collect()
}

fn put(store: &Store<ConfigMap>, object: Value) {
    for item in items(&[object]) {
        store.put(item);
    }
}

#[test]
fn f10_doubled_and_reordered_events_change_nothing() {
    let (store, heard) = store();
    put(&store, note("x", "1", 5));
    put(&store, note("x", "1", 7));
    put(&store, note("x", "1", 5));
    put(&store, note("x", "1", 7));
    assert_eq!(*heard.lock(), ["created 1", "updated 1"]);
    assert_eq!(
        store
            .get(&Key::namespaced("a", "x"))
            .unwrap()
            .metadata
            .resource_version
            .as_deref(),
        Some("7")
    );
}

#[test]
fn f11_an_object_deleted_and_created_again_between_two_looks_is_another_object() {
    let (store, heard) = store();
    store.replace(None, items(&[note("x", "old", 5)]));
    store.replace(None, items(&[note("x", "new", 9)]));
    assert_eq!(*heard.lock(), ["listed old", "deleted old", "created new"]);
}

#[test]
fn f6_what_is_missing_in_a_new_list_was_deleted() {
    let (store, heard) = store();
    store.replace(None, items(&[note("x", "1", 5), note("y", "2", 6)]));
    heard.lock().clear();
    store.replace(None, items(&[note("y", "2", 6)]));
    assert_eq!(*heard.lock(), ["deleted 1"]);
    assert_eq!(store.in_namespace("a").len(), 1);
}

#[test]
fn f34_an_object_that_cannot_be_read_is_degraded_alone() {
    let (store, _) = store();
    let mut broken = note("broken", "3", 8);
    broken["data"] = json!(["not", "a", "map"]);
    store.replace(None, items(&[note("x", "1", 5), broken]));
    assert_eq!(store.len(), 1);
    let why = store.undecodable(&Key::namespaced("a", "broken")).unwrap();
    assert!(why.message.contains("invalid type"), "{}", why.message);
    put(&store, note("broken", "3", 9));
    assert!(store.undecodable(&Key::namespaced("a", "broken")).is_none());
    assert_eq!(store.len(), 2);
}

#[test]
fn indexes_follow_every_change() {
    let (store, _) = store();
    let by_colour = store.index_label("colour");
    let coloured = |colour: &str, version| {
        let mut object = note("x", "1", version);
        object["metadata"]["labels"] = json!({"colour": colour});
        object["metadata"]["ownerReferences"] =
            json!([{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": format!("owner-{colour}")}]);
        object
    };
    put(&store, coloured("red", 1));
    assert_eq!(store.by_index(&by_colour, "red").len(), 1);
    put(&store, coloured("blue", 2));
    assert_eq!(store.by_index(&by_colour, "red").len(), 0);
    assert_eq!(store.by_index(&by_colour, "blue").len(), 1);
    assert_eq!(store.owned_by("owner-red").len(), 0);
    assert_eq!(store.owned_by("owner-blue").len(), 1);
}

async fn until(what: &str, check: impl Fn() -> bool) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while !check() {
        assert!(tokio::time::Instant::now() < deadline, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn cache(script: &Script) -> Cache {
    let settings = CacheSettings {
        longest_retry: Duration::from_millis(20),
        silence: Duration::from_millis(100),
        ..CacheSettings::default()
    };
    Cache::new(scripted(script), Namespaces::All, settings, Metrics::default())
}

#[tokio::test]
async fn f12_a_server_restored_from_an_older_backup_is_noticed_and_listed_again() {
    let script: Script = Arc::default();
    script.lock().extend([
        ("list", 200, list(90, &[note("x", "1", 80), note("y", "2", 90)])),
        // The connection falls silent; the server is asked how far it is, and is behind us.
        ("confirm", 200, list(50, &[])),
        ("list", 200, list(50, &[note("x", "1", 40)])),
    ]);
    let cache = cache(&script);
    let store = cache.store::<ConfigMap>();
    cache.start();
    store.wait_for_sync().await;
    until("the older state is accepted", || {
        store.len() == 1 && store.revision() == Revision(50)
    })
    .await;
    assert_eq!(store.list()[0].metadata.resource_version.as_deref(), Some("40"));
    cache.stop().await;
}

#[tokio::test]
async fn f33_a_definition_that_goes_and_comes_back_is_survived() {
    let script: Script = Arc::default();
    let gone = json!({"kind": "Status", "code": 404, "message": "not found"}).to_string();
    script.lock().extend([
        ("list", 200, list(10, &[note("x", "1", 10)])),
        ("confirm", 404, gone.clone()),
        ("list", 404, gone),
        ("list", 200, list(30, &[note("x", "2", 30)])),
    ]);
    let cache = cache(&script);
    let kind = Kind {
        group: "example.com".into(),
        version: "v1".into(),
        kind: "Note".into(),
        plural: "notes".into(),
        scope: Scope::Namespaced,
    };
    let store = cache.watch_dynamic::<DynamicObject>(kind, Watch::all());
    let heard = Arc::new(Mutex::new(Vec::new()));
    let told = heard.clone();
    store.subscribe(move |change| {
        let gone = matches!(change, Change::Deleted(_));
        told.lock()
            .push((gone, change.object().metadata.uid.clone().unwrap_or_default()));
    });
    cache.start();
    until("the new object is there", || {
        heard.lock().last() == Some(&(false, "2".to_owned()))
    })
    .await;
    assert!(
        heard.lock().contains(&(true, "1".to_owned())),
        "the old object was never reported gone"
    );
    cache.stop().await;
}

/// Something on the way may not know the server's paths; a node that believed it would end all of its pods.
#[tokio::test]
async fn objects_of_a_kind_that_cannot_go_are_kept_when_it_is_not_found() {
    let script: Script = Arc::default();
    let lost = || "404 page not found".to_owned();
    script.lock().extend([
        ("list", 200, list(10, &[note("x", "1", 10)])),
        ("confirm", 404, lost()),
        ("confirm", 404, lost()),
        ("confirm", 200, list(10, &[])),
        ("watch", 200, String::new()),
        ("watch", 200, event("ADDED", note("y", "2", 20))),
    ]);
    let cache = cache(&script);
    let store = cache.store::<ConfigMap>();
    let deleted = Arc::new(Mutex::new(0));
    let count = deleted.clone();
    store.subscribe(move |change| *count.lock() += i32::from(matches!(change, Change::Deleted(_))));
    cache.start();
    until("the watch goes on", || store.len() == 2).await;
    assert_eq!(*deleted.lock(), 0);
    cache.stop().await;
}

#[tokio::test]
async fn f6_an_expired_watch_lists_again() {
    let script: Script = Arc::default();
    let expired = event("ERROR", json!({"kind": "Status", "code": 410, "message": "too old"}));
    script.lock().extend([
        ("list", 200, list(10, &[note("x", "1", 10), note("y", "2", 9)])),
        ("watch", 200, event("MODIFIED", note("x", "1", 12)) + &expired),
        ("list", 200, list(20, &[note("x", "1", 12)])),
    ]);
    let cache = cache(&script);
    let store = cache.store::<ConfigMap>();
    cache.start();
    until("the deletion is noticed", || {
        store.len() == 1 && store.revision() >= Revision(20)
    })
    .await;
    cache.stop().await;
}

#[tokio::test]
async fn a_kind_is_trimmed_in_every_store_of_it_that_has_no_transform_of_its_own() {
    let script: Script = Arc::default();
    let mut labelled = note("x", "1", 10);
    labelled["metadata"]["labels"] = json!({"a": "b"});
    let (first, second) = (list(10, &[labelled.clone()]), list(10, &[labelled]));
    script.lock().extend([("list", 200, first), ("list", 200, second)]);
    let cache = cache(&script);
    cache.trim::<ConfigMap>(|object| object.metadata.labels = None);
    let trimmed = cache.store::<ConfigMap>();
    let whole = cache.watch(Watch::<ConfigMap>::all().transform(|_| {}));
    cache.start();
    trimmed.wait_for_sync().await;
    whole.wait_for_sync().await;
    assert_eq!(trimmed.list()[0].metadata.labels, None);
    assert!(whole.list()[0].metadata.labels.is_some());
    cache.stop().await;
}
