//! `cargo xtask conformance`: Kubernetes' own end-to-end tests against the embedded cluster.
//!
//! A judge that nobody here wrote. The names that must pass are kept in `xtask/data/conformance.txt`; a name that
//! is known not to pass stands in `xtask/data/conformance-open.txt` with its reason, and nowhere else. A name that
//! fails without a reason there fails the chore.

mod cluster;
mod judge;
mod lists;
mod publish;
mod report;

use crate::kubernetes;
use anyhow::{Context, Result, bail};
use clap::ValueEnum;
use lists::{List, Test};
use report::Verdict;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  cargo xtask conformance                      lists A and B
  cargo xtask conformance --list a ConfigMap   the tests of list A whose name holds `ConfigMap`
  cargo xtask conformance --publish            lists A and B, and their table into docs/conformance.md")]
pub struct Options {
    /// Only tests whose name holds this text
    focus: Option<String>,
    /// Which lists: A needs no pod to run, B needs nodes but no container, `rest` needs programs
    #[arg(long, value_enum, value_delimiter = ',', default_values = ["a", "b"])]
    list: Vec<List>,
    /// Leave out the tests that wait for minutes by design
    #[arg(long)]
    quick: bool,
    /// Tests at the same time; those marked [Serial] always run alone
    #[arg(long, default_value_t = 4)]
    procs: usize,
    /// What runs the pods
    #[arg(long, value_enum, default_value_t = Runtime::Hollow)]
    runtime: Runtime,
    /// Judge this program instead of building one
    #[arg(long)]
    program: Option<PathBuf>,
    /// Judge the cluster of this kubeconfig instead of starting one
    #[arg(long, conflicts_with = "program")]
    kubeconfig: Option<PathBuf>,
    /// Take the verdicts from ginkgo's JSON reports of earlier runs instead of running anything
    #[arg(long, value_name = "FILE")]
    report: Vec<PathBuf>,
    /// Write the results into docs/conformance.md; needs whole lists
    #[arg(long, conflicts_with_all = ["focus", "quick"])]
    publish: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    Process,
    Hollow,
}

pub fn run(options: Options) -> Result<()> {
    let all = lists::read()?;
    let mut tests = judge::known(&all, &options.list)?;
    tests.retain(|test| options.list.contains(&test.list));
    if let Some(focus) = &options.focus {
        tests.retain(|test| test.name.contains(focus));
    }
    if options.quick {
        tests.retain(|test| test.pace == lists::Pace::Brisk);
    }
    if tests.is_empty() {
        bail!("no test of these lists has such a name");
    }
    let results = match options.report.as_slice() {
        [] => run_tests(&options, &tests)?,
        reports => read_reports(reports, &tests)?,
    };
    print!("{}", report::by_group(&results));
    print!("{}", report::not_passed(&results));
    if options.publish {
        publish::write(&options.list, &results)?;
    }
    let broken = results.iter().filter(|result| result.is_broken()).count();
    match broken {
        0 => Ok(()),
        broken => bail!(
            "{broken} of {} tests did not pass and have no known reason",
            results.len()
        ),
    }
}

/// The bounded part that `cargo xtask test` runs: list A without the tests that wait for minutes by design.
pub fn run_quick_part() -> Result<()> {
    run(Options {
        focus: None,
        list: vec![List::A],
        quick: true,
        procs: 4,
        runtime: Runtime::Hollow,
        program: None,
        kubeconfig: None,
        report: Vec::new(),
        publish: false,
    })
}

fn run_tests(options: &Options, tests: &[Test]) -> Result<Vec<report::Outcome>> {
    let judge = judge::Judge::find()?;
    let folder = cluster::folder()?;
    let started;
    let kubeconfig = match &options.kubeconfig {
        Some(kubeconfig) => std::path::absolute(kubeconfig)?,
        None => {
            started = cluster::start(options.program.clone(), options.runtime, &folder)?;
            started.kubeconfig.clone()
        }
    };
    let (serial, parallel): (Vec<&Test>, Vec<&Test>) = tests.iter().partition(|test| test.is_serial());
    let mut outcomes = Vec::new();
    for (name, procs, tests) in [("parallel", options.procs, parallel), ("serial", 1, serial)] {
        if tests.is_empty() {
            continue;
        }
        let began = Instant::now();
        let log = folder.join(format!("{name}.log"));
        eprintln!(
            "{} tests, {procs} at a time; they tell of themselves in {}",
            tests.len(),
            log.display()
        );
        let ran = judge.run(&tests, procs, &kubeconfig, &folder.join(name), &log)?;
        eprintln!("{} s", began.elapsed().as_secs());
        outcomes.extend(tests.into_iter().map(|test| outcome(test, &ran)));
    }
    Ok(outcomes)
}

/// What the reports of earlier runs say of these tests; a later report has the last word.
fn read_reports(reports: &[PathBuf], tests: &[Test]) -> Result<Vec<report::Outcome>> {
    let mut verdicts = BTreeMap::new();
    for path in reports {
        let file = std::fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
        verdicts.extend(report::read(file)?);
    }
    Ok(tests.iter().map(|test| outcome(test, &verdicts)).collect())
}

fn outcome(test: &Test, verdicts: &BTreeMap<String, Verdict>) -> report::Outcome {
    report::Outcome {
        test: test.clone(),
        verdict: verdicts.get(&test.name).cloned().unwrap_or(Verdict::NotRun),
    }
}

/// Whether the upstream tests are here, built now if they can be.
pub fn ensure() -> Result<()> {
    for name in ["e2e.test", "ginkgo", "kubectl"] {
        kubernetes::ensure(name)?;
    }
    Ok(())
}
