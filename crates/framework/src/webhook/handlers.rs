//! From a review to an answer.
//!
//! An object that cannot be read is not accepted, and not changed either; a handler that panics denies its own request only.

use crate::kind::Typed;
use crate::metrics::Metrics;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;
use tokio::time::Instant;

/// What is being done to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Update,
    /// It is deleted.
    Delete,
    /// Somebody connects to it.
    Connect,
}

/// A question of the API server about an object of a kind.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "K: serde::de::DeserializeOwned")]
pub struct Asked<K> {
    /// The number of the question.
    pub uid: String,
    /// What shall be done.
    pub operation: Operation,
    /// The name of the object; empty where the server makes it.
    #[serde(default)]
    pub name: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// The object as it shall be; none when it is deleted.
    pub object: Option<K>,
    /// The object as it is; none when it is created.
    pub old_object: Option<K>,
    /// Whether nothing will be stored.
    #[serde(default)]
    pub dry_run: bool,
    /// Who asks.
    #[serde(default)]
    pub user_info: Value,
}

/// Why an object is not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    /// What people read.
    pub message: String,
}

impl Denial {
    /// A denial, with the reason.
    pub fn new(message: impl Into<String>) -> Self {
        Denial {
            message: message.into(),
        }
    }
}

type Handler = Box<dyn Fn(&Value) -> Value + Send + Sync>;

#[derive(Default)]
pub(super) struct Handlers {
    by_path: BTreeMap<String, Handler>,
}

impl Handlers {
    pub fn add(&mut self, path: &str, handler: Handler) {
        self.by_path.insert(path.to_owned(), handler);
    }

    pub fn paths(&self) -> Vec<String> {
        self.by_path.keys().cloned().collect()
    }

    pub fn answer(&self, path: &str, body: &[u8], metrics: &Metrics) -> Response {
        let started = Instant::now();
        let in_flight = metrics.webhook_in_flight(path);
        in_flight.add(1.0);
        let (code, answer) = self.review(path, body);
        in_flight.add(-1.0);
        metrics.webhook(path, code, started.elapsed());
        match code {
            200 => axum::Json(answer).into_response(),
            _ => (axum::http::StatusCode::BAD_REQUEST, answer.to_string()).into_response(),
        }
    }

    fn review(&self, path: &str, body: &[u8]) -> (u16, Value) {
        let Ok(review) = serde_json::from_slice::<Value>(body) else {
            return (400, json!("the review is not JSON"));
        };
        let Some(handler) = self.by_path.get(path) else {
            return (400, json!("no handler"));
        };
        let request = &review["request"];
        let mut answer = catch_unwind(AssertUnwindSafe(|| handler(request))).unwrap_or_else(|_| {
            tracing::error!(path, "a webhook handler panicked");
            denied("the webhook failed by its own mistake")
        });
        answer["uid"] = request["uid"].clone();
        let answer = json!({
            "apiVersion": review["apiVersion"],
            "kind": review["kind"],
            "response": answer,
        });
        (200, answer)
    }
}

fn denied(message: &str) -> Value {
    json!({"allowed": false, "status": {"code": 403, "reason": "Forbidden", "message": message}})
}

pub(super) fn validating<K: Typed>(
    check: impl Fn(&Asked<K>) -> Result<Vec<String>, Denial> + Send + Sync + 'static,
) -> Handler {
    Box::new(move |request| match crate::decode::<Asked<K>>(request) {
        Err(error) => denied(&format!("the object cannot be read: {error}")),
        Ok(asked) => match check(&asked) {
            Ok(warnings) if warnings.is_empty() => json!({"allowed": true}),
            Ok(warnings) => json!({"allowed": true, "warnings": warnings}),
            Err(denial) => denied(&denial.message),
        },
    })
}

pub(super) fn mutating<K: Typed + Serialize>(
    change: impl Fn(&mut K, &Asked<K>) -> Result<(), Denial> + Send + Sync + 'static,
) -> Handler {
    Box::new(move |request| {
        // A deletion has no object to change. One that cannot be read is for others to refuse: the API server asks for
        // changes before it holds an object against its schema, and the schema names every mistake and its field.
        let read = asked(request).and_then(|asked| Ok((asked, crate::decode(&request["object"])?)));
        let (asked, mut object): (Asked<K>, K) = match read {
            Ok(read) => read,
            Err(error) => {
                tracing::debug!(%error, "nothing is changed in what cannot be read");
                return json!({"allowed": true});
            }
        };
        let before = serde_json::to_value(&object).unwrap_or_default();
        if let Err(denial) = change(&mut object, &asked) {
            return denied(&denial.message);
        }
        let after = serde_json::to_value(&object).unwrap_or_default();
        let mut patch = Vec::new();
        difference(&before, &after, &request["object"], "", &mut patch);
        match patch.is_empty() {
            true => json!({"allowed": true}),
            false => json!({"allowed": true, "patchType": "JSONPatch", "patch": base64(&patch)}),
        }
    })
}

/// A question. Only what an object shall be is changed: one that was stored before its kind knew better and cannot be read
/// any more must not keep its successor from it.
fn asked<K: Typed>(request: &Value) -> serde_json::Result<Asked<K>> {
    crate::decode::<Asked<K>>(request).or_else(|error| {
        let mut without = request.clone();
        let old = without.as_object_mut().and_then(|fields| fields.remove("oldObject"));
        match old {
            Some(_) => crate::decode(&without),
            None => Err(error),
        }
    })
}

pub(super) fn converting(convert: impl Fn(Value, &str) -> Result<Value, String> + Send + Sync + 'static) -> Handler {
    Box::new(move |request| {
        let wanted = request["desiredAPIVersion"].as_str().unwrap_or_default();
        let objects = request["objects"].as_array().cloned().unwrap_or_default();
        let converted: Result<Vec<Value>, String> = objects
            .into_iter()
            .map(|object| match object["apiVersion"] == wanted {
                true => Ok(object),
                false => convert(object, wanted).map(|mut object| {
                    object["apiVersion"] = json!(wanted);
                    object
                }),
            })
            .collect();
        match converted {
            Ok(objects) => json!({"result": {"status": "Success"}, "convertedObjects": objects}),
            Err(message) => json!({"result": {"status": "Failure", "message": message}, "convertedObjects": []}),
        }
    })
}

/// What a handler changed, as a JSON patch against the object as it was sent. Fields that the type does not
/// know are in neither `before` nor `after`, so the patch never touches them.
fn difference(before: &Value, after: &Value, sent: &Value, at: &str, patch: &mut Vec<Value>) {
    if before == after {
        return;
    }
    match (before, after, sent) {
        (Value::Object(before), Value::Object(after), Value::Object(sent)) => {
            for (name, value) in after {
                let here = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                match (before.get(name), sent.get(name)) {
                    (Some(old), Some(there)) => difference(old, value, there, &here, patch),
                    (Some(old), None) if old == value => {}
                    (_, None) => patch.push(json!({"op": "add", "path": here, "value": value})),
                    (None, Some(_)) => patch.push(json!({"op": "replace", "path": here, "value": value})),
                }
            }
            let gone = |name: &&String| !after.contains_key(*name) && sent.contains_key(*name);
            for name in before.keys().filter(gone) {
                let here = format!("{at}/{}", name.replace('~', "~0").replace('/', "~1"));
                patch.push(json!({"op": "remove", "path": here}));
            }
        }
        _ => patch.push(json!({"op": "replace", "path": at, "value": after})),
    }
}

fn base64(patch: &[Value]) -> String {
    use ::base64::Engine;
    ::base64::engine::general_purpose::STANDARD.encode(json!(patch).to_string())
}

impl Metrics {
    fn webhook_in_flight(&self, path: &str) -> crate::metrics::Gauge {
        self.registry().gauge(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served.",
            &[("webhook", path)],
        )
    }

    fn webhook(&self, path: &str, code: u16, took: Duration) {
        const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        self.registry()
            .histogram(
                "controller_runtime_webhook_latency_seconds",
                "Histogram of the latency of processing admission requests.",
                &[("webhook", path)],
                BUCKETS,
            )
            .observe(took.as_secs_f64());
        self.registry()
            .counter(
                "controller_runtime_webhook_requests_total",
                "Total number of admission requests by HTTP status code.",
                &[("code", &code.to_string()), ("webhook", path)],
            )
            .increment();
    }
}
