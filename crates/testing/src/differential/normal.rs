//! Answers without what differs by nature: identities, times, versions, and what comes from pools.
//!
//! Every rule here hides something, so each is as narrow as it can be. Versions of objects are not hidden but
//! numbered in their order: whether a write that changes nothing makes a new version stays visible.

mod texts;

use super::sequence::Sequence;
use super::side::Answer;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use texts::{in_order, without_documents, without_identities, without_keys, without_times};

/// The answers of one side, comparable with those of the other.
pub fn normal(sequence: &Sequence, answers: &[Answer], today: &str) -> Vec<Answer> {
    let mut seen = Seen::default();
    for (step, answer) in sequence.steps.iter().zip(answers) {
        seen.learn(&answer.body);
        let prefix = step
            .body
            .as_ref()
            .and_then(|body| body["metadata"]["generateName"].as_str());
        // A refusal names the object that it refuses.
        if let (Some(prefix), Some(name)) = (prefix, answer.body["details"]["name"].as_str()) {
            let end = prefix.rsplit('}').next().unwrap_or(prefix);
            if name.len() > 5 && name[..name.len() - 5].ends_with(end) {
                let shown = format!("{}<generated>", &name[..name.len() - 5]);
                seen.generated.entry(name.to_string()).or_insert(shown);
            }
        }
    }
    let names = Names {
        versions: seen.versions.iter().enumerate().map(|(at, v)| (*v, at)).collect(),
        generated: seen.generated,
        today: today.to_string(),
    };
    answers
        .iter()
        .zip(&sequence.steps)
        .map(|(answer, step)| {
            let mut body = answer.body.clone();
            names.rewrite(&mut body);
            if step.path.contains("limit=") && names.generated.len() > 1 {
                without_places(&mut body);
            }
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
                if metadata["uid"].is_string() {
                    if !written_by_others(value) {
                        self.versions.extend(version(metadata));
                    }
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

/// Definitions get their conditions from a controller inside the real server, a moment later. Jobs and claims
/// have parts that their first encoding in Kubernetes loses, so that the next write changes what nobody sees.
fn written_by_others(object: &Value) -> bool {
    let kind = object["kind"].as_str().unwrap_or_default();
    matches!(kind, "CustomResourceDefinition") || rewritten(object)
}

fn rewritten(object: &Value) -> bool {
    let spec = &object["spec"];
    // Items of lists do not say their kind.
    let claim = spec["accessModes"].is_array() && spec["resources"].is_object();
    let job = spec["completionMode"].is_string() && spec["podReplacementPolicy"].is_string();
    claim || job
}

/// The metadata of what stands in a list or is a row of a table.
fn listed(item: &Value) -> &Value {
    match item["cells"].is_array() {
        true => &item["object"]["metadata"],
        false => &item["metadata"],
    }
}

/// Whether a server chose the name; LimitRanges without one are named by their identity.
fn is_made_up(item: &Value) -> bool {
    let name = listed(item)["name"].as_str().unwrap_or_default();
    name.contains("<generated") || name == "<uid>"
}

/// A page of a list, without which of several made-up names fell on it.
fn without_places(list: &mut Value) {
    let items = list.get_mut("items").and_then(Value::as_array_mut);
    for item in items.into_iter().flatten().filter(|item| is_made_up(item)) {
        *item = "<one with a made-up name>".into();
    }
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
                if value["kind"] == "CustomResourceDefinition" {
                    definition(value);
                }
                if value["kind"] == "Status" {
                    self.status(value);
                }
                if value["kind"] == "Table" {
                    table(value);
                }
                if value["kind"] == "PartialObjectMetadata" {
                    internal_metadata(value);
                }
                self.metadata(value);
                addresses(value);
                for (_, value) in value.as_object_mut().into_iter().flatten() {
                    self.rewrite(value);
                }
            }
            Value::Array(items) => {
                items.iter_mut().for_each(|item| self.rewrite(item));
                without_unseen(items);
                // Names that were made up are in no order.
                if items.iter().any(is_made_up) {
                    items.sort_by_cached_key(|item| {
                        let metadata = listed(item);
                        (metadata["name"].to_string(), metadata["resourceVersion"].to_string())
                    });
                }
            }
            Value::String(text) => *text = self.text(text),
            _ => {}
        }
    }

    fn metadata(&self, object: &mut Value) {
        let hidden = written_by_others(object);
        let Some(metadata) = object.get_mut("metadata").filter(|metadata| metadata.is_object()) else {
            return;
        };
        let hidden = hidden || metadata.get("uid").is_none();
        let known = version(metadata).and_then(|version| self.versions.get(&version));
        if metadata.get("resourceVersion").is_some_and(Value::is_string) {
            // The version of a list counts the writes of all, also of those who run beside this sequence.
            metadata["resourceVersion"] = match known {
                Some(at) if !hidden => format!("<version {at}>").into(),
                _ => "<version>".into(),
            };
        }
        if metadata
            .get("continue")
            .is_some_and(|token| token.is_string() && token != "")
        {
            metadata["continue"] = "<continue>".into();
        }
        if let Some(Value::Array(entries)) = metadata.get_mut("managedFields") {
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
            let mut text = self.numbered(&without_identities(message));
            // Versions of objects that others write to are in no order.
            if let Some((before, after)) = text.split_once(" in record (")
                && let Some((version, rest)) = after.split_once(')')
                && version.parse::<u64>().is_ok()
            {
                text = format!("{before} in record (<version>){rest}");
            }
            status["message"] = text.into();
        }
        if let Some(message) = status["message"].as_str() {
            status["message"] = in_order(&without_keys(&without_documents(message))).into();
        }
        let Some(Value::Array(causes)) = status.get_mut("details").and_then(|details| details.get_mut("causes")) else {
            return;
        };
        for cause in causes.iter_mut() {
            if let Some(message) = cause["message"].as_str() {
                // What follows is a comparison of Go's structs.
                let message = message.split("\n@@").next().unwrap_or_default();
                cause["message"] = without_documents(message).into();
            }
        }
        // The order of the causes is Go's map order in places, and some rules are asked twice.
        causes.sort_by_cached_key(Value::to_string);
        causes.dedup();
        let message = status["message"].as_str().unwrap_or_default();
        if let Some((start, _)) = message.split_once(" is invalid: ") {
            status["message"] = format!("{start} is invalid: the causes").into();
        }
    }

    /// A message with the versions of this sequence in it numbered. A few digits of anything else are no version.
    fn numbered(&self, message: &str) -> String {
        let mut out = String::new();
        let mut rest = message;
        while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric()) {
            let word = rest[start..]
                .split(|c: char| !c.is_ascii_alphanumeric())
                .next()
                .unwrap_or_default();
            out.push_str(&rest[..start]);
            match word.parse().ok().and_then(|version| self.versions.get(&version)) {
                Some(at) => out.push_str(&format!("<version {at}>")),
                None => out.push_str(word),
            }
            rest = &rest[start + word.len()..];
        }
        out + rest
    }

    fn text(&self, text: &str) -> String {
        let mut text = text.to_string();
        for (name, shown) in &self.generated {
            if text.contains(name.as_str()) {
                text = text.replace(name.as_str(), shown);
            }
        }
        // Types have names that are made up anew each time.
        while let Some((before, after)) = text.split_once("selfType") {
            let rest = after.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || "._@".contains(c));
            text = format!("{before}<type>{rest}");
        }
        if text.len() >= 20 && text.is_ascii() {
            text = without_identities(&text);
            text = without_times(&text, &self.today);
            // How far a reader of times gets with an identity is chance.
            if let Some((before, _)) = text.split_once("parsing time \"<uid>\" as ") {
                text = format!("{before}parsing time \"<uid>\"");
            }
        }
        text
    }
}

/// The server describes the columns for nobody who was seen reading it; ours does for the common ones only.
fn table(table: &mut Value) {
    let columns = table.get_mut("columnDefinitions").and_then(Value::as_array_mut);
    for column in columns.into_iter().flatten().filter_map(Value::as_object_mut) {
        column.remove("description");
    }
    let rows = table.get_mut("rows").and_then(Value::as_array_mut);
    for row in rows.into_iter().flatten() {
        for cell in row["cells"].as_array_mut().into_iter().flatten() {
            let age = |text: &str| {
                text.strip_suffix('s')
                    .is_some_and(|digits| digits.parse::<u32>().is_ok())
            };
            if cell.as_str().is_some_and(age) {
                *cell = "<age>".into();
            }
            if let Some(text) = cell.as_str() {
                *cell = without_node_ports(text).into();
            }
            if cell.as_str().is_some_and(|text| text.starts_with("10.96.")) {
                *cell = "<address>".into();
            }
        }
    }
}

/// Replaces the ports of nodes in a list of ports: `80:30974/TCP`.
fn without_node_ports(text: &str) -> String {
    let shown = text.split(',').map(|port| match port.split_once(':') {
        Some((own, rest)) if rest.starts_with('3') && rest.contains('/') => {
            let protocol = rest.split_once('/').map_or("", |(_, protocol)| protocol);
            format!("{own}:<port>/{protocol}")
        }
        _ => port.to_string(),
    });
    shown.collect::<Vec<_>>().join(",")
}

/// An annotation that stands for a field is not there where Kubernetes shows the metadata alone.
fn internal_metadata(object: &mut Value) {
    let metadata = object.get_mut("metadata").and_then(Value::as_object_mut);
    let Some(Value::Object(annotations)) = metadata.and_then(|metadata| metadata.get_mut("annotations")) else {
        return;
    };
    annotations.remove("deprecated.daemonset.template.generation");
    if annotations.is_empty()
        && let Some(Value::Object(metadata)) = object.get_mut("metadata")
    {
        metadata.remove("annotations");
    }
}

/// What a controller adds to definitions, and when, is no matter of the request.
fn definition(object: &mut Value) {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    let metadata = object.get_mut("metadata");
    if let Some(Value::Array(entries)) = metadata.and_then(|metadata| metadata.get_mut("managedFields")) {
        entries.retain(|entry| entry["subresource"] != "status");
    }
}

/// Takes out events of a watch that show nothing new of their object: a change that nobody sees is no event.
fn without_unseen(events: &mut Vec<Value>) {
    let mut last: BTreeMap<String, Value> = BTreeMap::new();
    events.retain(|event| {
        let object = &event["object"];
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_string();
        let unseen = event["type"] == "MODIFIED" && rewritten(object) && last.get(&name) == Some(object);
        last.insert(name, object.clone());
        !unseen
    });
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
