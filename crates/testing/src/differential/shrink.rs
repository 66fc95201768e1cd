//! Making a sequence small while it still shows its difference.
//!
//! A long sequence hides the one request that matters. Steps go first, from the end, then parts of bodies; a
//! change stays if the difference is still of the same sort.

use super::run::Judge;
use super::sequence::{Sequence, put};
use serde_json::Value;

/// Tries at most; each sends a whole sequence to both servers.
const TRIES: usize = 250;

/// The smallest sequence found that differs in the same way.
pub async fn shrink(judge: &Judge, mut sequence: Sequence, sort: &str) -> Sequence {
    let mut tries = 0;
    let mut smaller = true;
    while smaller && tries < TRIES {
        smaller = false;
        for candidate in candidates(&sequence) {
            tries += 1;
            if tries > TRIES {
                break;
            }
            if judge
                .differences(&candidate)
                .await
                .iter()
                .any(|found| found.sort == sort)
            {
                sequence = candidate;
                smaller = true;
                break;
            }
        }
    }
    sequence
}

/// Every sequence that is one thing smaller.
fn candidates(sequence: &Sequence) -> Vec<Sequence> {
    let mut all = Vec::new();
    for at in (0..sequence.steps.len()).rev() {
        let mut fewer = sequence.clone();
        fewer.steps.remove(at);
        all.push(fewer);
    }
    for (at, step) in sequence.steps.iter().enumerate() {
        for pointer in step.set.keys() {
            let mut fewer = sequence.clone();
            fewer.steps[at].set.remove(pointer);
            all.push(fewer);
        }
        let mut pointers = Vec::new();
        if let Some(body) = &step.body {
            parts(body, "", &mut pointers);
        }
        for pointer in pointers {
            let mut fewer = sequence.clone();
            if let Some(body) = &mut fewer.steps[at].body {
                put(body, &pointer, &Value::Null);
            }
            all.push(fewer);
        }
    }
    all
}

/// The pointers of all parts of a document, the large ones first.
fn parts(value: &Value, at: &str, out: &mut Vec<String>) {
    let children: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| (format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), value))
            .collect(),
        Value::Array(items) => items
            .iter()
            .enumerate()
            .map(|(index, value)| (format!("{at}/{index}"), value))
            .collect(),
        _ => return,
    };
    out.extend(children.iter().map(|(pointer, _)| pointer.clone()));
    for (pointer, child) in children {
        parts(child, &pointer, out);
    }
}
