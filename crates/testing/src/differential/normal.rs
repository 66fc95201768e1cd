//! Answers without what differs by nature: identities, times, versions, and what comes from pools.
//!
//! Every rule here hides something, so each is as narrow as it can be. Versions of objects are not hidden but
//! numbered in their order: whether a write that changes nothing makes a new version stays visible.

use super::side::Answer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The answers of one side, comparable with those of the other.
pub fn normal(answers: &[Answer], today: &str) -> Vec<Answer> {
    let mut seen = Seen::default();
    for answer in answers {
        seen.learn(&answer.body);
    }
    let names = Names {
        versions: seen.versions.iter().enumerate().map(|(at, v)| (*v, at)).collect(),
        generated: seen.generated,
        today: today.to_string(),
    };
    answers
        .iter()
        .map(|answer| {
            let mut body = answer.body.clone();
            names.rewrite(&mut body);
            Answer {
                code: answer.code,
                warnings: answer.warnings.iter().map(|text| names.text(text)).collect(),
                body,
            }
        })
        .collect()
}

#[derive(Default)]
struct Seen {
    versions: BTreeSet<u64>,
    generated: BTreeMap<String, String>,
}

impl Seen {
    fn learn(&mut self, value: &Value) {
        match value {
            Value::Object(fields) => {
                let metadata = &value["metadata"];
                if metadata["uid"].is_string() && !written_by_others(value) {
                    self.versions.extend(version(metadata));
                    if let (Some(prefix), Some(name)) = (metadata["generateName"].as_str(), metadata["name"].as_str())
                        && name.starts_with(prefix)
                        && name.len() == prefix.len() + 5
                    {
                        let count = self.generated.len();
                        let shown = format!("{prefix}<generated {count}>");
                        self.generated.entry(name.to_string()).or_insert(shown);
                    }
                }
                fields.values().for_each(|value| self.learn(value));
            }
            Value::Array(items) => items.iter().for_each(|value| self.learn(value)),
            _ => {}
        }
    }
}

fn version(metadata: &Value) -> Option<u64> {
    metadata["resourceVersion"].as_str()?.parse().ok()
}

/// Definitions get their conditions from a controller inside the real server, a moment later.
fn written_by_others(object: &Value) -> bool {
    object["kind"] == "CustomResourceDefinition"
}

struct Names {
    versions: BTreeMap<u64, usize>,
    generated: BTreeMap<String, String>,
    /// The date, so that only times of this run are hidden, not those that a request names.
    today: String,
}

impl Names {
    fn rewrite(&self, value: &mut Value) {
        match value {
            Value::Object(_) => {
                if written_by_others(value) {
                    definition(value);
                }
                if value["kind"] == "Status" {
                    self.status(value);
                }
                self.metadata(value);
                addresses(value);
                for (_, value) in value.as_object_mut().into_iter().flatten() {
                    self.rewrite(value);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.rewrite(item)),
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    fn metadata(&self, object: &mut Value) {
        let hidden = written_by_others(object);
        let Some(metadata) = object.get_mut("metadata").filter(|metadata| metadata.is_object()) else {
            return;
        };
        let known = version(metadata).and_then(|version| self.versions.get(&version));
        if metadata["resourceVersion"].is_string() {
            // The version of a list counts the writes of all, also of those who run beside this sequence.
            metadata["resourceVersion"] = match known {
                Some(at) if !hidden => format!("<version {at}>").into(),
                _ => "<version>".into(),
            };
        }
        if metadata["continue"].is_string() && metadata["continue"] != "" {
            metadata["continue"] = "<continue>".into();
        }
        if let Some(entries) = metadata["managedFields"].as_array_mut() {
            // Their order depends on whether two writes fell into the same second.
            entries.sort_by_cached_key(|entry| {
                ["operation", "manager", "subresource", "apiVersion"].map(|field| entry[field].to_string())
            });
        }
    }

    fn status(&self, status: &mut Value) {
        if let Some(message) = status["message"].as_str()
            && (message.contains("esourceVersion") || message.contains("resource version"))
        {
            let mut text = message.to_string();
            for (version, at) in self.versions.iter().rev() {
                text = text.replace(&version.to_string(), &format!("<version {at}>"));
            }
            status["message"] = text.into();
        }
        let Some(causes) = status["details"]["causes"].as_array_mut() else {
            return;
        };
        // The order of the causes is Go's map order in places.
        causes.sort_by_cached_key(Value::to_string);
        if causes.len() > 1 {
            let message = status["message"].as_str().unwrap_or_default();
            if let Some((start, _)) = message.split_once(": [") {
                status["message"] = format!("{start}: [the causes]").into();
            }
        }
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.to_string();
        for (name, shown) in &self.generated {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), shown);
            }
        }
        if text.len() >= 20 && text.is_ascii() {
            text = without_identities(&text);
            text = without_times(&text, &self.today);
        }
        text
    }
}

/// What a controller adds to definitions, and when, is no matter of the request.
fn definition(object: &mut Value) {
    if let Some(conditions) = object["status"]["conditions"].as_array_mut() {
        conditions.clear();
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(entries) = object["metadata"]["managedFields"].as_array_mut() {
        entries.retain(|entry| entry["subresource"] != "status");
    }
}

/// Addresses and ports that come from the pools of the servers.
fn addresses(object: &mut Value) {
    let allocated = |text: &str| text.starts_with("10.96.");
    if let Some(ip) = object
        .get_mut("clusterIP")
        .filter(|ip| ip.as_str().is_some_and(allocated))
    {
        *ip = "<address>".into();
    }
    for ip in object
        .get_mut("clusterIPs")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        if ip.as_str().is_some_and(allocated) {
            *ip = "<address>".into();
        }
    }
    for port in ["nodePort", "healthCheckNodePort"] {
        if object
            .get(port)
            .and_then(Value::as_u64)
            .is_some_and(|port| port >= 30_000)
        {
            object[port] = json!("<port>");
        }
    }
}

/// Replaces every UUID.
fn without_identities(text: &str) -> String {
    let shape = |candidate: &str| {
        candidate.char_indices().all(|(at, c)| match at {
            8 | 13 | 18 | 23 => c == '-',
            _ => c.is_ascii_hexdigit(),
        })
    };
    replace_all(text, 36, "<uid>", shape)
}

/// Replaces every time of today, whole seconds apart from those with a fraction.
fn without_times(text: &str, today: &str) -> String {
    let whole = |candidate: &str| candidate.starts_with(today) && candidate.ends_with('Z');
    let micro = replace_all(text, 27, "<micro time>", whole);
    replace_all(&micro, 20, "<time>", whole)
}

fn replace_all(text: &str, length: usize, by: &str, matches: impl Fn(&str) -> bool) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while !rest.is_empty() {
        match rest.get(..length).filter(|candidate| matches(candidate)) {
            Some(_) => {
                out.push_str(by);
                rest = &rest[length..];
            }
            None => {
                let next = rest.chars().next().map_or(1, char::len_utf8);
                out.push_str(&rest[..next]);
                rest = &rest[next..];
            }
        }
    }
    out
}
