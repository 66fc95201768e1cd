//! Stories about traces, with a collector of our own.

use super::*;
use axum::Router;
use axum::extract::State;
use axum::routing::post;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tracing_subscriber::layer::SubscriberExt;

type Taken = Arc<Mutex<Vec<Value>>>;

/// A collector that keeps what it is sent, and its address.
async fn collector() -> (Taken, String) {
    let taken = Taken::default();
    let keep = |State(taken): State<Taken>, body: axum::Json<Value>| async move {
        taken.lock().push(body.0);
        axum::Json(json!({}))
    };
    let router = Router::new().route("/v1/traces", post(keep)).with_state(taken.clone());
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (taken, address)
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(|| Timestamp::from_second(1_000).unwrap())
}

/// What a collector gets of what a program does.
async fn traced(act: impl FnOnce()) -> Vec<Value> {
    let (taken, endpoint) = collector().await;
    let mut settings = Settings::new(&endpoint, "librarian");
    settings.instance = Some("one".to_owned());
    let (layer, exporter) = layer(settings, clock()).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), act);
    exporter.run(std::future::pending()).await;
    let taken = taken.lock();
    assert_eq!(taken.len(), 1, "{taken:?}");
    let resource = &taken[0]["resourceSpans"][0]["resource"]["attributes"];
    assert_eq!(
        *resource,
        json!([{"key": "service.name", "value": {"stringValue": "librarian"}},
               {"key": "service.instance.id", "value": {"stringValue": "one"}}])
    );
    let spans = taken[0]["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array();
    spans.cloned().unwrap_or_default()
}

#[tokio::test]
async fn a_request_is_a_span_within_its_reconcile() {
    let spans = traced(|| {
        let reconcile = tracing::info_span!("reconcile", controller = "shelves", reconcile_id = "00ff", tries = 2u64);
        let _inside = reconcile.enter();
        tracing::info_span!("request", method = "PATCH").in_scope(|| tracing::info!(code = 200, "answered"));
    })
    .await;
    // A span is sent when it ends, so the inner one comes first.
    let [request, reconcile] = spans.as_slice() else {
        panic!("{spans:?}")
    };
    assert_eq!(
        (&request["name"], &reconcile["name"]),
        (&json!("request"), &json!("reconcile"))
    );
    assert_eq!(request["traceId"], reconcile["traceId"]);
    assert_eq!(request["parentSpanId"], reconcile["spanId"]);
    assert!(reconcile["parentSpanId"].is_null());
    assert_eq!(reconcile["traceId"].as_str().unwrap().len(), 32);
    assert_eq!(reconcile["startTimeUnixNano"], "1000000000000");
    assert_eq!(
        reconcile["attributes"],
        json!([{"key": "controller", "value": {"stringValue": "shelves"}},
               {"key": "reconcile_id", "value": {"stringValue": "00ff"}},
               {"key": "tries", "value": {"intValue": "2"}}])
    );
    assert_eq!(request["events"][0]["name"], "answered code=200");
}

#[tokio::test]
async fn a_span_with_an_error_has_failed() {
    let spans = traced(|| {
        let span = tracing::info_span!("reconcile", error = tracing::field::Empty);
        span.record("error", "the server is on fire");
    })
    .await;
    assert_eq!(
        spans[0]["status"],
        json!({"code": 2, "message": "the server is on fire"})
    );
}

#[tokio::test]
async fn a_collector_that_is_down_keeps_nobody_waiting() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let (layer, exporter) = layer(Settings::new(&format!("http://{free}"), "x"), clock()).unwrap();
    tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), || {
        for _ in 0..2 * WAITING {
            tracing::info_span!("reconcile").in_scope(|| {});
        }
    });
    let ended = tokio::time::timeout(std::time::Duration::from_secs(20), exporter.run(std::future::pending()));
    assert!(ended.await.is_ok());
}

#[test]
fn only_a_plain_url_is_an_endpoint() {
    let of = |endpoint: &str| layer(Settings::new(endpoint, "x"), clock()).map(|_| ());
    assert!(of("http://127.0.0.1:4318").is_ok());
    assert!(matches!(of("https://example.com"), Err(EndpointError::NotPlain(_))));
    assert!(matches!(of("collector"), Err(EndpointError::Nonsense(_))));
}

#[test]
fn the_environment_names_the_collector() {
    let get = |name: &str| (name == "OTEL_EXPORTER_OTLP_ENDPOINT").then(|| "http://c:4318".to_owned());
    let settings = Settings::from_environment("operator", get).unwrap();
    assert_eq!(
        (settings.endpoint.as_str(), settings.service.as_str()),
        ("http://c:4318", "operator")
    );
    assert!(Settings::from_environment("operator", |_| None).is_none());
}
