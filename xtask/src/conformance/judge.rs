//! The upstream test binary, run through ginkgo.

use super::lists::{List, Lists, Test};
use super::report::{self, Verdict};
use crate::kubernetes;
use anyhow::{Context, Result, bail};
use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Longer than all lists together take; a run that is stuck ends.
const LIMIT: &str = "3h";

/// The programs of upstream.
pub struct Judge {
    ginkgo: PathBuf,
    tests: PathBuf,
    kubectl: PathBuf,
}

impl Judge {
    pub fn find() -> Result<Judge> {
        Ok(Judge {
            ginkgo: kubernetes::ensure("ginkgo")?,
            tests: kubernetes::ensure("e2e.test")?,
            kubectl: kubernetes::ensure("kubectl")?,
        })
    }

    /// Runs these tests and says how each ended.
    pub fn run(
        &self,
        tests: &[&Test],
        procs: usize,
        kubeconfig: &Path,
        reports: &Path,
        log: &Path,
    ) -> Result<BTreeMap<String, Verdict>> {
        std::fs::create_dir_all(reports).with_context(|| format!("making {}", reports.display()))?;
        let report = reports.join("report.json");
        // An old report must not speak for a run that ended before it wrote one.
        let _ = std::fs::remove_file(&report);
        let out = File::create(log).with_context(|| format!("making {}", log.display()))?;
        let mut command = Command::new(&self.ginkgo);
        command
            .args(["--no-color", "-v", "--timeout", LIMIT, "--json-report", "report.json"])
            .arg(format!("--procs={procs}"))
            .arg("--output-dir")
            .arg(reports)
            .arg(format!("--focus={}", focus(tests)))
            .arg(&self.tests)
            .arg("--")
            .args([
                "--provider=skeleton",
                "--allowed-not-ready-nodes=-1",
                "--minStartupPods=-1",
                "--num-nodes=2",
            ])
            .args(["--disable-log-dump", "--dump-logs-on-failure=false"])
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--kubectl-path={}", self.kubectl.display()))
            .arg(format!("--report-dir={}", reports.display()))
            .stdout(out.try_clone()?)
            .stderr(out);
        let status = command.status().context("running ginkgo")?;
        let Ok(file) = File::open(&report) else {
            bail!("ginkgo ended with {status} and no report; see {}", log.display());
        };
        report::read(file)
    }
}

/// The tests of the lists, and every other conformance test of upstream when those are wanted too.
pub fn known(lists: &Lists, wanted: &[List]) -> Result<Vec<Test>> {
    let mut tests = lists.tests.clone();
    if wanted.contains(&List::Rest) {
        let listed = Command::new(kubernetes::ensure("e2e.test")?)
            .arg("--list-tests")
            .output()?;
        for line in String::from_utf8_lossy(&listed.stdout).lines() {
            // `path/of/file.go:12: [sig-apps] Name [Conformance]`
            let name = line.split_once(": ").map_or(line, |(_, name)| name).trim();
            let conformance = name.starts_with("[sig-") && name.contains("[Conformance]");
            if conformance && !lists.tests.iter().any(|test| test.name == name) {
                tests.push(lists.of_the_rest(name));
            }
        }
    }
    Ok(tests)
}

/// A regular expression of exactly these names. Ginkgo puts the name of the suite before them.
fn focus(tests: &[&Test]) -> String {
    let names: Vec<String> = tests.iter().map(|test| escape(&test.name)).collect();
    format!("({})$", names.join("|"))
}

fn escape(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len() * 2);
    for letter in name.chars() {
        if r"\.+*?()|[]{}^$".contains(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_signs_of_a_regular_expression_lose_their_meaning() {
        assert_eq!(escape("a [b] (c).d/e"), r"a \[b\] \(c\)\.d/e");
    }
}
