//! Which upstream tests there are for us, and what each needs.

use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use std::collections::BTreeMap;

const LISTS: &str = "xtask/data/conformance.txt";
const OPEN: &str = "xtask/data/conformance-open.txt";

/// What a test needs of the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum List {
    /// Nodes that exist; no pod has to run.
    A,
    /// Nodes that mark pods Running and complete their deletion.
    B,
    /// Programs in containers.
    Rest,
}

/// How long a test takes on a cluster that does everything at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    Brisk,
    /// It waits for minutes by design: for a schedule, or to see that nothing happens.
    Patient,
}

/// One upstream test.
#[derive(Debug, Clone)]
pub struct Test {
    pub name: String,
    pub list: List,
    pub pace: Pace,
    /// Why it is known not to pass.
    pub open: Option<String>,
}

/// Everything that is on the lists, and what is open of it.
#[derive(Debug, Default)]
pub struct Lists {
    pub tests: Vec<Test>,
    open: BTreeMap<String, String>,
}

impl Test {
    /// Whether it must not share the cluster with another test.
    pub fn is_serial(&self) -> bool {
        self.name.contains("[Serial]")
    }

    /// The group in which it is counted: its `[sig-...]`.
    pub fn group(&self) -> &str {
        let name = self.name.trim_start_matches('[');
        name.split(']').next().unwrap_or(name)
    }
}

impl List {
    /// How people call it.
    pub fn title(self) -> &'static str {
        match self {
            List::A => "A",
            List::B => "B",
            List::Rest => "the rest",
        }
    }
}

impl Lists {
    /// A conformance test that is on neither list.
    pub fn of_the_rest(&self, name: &str) -> Test {
        self.test(name, List::Rest)
    }

    fn test(&self, name: &str, list: List) -> Test {
        // The upstream mark, and the CronJob tests, which wait for the next minutes of the clock.
        let patient = name.contains("[Slow]") || (name.contains("CronJob should") && !name.contains("API operations"));
        Test {
            name: name.to_string(),
            list,
            pace: if patient { Pace::Patient } else { Pace::Brisk },
            open: self.open.get(name).cloned(),
        }
    }
}

/// Reads both files.
pub fn read() -> Result<Lists> {
    let lists = std::fs::read_to_string(LISTS).with_context(|| format!("reading {LISTS}"))?;
    let open = std::fs::read_to_string(OPEN).with_context(|| format!("reading {OPEN}"))?;
    parse(&lists, &open)
}

fn parse(lists: &str, open: &str) -> Result<Lists> {
    let mut known = Lists::default();
    for line in open.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((name, reason)) = line.split_once("\t") else {
            bail!("{OPEN}: a name, a tab and its reason: {line}");
        };
        known.open.insert(name.to_string(), reason.trim().to_string());
    }
    for line in lists.lines().filter(|line| !line.is_empty()) {
        let (list, name) = match line.split_at_checked(2) {
            Some(("A ", name)) => (List::A, name),
            Some(("B ", name)) => (List::B, name),
            _ => bail!("{LISTS}: `A` or `B`, a space and a name: {line}"),
        };
        let test = known.test(name, list);
        known.tests.push(test);
    }
    Ok(known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_knows_its_list_its_group_its_pace_and_why_it_is_open() {
        let lists =
            "A [sig-apps] CronJob should replace jobs [Conformance]\nB [sig-node] Pods [Serial] should be updated\n";
        let open = "# why\n[sig-node] Pods [Serial] should be updated\tno such thing\n";
        let known = parse(lists, open).unwrap();
        let [cron, pods] = known.tests.as_slice() else {
            panic!("two tests: {known:?}");
        };
        assert_eq!(
            (cron.list, cron.group(), cron.pace),
            (List::A, "sig-apps", Pace::Patient)
        );
        assert_eq!((cron.is_serial(), &cron.open), (false, &None));
        assert_eq!((pods.list, pods.group(), pods.pace), (List::B, "sig-node", Pace::Brisk));
        assert_eq!((pods.is_serial(), pods.open.as_deref()), (true, Some("no such thing")));
    }

    #[test]
    fn a_line_without_its_list_is_refused() {
        assert!(parse("[sig-node] Pods", "").is_err());
        assert!(parse("A [sig-node] Pods", "a name without a reason").is_err());
    }
}
