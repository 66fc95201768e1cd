//! `cargo xtask bench api`: our API server and the real one, the same work, the same client, side by side.
//! `cargo xtask bench engine`: the whole cluster and the real control plane: pods, from a Deployment to running.
//! `cargo xtask bench framework`: the framework's hot parts alone.
//!
//! It prints a table and asserts nothing: a timed test fails on a busy machine, a table of ratios is still read
//! with sense. Processor time comes first, because it is what noise disturbs least.

mod engine;
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
    /// Controllers, scheduler and nodes against kube-controller-manager and kube-scheduler
    Engine(engine::Options),
    /// The framework's queue, cache and reconciles, each for itself
    Framework,
}

/// What is measured, of any comparison with the real thing.
#[derive(clap::Args)]
struct Sides {
    /// Measure ours alone
    #[arg(long)]
    alone: bool,
    /// Measure this program instead of building one for release
    #[arg(long)]
    program: Option<PathBuf>,
}

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    sides: Sides,
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
    match bench {
        Bench::Framework => framework(),
        // Its client only waits: there is nothing to optimise.
        Bench::Engine(options) => engine::run(options),
        Bench::Api(_) if cfg!(debug_assertions) => run_optimised(),
        Bench::Api(options) => api(options),
    }
}

fn api(options: Options) -> Result<()> {
    let plan = work::Plan {
        objects: options.objects,
        pods: options.pods,
        seconds: options.seconds,
        connections: options.connections,
    };
    let program = servers::program(options.sides.program)?;
    let ours = servers::stead(&program, &["--parts", "api"])?;
    eprintln!("measuring stead");
    let mut our_results = work::measure(&ours, &plan)?;
    our_results.filled = work::fill(&ours, &plan, options.fill)?;
    drop(ours);
    let theirs = if options.sides.alone {
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
