//! A sequence of requests as a value: it prints, it is kept as a file, and it is sent to two servers.
//!
//! What a server chooses, such as a uid, is written as a reference to the step whose answer held it; each
//! server's own answers fill it in.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Requests that are sent one after the other, in a namespace of their own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sequence {
    /// What it shows, where it is kept for a reason.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    pub steps: Vec<Step>,
}

/// One request. Path and body may hold `{ns}`, the namespace of the sequence, and `{rv:3}`, `{uid:3}`,
/// `{name:3}` and `{continue:3}`, which come from the answer to the step with that number; step 0 made the
/// namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Step {
    pub id: u32,
    pub method: String,
    pub path: String,
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    pub content_type: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub accept: String,
    /// The body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// A body that is not JSON, or not well-formed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// The body is the answer to this step, changed by `set`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<u32>,
    /// JSON pointers and what is put there; null takes away.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub set: BTreeMap<String, Value>,
    /// A path that is served from a moment after this step on; the next step waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<String>,
}

impl Step {
    pub fn is_watch(&self) -> bool {
        self.path.contains("watch=1") && self.method == "GET"
    }

    /// The definition that this step may have made, for removal afterwards.
    pub fn definition(&self) -> Option<&str> {
        let creates = self.method == "POST" || self.method == "PATCH";
        if !creates || !self.path.contains("/customresourcedefinitions") {
            return None;
        }
        self.body.as_ref()?["metadata"]["name"].as_str()
    }
}

/// Puts a value at a JSON pointer, making the objects on the way; null takes away.
pub fn put(document: &mut Value, pointer: &str, value: &Value) {
    let mut parts: Vec<String> = pointer
        .split('/')
        .skip(1)
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect();
    let Some(last) = parts.pop() else { return };
    let mut place = document;
    for part in parts {
        place = match place {
            Value::Array(items) => match part.parse::<usize>().ok().and_then(|at| items.get_mut(at)) {
                Some(item) => item,
                None => return,
            },
            other => {
                if !other.is_object() {
                    *other = json!({});
                }
                &mut other[part]
            }
        };
    }
    match place {
        Value::Array(items) => match last.parse::<usize>() {
            Ok(at) if at < items.len() && value.is_null() => drop(items.remove(at)),
            Ok(at) if at < items.len() => items[at] = value.clone(),
            _ => items.push(value.clone()),
        },
        Value::Object(fields) if value.is_null() => drop(fields.remove(&last)),
        other => {
            if !other.is_object() {
                *other = json!({});
            }
            other[last] = value.clone();
        }
    }
}
