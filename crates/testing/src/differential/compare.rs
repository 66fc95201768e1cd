//! Where the answers of two servers differ.

use super::sequence::{Sequence, Step};
use super::side::Answer;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fmt;

/// One place where the answers to one step differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    pub step: u32,
    /// Alike for differences that have the same cause, as far as one can tell from outside.
    pub sort: String,
    pub text: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "step {}: {}", self.step, self.text)
    }
}

/// All differences of the first step that has any: those after it may follow from it.
pub fn differences(sequence: &Sequence, ours: &[Answer], theirs: &[Answer]) -> Vec<Difference> {
    let answers = ours.iter().zip(theirs);
    sequence
        .steps
        .iter()
        .zip(answers)
        .map(|(step, (ours, theirs))| of_step(step, ours, theirs))
        .find(|found| !found.is_empty())
        .unwrap_or_default()
}

fn of_step(step: &Step, ours: &Answer, theirs: &Answer) -> Vec<Difference> {
    if known(step, ours, theirs) {
        return Vec::new();
    }
    let request = format!("{} {}", step.method, what(&step.path));
    if ours.code != theirs.code {
        let refusal = if ours.code >= 300 { &ours.body } else { &theirs.body };
        let sort = format!("{request} {}/{} {}", ours.code, theirs.code, shape(&message(refusal)));
        let text = format!(
            "{} instead of {}\n    ours:   {}\n    theirs: {}",
            ours.code,
            theirs.code,
            message(&ours.body),
            message(&theirs.body)
        );
        return vec![Difference {
            step: step.id,
            sort,
            text,
        }];
    }
    let mut found = Vec::new();
    values("", &ours.body, &theirs.body, &mut found);
    let warnings = |answer: &Answer| {
        answer
            .warnings
            .iter()
            .map(|w| Value::from(w.as_str()))
            .collect::<Value>()
    };
    values("warnings", &warnings(ours), &warnings(theirs), &mut found);
    found
        .into_iter()
        .map(|(path, text)| Difference {
            step: step.id,
            sort: format!("{request} {} {}", ours.code, shape(&path)),
            text: format!("{path}: {text}"),
        })
        .collect()
}

fn message(body: &Value) -> String {
    match &body["message"] {
        Value::String(text) => text.clone(),
        _ => {
            let mut text = body.to_string();
            text.truncate(text.char_indices().nth(300).map_or(text.len(), |(at, _)| at));
            text
        }
    }
}

/// Differences that `docs/compatibility.md` lists with their reasons, and that no other rule hides.
fn known(step: &Step, ours: &Answer, theirs: &Answer) -> bool {
    let no_answer = theirs.code == 0;
    // Kubernetes creates a service through its status.
    let status_creates = matches!(what(&step.path).as_str(), "services/status" | "services")
        && ours.code == 404
        && step.method != "DELETE"
        && step.method != "GET";
    // Another parser, other words.
    let yaml = |answer: &Answer| message(&answer.body).contains("error converting YAML to JSON");
    // An address for a service without a name.
    let nameless = message(&theirs.body).contains("failed to allocate IP");
    let refused = theirs.body["details"]["causes"][0]["message"]
        .as_str()
        .unwrap_or_default();
    let nameless = nameless || refused.contains("failed to allocate IP");
    no_answer || nameless || status_creates || (yaml(ours) && yaml(theirs))
}

/// The resource and subresource of a path.
fn what(path: &str) -> String {
    let path = path.split('?').next().unwrap_or_default();
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    let parts = match parts.first() {
        Some(&"api") => parts.get(2..),
        Some(&"apis") => parts.get(3..),
        _ => None,
    };
    let parts = match parts {
        Some(["namespaces", _, rest @ ..]) if !rest.is_empty() => rest,
        Some(parts) => parts,
        None => return path.to_string(),
    };
    match parts {
        [resource, _, subresource, ..] => format!("{resource}/{subresource}"),
        [resource, ..] => (*resource).to_string(),
        [] => path.to_string(),
    }
}

/// A text without what varies: quoted parts, numbers and indexes.
fn shape(text: &str) -> String {
    let mut out = String::new();
    let mut quoted = false;
    for c in text.chars().take(400) {
        match c {
            '"' => quoted = !quoted,
            _ if quoted => {}
            '0'..='9' if out.ends_with('#') => {}
            '0'..='9' => out.push('#'),
            other => out.push(other),
        }
    }
    out.truncate(out.char_indices().nth(160).map_or(out.len(), |(at, _)| at));
    out
}

fn is_nothing(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(items)) => items.is_empty(),
        _ => false,
    }
}

fn values(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<(String, String)>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    // Go writes some lists that are not there as null, and others not at all.
                    (a, b) if is_nothing(a) && is_nothing(b) => {}
                    (Some(a), Some(b)) => values(&path, a, b, found),
                    (Some(a), None) => found.push((path, format!("{a} too much"))),
                    (None, Some(b)) => found.push((path, format!("{b} missing"))),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                values(&format!("{path}[{at}]"), a, b, found);
            }
        }
        // 1 and 1.0 are written differently and must be read as what they are.
        (a, b) if a != b => found.push((path.to_string(), format!("\n    ours:   {a}\n    theirs: {b}"))),
        _ => {}
    }
}
