//! One of the two servers: sends the steps of a sequence and keeps what came back.

use super::sequence::{Sequence, Step, put};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;

/// The name under which requests are made; it becomes the manager of fields.
const AGENT: &str = "differential/1.0";
/// A definition is served long before this, or never.
const READY_LIMIT: Duration = Duration::from_secs(20);
const READY_PAUSE: Duration = Duration::from_millis(15);
/// Longer than any answer takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server that answers sequences.
#[derive(Clone)]
pub struct Side {
    client: Client,
}

/// What came back for one step.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    pub code: u16,
    pub warnings: Vec<String>,
    /// The object; a string where it is not JSON; an array of events for a watch.
    pub body: Value,
}

impl Side {
    pub fn new(client: Client) -> Self {
        Side { client }
    }

    /// Sends every step, in a new namespace, and gives the answers in order.
    pub async fn answers(&self, sequence: &Sequence, namespace: &str) -> Vec<Answer> {
        let mut past = BTreeMap::new();
        let made = Step {
            method: "POST".to_string(),
            path: "/api/v1/namespaces".to_string(),
            body: Some(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})),
            ..Step::default()
        };
        past.insert(0, self.send(&made, namespace, &past).await);
        let mut answers = Vec::new();
        for step in &sequence.steps {
            let answer = self.send(step, namespace, &past).await;
            if let Some(path) = &step.ready
                && answer.code < 300
            {
                self.wait_until_served(&path.replace("{ns}", namespace)).await;
            }
            past.insert(step.id, answer.clone());
            answers.push(answer);
        }
        self.clean_up(sequence, namespace).await;
        answers
    }

    /// Thousands of definitions slow a real server down; the rest may stay.
    async fn clean_up(&self, sequence: &Sequence, namespace: &str) {
        for name in sequence.steps.iter().filter_map(Step::definition) {
            let remove = Step {
                method: "DELETE".to_string(),
                path: format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"),
                ..Step::default()
            };
            self.send(&remove, namespace, &BTreeMap::new()).await;
        }
    }

    async fn wait_until_served(&self, path: &str) {
        let deadline = tokio::time::Instant::now() + READY_LIMIT;
        let look = Step {
            method: "GET".to_string(),
            path: path.to_string(),
            ..Step::default()
        };
        while self.send(&look, "", &BTreeMap::new()).await.code == 404 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(READY_PAUSE).await;
        }
    }

    async fn send(&self, step: &Step, namespace: &str, past: &BTreeMap<u32, Answer>) -> Answer {
        match tokio::time::timeout(PATIENCE, self.try_send(step, namespace, past)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(why)) => Answer::unanswered(&why),
            Err(_) => Answer::unanswered("no answer in time"),
        }
    }

    async fn try_send(&self, step: &Step, namespace: &str, past: &BTreeMap<u32, Answer>) -> Result<Answer, String> {
        let kind = match step.content_type.as_str() {
            "" => "application/json",
            other => other,
        };
        let accept = match step.accept.as_str() {
            "" => "application/json",
            other => other,
        };
        let body = fill(&body(step, past), namespace, past);
        let request = Request::builder()
            .method(step.method.as_str())
            .uri(fill(&step.path, namespace, past))
            .header("user-agent", AGENT)
            .header("content-type", kind)
            .header("accept", accept)
            .body(Body::from(body.into_bytes()))
            .map_err(|error| error.to_string())?;
        let response = self.client.send(request).await.map_err(|error| error.to_string())?;
        Answer::read(response, step).await
    }
}

/// The body of a step as text, before references are filled in.
fn body(step: &Step, past: &BTreeMap<u32, Answer>) -> String {
    if let Some(text) = &step.text {
        return text.clone();
    }
    let base = step.base.and_then(|id| past.get(&id)).map(|answer| answer.body.clone());
    match base.or_else(|| step.body.clone()) {
        Some(mut body) => {
            for (pointer, value) in &step.set {
                put(&mut body, pointer, value);
            }
            body.to_string()
        }
        None => String::new(),
    }
}

fn fill(text: &str, namespace: &str, past: &BTreeMap<u32, Answer>) -> String {
    let mut text = text.replace("{ns}", namespace);
    for (id, answer) in past {
        let metadata = &answer.body["metadata"];
        for (word, field) in [
            ("rv", "resourceVersion"),
            ("uid", "uid"),
            ("name", "name"),
            ("continue", "continue"),
        ] {
            let reference = format!("{{{word}:{id}}}");
            if text.contains(&reference) {
                let missing = if word == "rv" { "1" } else { "none" };
                text = text.replace(&reference, metadata[field].as_str().unwrap_or(missing));
            }
        }
    }
    text
}

impl Answer {
    fn unanswered(why: &str) -> Answer {
        Answer {
            code: 0,
            warnings: Vec::new(),
            body: Value::from(why),
        }
    }

    async fn read(response: Response<Body>, step: &Step) -> Result<Answer, String> {
        let (parts, body) = response.into_parts();
        let bytes: Bytes = body.collect().await.map_err(|error| error.to_string())?.to_bytes();
        let text = String::from_utf8_lossy(&bytes);
        let yaml = parts
            .headers
            .get("content-type")
            .is_some_and(|kind| kind == "application/yaml");
        let body = match step.is_watch() && parts.status == 200 {
            true => text.lines().map(read_json).collect(),
            // What it says matters, not which texts are quoted.
            false if yaml => serde_saphyr::from_str(&text).unwrap_or_else(|_| Value::from(&*text)),
            false => read_json(&text),
        };
        let warnings = parts.headers.get_all("warning").iter();
        Ok(Answer {
            code: parts.status.as_u16(),
            warnings: warnings
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .collect(),
            body,
        })
    }
}

fn read_json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
