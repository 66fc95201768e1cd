//! What a manager answers about itself: health, metrics, and why it did what it did.

use crate::cache::Cache;
use crate::controller::ControllerHandle;
use crate::key::Key;
use crate::metrics::Metrics;
use axum::Router;
use axum::extract::{ConnectInfo, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// What is asked about.
#[derive(Clone)]
pub(crate) struct Facts {
    pub cache: Cache,
    pub metrics: Metrics,
    pub controllers: Arc<Mutex<Vec<ControllerHandle>>>,
}

/// `/healthz`, `/livez` and `/readyz` for the kubelet, and `/debug/reconciles` for people on this machine.
pub(crate) fn probes(facts: Facts) -> Router {
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/debug/reconciles", get(reconciles))
        .with_state(facts)
}

/// `/metrics`.
pub(crate) fn metrics(facts: Facts) -> Router {
    Router::new().route("/metrics", get(render)).with_state(facts)
}

/// Serves until `stop`.
pub(crate) async fn serve(listener: std::net::TcpListener, router: Router, stop: CancellationToken) {
    let served = async {
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        axum::serve(listener, service)
            .with_graceful_shutdown(async move { stop.cancelled().await })
            .await
    };
    if let Err(error) = served.await {
        tracing::error!(%error, "cannot serve probes or metrics");
    }
}

/// Ready when every cache holds a complete list; a standby is ready too.
async fn ready(State(facts): State<Facts>) -> Response {
    let mut waiting = Vec::new();
    for store in facts.cache.facts().into_iter().filter(|store| !store.is_synced()) {
        let problem = store.problem().unwrap_or_else(|| "not listed yet".to_owned());
        waiting.push(format!("{}: {problem}", store.kind().resource()));
    }
    match waiting.is_empty() {
        true => "ok".into_response(),
        false => (StatusCode::SERVICE_UNAVAILABLE, waiting.join("\n")).into_response(),
    }
}

async fn render(State(facts): State<Facts>) -> Response {
    let media = [(axum::http::header::CONTENT_TYPE, "text/plain; version=0.0.4")];
    (media, facts.metrics.render()).into_response()
}

#[derive(Deserialize)]
struct Question {
    controller: Option<String>,
    /// `namespace/name`, or the name alone.
    key: Option<String>,
    /// The root kind, as people write it.
    kind: Option<String>,
}

/// Everything that is remembered of a key; without one, the keys that something is remembered of. It shows specs,
/// so it is for this machine only: `kubectl port-forward` and `stead explain` come from there.
async fn reconciles(
    State(facts): State<Facts>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    Query(question): Query<Question>,
) -> Response {
    if !peer.ip().is_loopback() {
        return (StatusCode::FORBIDDEN, "only from this machine").into_response();
    }
    let controllers = facts.controllers.lock().clone();
    let asked = controllers.iter().filter(|controller| {
        let named = question
            .controller
            .as_deref()
            .is_none_or(|name| *controller.name == *name);
        let kind = question.kind.as_deref().is_none_or(|kind| {
            controller
                .root
                .as_ref()
                .is_some_and(|root| root.kind.eq_ignore_ascii_case(kind) || root.plural.eq_ignore_ascii_case(kind))
        });
        named && kind
    });
    let answer: Vec<Value> = asked
        .map(|controller| describe(&facts, controller, question.key.as_deref()))
        .collect();
    axum::Json(answer).into_response()
}

fn describe(facts: &Facts, controller: &ControllerHandle, key: Option<&str>) -> Value {
    let Some(text) = key else {
        return json!({"controller": &*controller.name, "keys": controller.history.keys()});
    };
    let key = match text.split_once('/') {
        Some((namespace, name)) => Key::namespaced(namespace, name),
        None => Key::cluster(text),
    };
    let stores = controller.root.iter().flat_map(|root| facts.cache.facts_of(root));
    let uid = stores.filter_map(|store| store.version(&key)?.1).next();
    let now = tokio::time::Instant::now();
    let (due, reasons, failures) = controller.queue.inspect(|ledger| {
        let due = ledger
            .due(&key, now)
            .map(|at| at.saturating_duration_since(now).as_secs_f64());
        (due, ledger.pending_reasons(&key), ledger.failures(&key))
    });
    json!({
        "controller": &*controller.name,
        "key": key,
        "kind": controller.root.as_ref().map(|root| json!({"apiVersion": root.api_version(), "plural": root.plural})),
        "uid": uid,
        "story": controller.history.of(&key),
        "nextInSeconds": due,
        "nextBecause": reasons,
        "failuresInARow": failures,
        "resyncEverySeconds": controller.resync.map(|every| every.as_secs_f64()),
    })
}
