//! What an operator remembers of an object, for people.

use serde_json::Value;
use std::fmt::Write;

/// Longer values are cut: the whole is in the JSON.
const LONGEST_VALUE: usize = 60;

/// The answers of all controllers that look after the object.
pub fn people(answers: &[Value]) -> String {
    let mut text = String::new();
    for answer in answers {
        // Writing to a string cannot fail.
        let _ = one(&mut text, answer);
    }
    text
}

fn one(text: &mut String, answer: &Value) -> std::fmt::Result {
    let story = &answer["story"];
    let (name, controller) = (word(&answer["key"]), word(&answer["controller"]));
    writeln!(text, "{name} (controller {controller})")?;
    writeln!(text, "next run: {}", next(answer))?;
    let (runs, unchanged) = (&story["runs"], &story["unchanged"]);
    writeln!(text, "runs: {runs}, of which {unchanged} changed nothing")?;
    if let Some(failures) = answer["failuresInARow"].as_u64().filter(|failures| *failures > 0) {
        writeln!(text, "failures in a row: {failures}")?;
    }
    let notable: Vec<&Value> = story["notable"].as_array().into_iter().flatten().collect();
    for run in notable.iter().rev() {
        section(text, run)?;
    }
    let last = &story["last"];
    if notable.last().is_none_or(|run| run["id"] != last["id"]) {
        writeln!(text, "\nThe last run changed nothing:")?;
        section(text, last)?;
    }
    Ok(())
}

fn next(answer: &Value) -> String {
    let because: Vec<&str> = answer["nextBecause"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|reason| reason["text"].as_str())
        .collect();
    let because = match because.is_empty() {
        true => String::new(),
        false => format!(", because: {}", because.join("; ")),
    };
    match (answer["nextInSeconds"].as_f64(), answer["resyncEverySeconds"].as_f64()) {
        (Some(seconds), _) => format!("in {seconds:.1} s{because}"),
        (None, Some(every)) => format!("when something happens, or within {every} s (resync)"),
        (None, None) => "when something happens".to_owned(),
    }
}

fn section(text: &mut String, run: &Value) -> std::fmt::Result {
    let took = run["tookMilliseconds"].as_f64().unwrap_or_default();
    let (at, id, outcome) = (word(&run["at"]), word(&run["id"]), word(&run["outcome"]));
    writeln!(text, "\n{at}  {took:.1} ms  {id}")?;
    for reason in run["reasons"].as_array().into_iter().flatten() {
        writeln!(text, "  because  {}", word(&reason["text"]))?;
    }
    for write in run["writes"].as_array().into_iter().flatten() {
        let (verb, kind) = (word(&write["verb"]), word(&write["kind"]));
        let part = match write["subresource"].as_str() {
            Some(part) => format!("/{part}"),
            None => String::new(),
        };
        writeln!(text, "  {verb:<8} {kind}{part} {}", word(&write["key"]))?;
        for change in write["changes"].as_array().into_iter().flatten() {
            let (before, after) = (value(&change["before"]), value(&change["after"]));
            writeln!(text, "             {}: {before} -> {after}", word(&change["field"]))?;
        }
    }
    match run["failed"].as_str() {
        Some(class) => writeln!(text, "  failed   ({class}) {outcome}"),
        None => writeln!(text, "  then     {outcome}"),
    }
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("?")
}

fn value(value: &Value) -> String {
    let shown = match value {
        Value::Null => "nothing".to_owned(),
        other => other.to_string(),
    };
    match shown.char_indices().nth(LONGEST_VALUE) {
        Some((end, _)) => format!("{}...", &shown[..end]),
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_story_reads_from_the_newest_run_back() {
        let run = json!({
            "id": "00ff", "at": "2026-01-01T00:00:00Z", "tookMilliseconds": 12.34, "outcome": "settled",
            "failed": null, "reasons": [{"because": "spec_changed", "text": "spec changed (generation 3)"}],
            "writes": [{"verb": "apply", "kind": "Deployment", "key": "a/shop",
                        "changes": [{"field": "/spec/replicas", "before": 3, "after": 5}]}],
        });
        let answer = json!({
            "controller": "webapp", "key": "a/shop", "nextInSeconds": 1.5,
            "nextBecause": [{"because": "retry", "text": "retry after 2 failures"}], "failuresInARow": 2,
            "resyncEverySeconds": 30.0, "story": {"runs": 7, "unchanged": 6, "last": run, "notable": [run]},
        });
        assert_eq!(
            people(&[answer]),
            "a/shop (controller webapp)\nnext run: in 1.5 s, because: retry after 2 failures\n\
             runs: 7, of which 6 changed nothing\nfailures in a row: 2\n\n2026-01-01T00:00:00Z  12.3 ms  00ff\n  \
             because  spec changed (generation 3)\n  apply    Deployment a/shop\n             \
             /spec/replicas: 3 -> 5\n  then     settled\n"
        );
    }
}
