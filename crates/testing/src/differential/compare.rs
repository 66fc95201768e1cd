//! Where the answers of two servers differ.

use super::explained::{self, Then};
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

/// What the answers to a whole sequence say.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Comparison {
    /// Differences that nothing explains, of the first step that has any: those after it may follow from it.
    pub differences: Vec<Difference>,
    /// The rows of `docs/compatibility.md` that explain the other differences.
    pub explained: BTreeSet<&'static str>,
}

/// Compares the answers step by step, up to the first that leaves the two servers with different objects.
pub fn compare(sequence: &Sequence, ours: &[Answer], theirs: &[Answer]) -> Comparison {
    let mut comparison = Comparison::default();
    let answered: Vec<(&Step, &Answer)> = sequence.steps.iter().zip(ours).collect();
    for (place, (step, (ours, theirs))) in sequence.steps.iter().zip(ours.iter().zip(theirs)).enumerate() {
        if let Some((row, then)) = explained::whole_answer(step, &answered[..place], ours, theirs) {
            comparison.explained.insert(row);
            match then {
                Then::Stop => break,
                Then::GoOn => continue,
            }
        }
        let found = of_step(step, ours, theirs, &mut comparison.explained);
        if !found.is_empty() {
            comparison.differences = found;
            break;
        }
    }
    comparison
}

fn of_step(step: &Step, ours: &Answer, theirs: &Answer, known: &mut BTreeSet<&'static str>) -> Vec<Difference> {
    let request = format!("{} {}", step.method, what(&step.path));
    if ours.code != theirs.code {
        let refusal = if ours.code >= 300 { &ours.body } else { &theirs.body };
        let causes = &refusal["details"]["causes"];
        let cause = causes[0]["message"].as_str().unwrap_or_default();
        let words = format!("{} {cause}", message(refusal));
        let sort = format!("{request} {}/{} {}", ours.code, theirs.code, shape(&words));
        let text = format!(
            "{} instead of {}\n    ours:   {}\n    theirs: {}\n    causes: {causes}",
            ours.code,
            theirs.code,
            message(&ours.body),
            message(&theirs.body),
        );
        return vec![Difference {
            step: step.id,
            sort,
            text,
        }];
    }
    let mut found = Vec::new();
    let (mut our_body, mut their_body) = (ours.body.clone(), theirs.body.clone());
    let (our_causes, their_causes) = (take_causes(&mut our_body), take_causes(&mut their_body));
    let only = |some: &[Value], others: &[Value]| -> Vec<Value> {
        some.iter().filter(|cause| !others.contains(cause)).cloned().collect()
    };
    let (only_ours, only_theirs) = (only(&our_causes, &their_causes), only(&their_causes, &our_causes));
    let refusal = refusal(&only_ours, &only_theirs);
    if refusal.is_some() {
        found.push((".details.causes".to_string(), only_ours.into(), only_theirs.into()));
    }
    values("", &our_body, &their_body, &mut found);
    let warnings = |answer: &Answer| {
        answer
            .warnings
            .iter()
            .map(|w| Value::from(w.as_str()))
            .collect::<Value>()
    };
    values("warnings", &warnings(ours), &warnings(theirs), &mut found);
    found.retain(
        |(path, ours, theirs)| match explained::value(step, path, ours, theirs) {
            Some(row) => {
                known.insert(row);
                false
            }
            None => true,
        },
    );
    found
        .into_iter()
        .map(|(path, ours_there, theirs_there)| Difference {
            step: step.id,
            sort: format!(
                "{request} {} {}",
                ours.code,
                refusal.clone().unwrap_or_else(|| shape(&path))
            ),
            text: format!("{path}:\n    ours:   {ours_there}\n    theirs: {theirs_there}"),
        })
        .collect()
}

/// Takes the causes out of a refusal: they are compared as a set.
fn take_causes(body: &mut Value) -> Vec<Value> {
    if body["kind"] != "Status" {
        return Vec::new();
    }
    match body.pointer_mut("/details/causes").map(Value::take) {
        Some(Value::Array(causes)) => causes,
        _ => Vec::new(),
    }
}

/// What two refusals with the same code say differently, in short: a cause that only one of them has.
fn refusal(only_ours: &[Value], only_theirs: &[Value]) -> Option<String> {
    let text = |causes: &[Value]| {
        let cause = causes.first().unwrap_or(&Value::Null);
        let field = cause["field"].as_str().unwrap_or_default();
        let place = field.rsplit('.').next().unwrap_or_default();
        shape(&format!("{place}: {}", cause["message"].as_str().unwrap_or_default()))
    };
    let differ = !only_ours.is_empty() || !only_theirs.is_empty();
    differ.then(|| format!("{} | {}", text(only_ours), text(only_theirs)))
}

/// What an answer says, in short.
pub fn message(body: &Value) -> String {
    match &body["message"] {
        Value::String(text) => text.clone(),
        _ => {
            let mut text = body.to_string();
            text.truncate(text.char_indices().nth(300).map_or(text.len(), |(at, _)| at));
            text
        }
    }
}

/// The resource and subresource of a path.
pub fn what(path: &str) -> String {
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

/// Where two values differ: the path, and what stands there on either side.
type Places = Vec<(String, Value, Value)>;

/// Stands for what is not there.
fn absent() -> Value {
    Value::from("<absent>")
}

fn values(path: &str, ours: &Value, theirs: &Value, found: &mut Places) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let path = format!("{path}.{key}");
                match (a.get(key), b.get(key)) {
                    // Go writes some lists that are not there as null, and others not at all.
                    (a, b) if is_nothing(a) && is_nothing(b) => {}
                    (Some(a), Some(b)) => values(&path, a, b, found),
                    (a, b) => found.push((
                        path,
                        a.cloned().unwrap_or_else(absent),
                        b.cloned().unwrap_or_else(absent),
                    )),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                values(&format!("{path}[{at}]"), a, b, found);
            }
        }
        // 1 and 1.0 are written differently and must be read as what they are.
        (a, b) if a != b => found.push((path.to_string(), a.clone(), b.clone())),
        _ => {}
    }
}
