//! The table in docs/conformance.md.
//!
//! Only whole lists are published, between marks of their own, so that a list that was not run keeps what its last
//! run said.

use super::lists::List;
use super::report::{self, Outcome, Verdict};
use anyhow::{Context, Result};
use std::fmt::Write;

const PAGE: &str = "docs/conformance.md";

/// Puts the results of these lists in the place of the old ones.
pub fn write(lists: &[List], outcomes: &[Outcome]) -> Result<()> {
    let mut page = std::fs::read_to_string(PAGE).with_context(|| format!("reading {PAGE}"))?;
    for list in lists {
        let of_list: Vec<Outcome> = outcomes.iter().filter(|one| one.test.list == *list).cloned().collect();
        page = replaced(&page, *list, &section(&of_list))
            .with_context(|| format!("{PAGE} has no marks for list {}", list.title()))?;
    }
    std::fs::write(PAGE, page).with_context(|| format!("writing {PAGE}"))
}

/// The page with this text between the marks of the list.
fn replaced(page: &str, list: List, section: &str) -> Option<String> {
    let (begin, end) = (
        format!("<!-- list {} -->\n", list.title()),
        format!("<!-- end of list {} -->", list.title()),
    );
    let (before, rest) = page.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{section}\n{end}{after}"))
}

fn section(outcomes: &[Outcome]) -> String {
    let mut text = String::from("| Group | Passed | Failed | Not applicable |\n|---|---|---|---|\n");
    let mut all = report::Count::default();
    for ((_, group), count) in report::counts(outcomes) {
        row(&mut text, &group, count);
        all.passed += count.passed;
        all.failed += count.failed;
        all.not_applicable += count.not_applicable;
    }
    row(&mut text, "all", all);
    let others: Vec<String> = outcomes.iter().filter_map(line).collect();
    if !others.is_empty() {
        let _ = write!(text, "\n| Does not pass | Why |\n|---|---|\n{}", others.concat());
    }
    text
}

fn row(text: &mut String, group: &str, count: report::Count) {
    let report::Count {
        passed,
        failed,
        not_applicable,
    } = count;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {group} | {passed} | {failed} | {not_applicable} |");
}

/// The line of a test that did not pass.
fn line(outcome: &Outcome) -> Option<String> {
    let reason = || outcome.test.open.clone();
    let why = match &outcome.verdict {
        Verdict::Passed { .. } => return None,
        Verdict::Failed { why } => reason().unwrap_or_else(|| format!("failed: {why}")),
        Verdict::NotApplicable { why } => format!("not applicable: {why}"),
        Verdict::NotRun => reason().unwrap_or_else(|| "did not run".to_string()),
    };
    let cell = |text: &str| text.replace('|', "\\|");
    Some(format!("| {} | {} |\n", cell(&outcome.test.name), cell(&why)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_section_of_the_list_changes() {
        let page =
            "# Title\n<!-- list A -->\nold\n<!-- end of list A -->\n<!-- list B -->\nkept\n<!-- end of list B -->\n";
        let page = replaced(page, List::A, "new").unwrap();
        assert_eq!(
            page,
            "# Title\n<!-- list A -->\n\nnew\n<!-- end of list A -->\n<!-- list B -->\nkept\n<!-- end of list B -->\n"
        );
    }
}
