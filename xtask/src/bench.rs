//! `cargo xtask bench api`: our API server and the real one, the same work, the same client, side by side.
//! `cargo xtask bench framework`: the framework's hot parts alone.
//!
//! It prints a table and asserts nothing: a timed test fails on a busy machine, a table of ratios is still read
//! with sense. Processor time comes first, because it is what noise disturbs least.

mod http;
mod rules;
mod servers;
mod table;
mod work;

use anyhow::{Result, bail};
use clap::Subcommand;
use std::path::PathBuf;
use std::process::Command;

/// What can be measured.
#[derive(Subcommand)]
pub enum Bench {
    /// The API server against kube-apiserver with etcd, both durable
    Api(Options),
    /// The framework's queue, cache and reconciles, each for itself
    Framework,
}

#[derive(clap::Args)]
pub struct Options {
    /// Measure ours alone
    #[arg(long)]
    alone: bool,
    /// Measure this program instead of building one for release
    #[arg(long)]
    program: Option<PathBuf>,
    /// Objects that are created and read one by one
    #[arg(long, default_value_t = 4_000)]
    objects: usize,
    /// Pods in the list
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Seconds of updates with a hundred watchers
    #[arg(long, default_value_t = 10)]
    seconds: usize,
    /// Connections that work at the same time
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Also fill our store with so many objects, and measure a write at each power of ten on the way
    #[arg(long, default_value_t = 100_000)]
    fill: usize,
}

pub fn run(bench: Bench) -> Result<()> {
    let options = match bench {
        Bench::Framework => return framework(),
        Bench::Api(options) => options,
    };
    if cfg!(debug_assertions) {
        return run_optimised();
    }
    let plan = work::Plan {
        objects: options.objects,
        pods: options.pods,
        seconds: options.seconds,
        connections: options.connections,
    };
    let ours = servers::stead(options.program)?;
    eprintln!("measuring stead");
    let mut our_results = work::measure(&ours, &plan)?;
    our_results.filled = work::fill(&ours, &plan, options.fill)?;
    drop(ours);
    let theirs = if options.alone {
        None
    } else {
        eprintln!("measuring kube-apiserver and etcd");
        let theirs = servers::kubernetes()?;
        Some(work::measure(&theirs, &plan)?)
    };
    print!("{}", table::render(&plan, &our_results, theirs.as_ref()));
    Ok(())
}

/// The framework's own measurements: they need nothing but the crate.
fn framework() -> Result<()> {
    let status = Command::new("cargo")
        .args(["bench", "--quiet", "-p", "stead", "--bench", "framework"])
        .status()?;
    match status.success() {
        true => Ok(()),
        false => bail!("the benchmark ended with {status}"),
    }
}

/// Runs this same command optimised: a client that is slow itself measures itself.
fn run_optimised() -> Result<()> {
    let status = Command::new("cargo")
        .args(["run", "--quiet", "--release", "-p", "xtask", "--"])
        .args(std::env::args().skip(1))
        .status()?;
    match status.success() {
        true => Ok(()),
        false => bail!("the benchmark ended with {status}"),
    }
}
