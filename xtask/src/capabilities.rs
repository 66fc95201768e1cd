//! What docs/capabilities.md promises, held against the tests that ran.
//!
//! Every line of that document names the test that proves it. A name that no test has, or a test that did not run,
//! fails `cargo xtask test`: the document cannot say more than is shown.

use anyhow::{Context, Result, bail};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::process::{Command, ExitStatus, Stdio};

const DOCUMENT: &str = "docs/capabilities.md";

/// Tests by name, as their harness prints them.
#[derive(Debug, Default, PartialEq)]
pub struct Ran {
    passed: BTreeSet<String>,
    /// Those that passed only by saying what they lacked.
    skipped: BTreeSet<String>,
}

/// Where in the output of a test harness a line is.
#[derive(Debug, Default, PartialEq)]
enum Place {
    #[default]
    Outside,
    /// In what the tests that passed have printed.
    Successes { test: String },
}

/// Reads the output of test harnesses line by line.
#[derive(Default)]
struct Reader {
    ran: Ran,
    place: Place,
}

impl Reader {
    /// Takes a line in, and says whether people should see it.
    fn read(&mut self, line: &str) -> bool {
        if let Some(rest) = line.strip_prefix("test ")
            && let Some(name) = rest.strip_suffix(" ... ok")
        {
            let name = name.trim_end_matches(" - should panic");
            self.ran.passed.insert(name.to_string());
        }
        let headline = line
            .strip_prefix("---- ")
            .and_then(|rest| rest.strip_suffix(" stdout ----"));
        match (&mut self.place, line, headline) {
            (_, "successes:", _) => self.place = Place::Successes { test: String::new() },
            (_, "failures:", _) => self.place = Place::Outside,
            (_, line, _) if line.starts_with("test result:") => self.place = Place::Outside,
            (Place::Successes { test }, _, Some(name)) => *test = name.to_string(),
            (Place::Successes { test }, line, None) if line.starts_with("skipped: ") => {
                self.ran.skipped.insert(test.clone());
                return true;
            }
            _ => {}
        }
        self.place == Place::Outside
    }
}

/// Runs `cargo test` with these arguments; shows its output, and gives what ran.
pub fn cargo_test(arguments: &[&str]) -> Result<(ExitStatus, Ran)> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut child = Command::new(cargo)
        .args(arguments)
        .args(["--", "--show-output"])
        .stdout(Stdio::piped())
        .spawn()
        .context("running cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut reader = Reader::default();
    for line in BufReader::new(output).split(b'\n') {
        let line = line.context("reading the output of the tests")?;
        let line = String::from_utf8_lossy(&line);
        if reader.read(&line) {
            println!("{line}");
        }
    }
    let status = child.wait().context("waiting for cargo")?;
    Ok((status, reader.ran))
}

/// Fails for every promise whose test does not exist or did not run.
pub fn check(ran: &Ran) -> Result<()> {
    let text = std::fs::read_to_string(DOCUMENT).with_context(|| format!("reading {DOCUMENT}"))?;
    let broken = broken_promises(&text, ran);
    if broken.is_empty() {
        return Ok(());
    }
    for line in &broken {
        eprintln!("{line}");
    }
    bail!("{} promises of {DOCUMENT} are not proven", broken.len())
}

fn broken_promises(text: &str, ran: &Ran) -> Vec<String> {
    let mut broken = Vec::new();
    let mut promises = 0;
    for (number, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, promise, proof, _] = cells.as_slice() else {
            continue;
        };
        if promise.starts_with("---") || *promise == "What" {
            continue;
        }
        promises += 1;
        let place = format!("{DOCUMENT}:{}", number + 1);
        let names: Vec<&str> = proof.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            broken.push(format!("{place}: no test is named for: {promise}"));
        }
        for name in names {
            let is_it = |test: &&String| **test == name || test.ends_with(&format!("::{name}"));
            match (
                ran.passed.iter().any(|test| is_it(&test)),
                ran.skipped.iter().any(|test| is_it(&test)),
            ) {
                (true, false) => {}
                (true, true) => broken.push(format!("{place}: {name} was skipped")),
                (false, _) => broken.push(format!("{place}: {name} does not exist, did not run, or failed")),
            }
        }
    }
    if promises == 0 {
        broken.push(format!("{DOCUMENT}: it promises nothing"));
    }
    broken
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "running 3 tests\ntest a::works ... ok\ntest a::skips ... ok\ntest a::fails ... FAILED\n\n\
        successes:\n\n---- a::skips stdout ----\nskipped: no kubectl\n\n---- a::works stdout ----\ntest a::liar ... ok? no\n\n\
        successes:\n    a::skips\n    a::works\n\nfailures:\n\n---- a::fails stdout ----\noh no\n\ntest result: FAILED. 2 passed\n";

    #[test]
    fn promises_are_held_against_what_ran() {
        let mut reader = Reader::default();
        let shown: Vec<&str> = OUTPUT.lines().filter(|line| reader.read(line)).collect();
        assert!(shown.contains(&"skipped: no kubectl") && shown.contains(&"oh no"));
        let text =
            "| What | Test |\n|---|---|\n| a | `works` |\n| b | `a::skips` |\n| c | `fails` |\n| d | nothing |\n";
        let broken = broken_promises(text, &reader.ran);
        assert_eq!(
            broken,
            [
                "docs/capabilities.md:4: a::skips was skipped",
                "docs/capabilities.md:5: fails does not exist, did not run, or failed",
                "docs/capabilities.md:6: no test is named for: d",
            ]
        );
        assert_eq!(broken_promises("", &Ran::default()).len(), 1);
    }
}
