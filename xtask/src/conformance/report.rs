//! What ginkgo reports, and what we say of it.

use super::lists::{List, Test};
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::io::{BufReader, Read};

/// The longest part of a failure's message that is worth a line.
const LONGEST_WHY: usize = 300;

/// How one test ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    Passed {
        seconds: u64,
    },
    Failed {
        why: String,
    },
    /// The test itself said that it does not apply to this cluster.
    NotApplicable {
        why: String,
    },
    /// The run ended before it, or upstream has no such test.
    NotRun,
}

/// A test and how it ended.
#[derive(Debug, Clone)]
pub struct Outcome {
    pub test: Test,
    pub verdict: Verdict,
}

impl Outcome {
    /// Whether it should have passed and did not.
    pub fn is_broken(&self) -> bool {
        let passed = matches!(self.verdict, Verdict::Passed { .. } | Verdict::NotApplicable { .. });
        !passed && self.test.open.is_none()
    }
}

/// Counts of one group.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub passed: usize,
    pub failed: usize,
    pub not_applicable: usize,
}

impl Count {
    fn add(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Passed { .. } => self.passed += 1,
            Verdict::Failed { .. } | Verdict::NotRun => self.failed += 1,
            Verdict::NotApplicable { .. } => self.not_applicable += 1,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    #[serde(default)]
    spec_reports: Vec<Spec>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    #[serde(default)]
    leaf_node_text: String,
    #[serde(default)]
    leaf_node_type: String,
    state: String,
    #[serde(default)]
    run_time: u64,
    #[serde(default)]
    failure: Option<Failure>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

/// Every test of a JSON report that was meant to run, by name.
pub fn read(report: impl Read) -> Result<BTreeMap<String, Verdict>> {
    let suites: Vec<Suite> = serde_json::from_reader(BufReader::new(report)).context("reading ginkgo's report")?;
    let mut verdicts = BTreeMap::new();
    for spec in suites.into_iter().flat_map(|suite| suite.spec_reports) {
        if spec.leaf_node_type != "It" {
            continue;
        }
        let mut name = spec.container_hierarchy_texts.unwrap_or_default();
        name.push(spec.leaf_node_text);
        let why = spec
            .failure
            .map(|failure| shorten(&failure.message))
            .unwrap_or_default();
        let verdict = match spec.state.as_str() {
            "passed" => Verdict::Passed {
                seconds: spec.run_time / 1_000_000_000,
            },
            // Not chosen for this run.
            "skipped" | "pending" if why.is_empty() => continue,
            "skipped" => Verdict::NotApplicable { why },
            state if why.is_empty() => Verdict::Failed { why: state.to_string() },
            _ => Verdict::Failed { why },
        };
        verdicts.insert(name.join(" "), verdict);
    }
    Ok(verdicts)
}

fn shorten(message: &str) -> String {
    let words: Vec<&str> = message.split_whitespace().collect();
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(LONGEST_WHY) {
        line.truncate(end);
        line.push_str(" ...");
    }
    line
}

/// Counts by list and group.
pub fn counts(outcomes: &[Outcome]) -> BTreeMap<(List, String), Count> {
    let mut counts: BTreeMap<(List, String), Count> = BTreeMap::new();
    for outcome in outcomes {
        let key = (outcome.test.list, outcome.test.group().to_string());
        counts.entry(key).or_default().add(&outcome.verdict);
    }
    counts
}

/// The table on the terminal.
pub fn by_group(outcomes: &[Outcome]) -> String {
    let mut text = format!(
        "{:<9} {:<22} {:>6} {:>6} {:>14}\n",
        "list", "group", "passed", "failed", "not applicable"
    );
    let mut total = Count::default();
    for ((list, group), count) in counts(outcomes) {
        row(&mut text, list.title(), &group, count);
        total.passed += count.passed;
        total.failed += count.failed;
        total.not_applicable += count.not_applicable;
    }
    row(&mut text, "", "all", total);
    text
}

fn row(text: &mut String, list: &str, group: &str, count: Count) {
    let Count {
        passed,
        failed,
        not_applicable,
    } = count;
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{list:<9} {group:<22} {passed:>6} {failed:>6} {not_applicable:>14}"
    );
}

/// A line for each test that did not pass, and for each that passes although it is known not to.
pub fn not_passed(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    for Outcome { test, verdict } in outcomes {
        let name = &test.name;
        let _ = match (verdict, &test.open) {
            (Verdict::Passed { .. }, None) => Ok(()),
            (Verdict::Passed { .. }, Some(_)) => writeln!(text, "passes by now, take it off the open ones: {name}"),
            (Verdict::NotApplicable { why }, _) => writeln!(text, "not applicable: {name}: {why}"),
            (Verdict::Failed { why }, None) => writeln!(text, "FAILED: {name}: {why}"),
            (Verdict::Failed { .. }, Some(reason)) => writeln!(text, "open: {name}: {reason}"),
            (Verdict::NotRun, _) => writeln!(text, "NOT RUN: {name}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_tells_passed_failed_and_not_applicable_apart_from_not_chosen() {
        let spec = |name: &str, state: &str, why: &str| {
            serde_json::json!({
                "ContainerHierarchyTexts": ["[sig-apps] Job"], "LeafNodeText": name, "LeafNodeType": "It",
                "State": state, "RunTime": 2_500_000_000u64, "Failure": {"Message": why},
            })
        };
        let report = serde_json::json!([{"SpecReports": [
            spec("runs", "passed", ""),
            spec("breaks", "failed", "expected\n  one"),
            spec("needs a cloud", "skipped", "no cloud"),
            spec("was not asked for", "skipped", ""),
            {"LeafNodeType": "BeforeSuite", "State": "passed"},
        ]}]);
        let verdicts = read(report.to_string().as_bytes()).unwrap();
        let of = |name: &str| verdicts.get(&format!("[sig-apps] Job {name}")).cloned();
        assert_eq!(of("runs"), Some(Verdict::Passed { seconds: 2 }));
        let why = "expected one".to_string();
        assert_eq!(of("breaks"), Some(Verdict::Failed { why }));
        let why = "no cloud".to_string();
        assert_eq!(of("needs a cloud"), Some(Verdict::NotApplicable { why }));
        assert_eq!(verdicts.len(), 3);
    }
}
