//! Every chore of the repository by name: `cargo xtask --help`.

mod bench;
mod capabilities;
mod conformance;
mod definitions;
mod e2e;
mod image;
mod kube_tests;
mod kubernetes;
mod schemas;
mod test;
mod tidy;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Every chore of the repository by name")]
struct Args {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check the rules of the tree: file length, dependency direction, purity, the first line of each module
    Tidy,
    /// Check that our custom resources accept and keep everything that the last release did
    Definitions,
    /// Run every check and test, with all set-up they need
    Test,
    /// Build the real control plane and its tools from the Go module registry, and print where they are
    Kubernetes {
        /// Which programs (default: all of Kubernetes and etcd)
        names: Vec<String>,
    },
    /// Rewrite the API server's data from Kubernetes' published API description (needs Go)
    Schemas,
    /// Send generated requests to the embedded and the real API server, and tell every difference
    Differential {
        /// Passed on: --seed S --sequences N [--from I] [--parallel P] [--shrink N] [--keep DIR] [--replay FILE]
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Prepare the clients of other projects, in Go, Python and Rust, which the stories run
    Clients,
    /// Run the stories on the embedded cluster or on the real control plane
    E2e(e2e::Options),
    /// Run Kubernetes' own end-to-end tests against the embedded cluster
    Conformance(conformance::Options),
    /// Measure against the real thing, and print a table
    #[command(subcommand)]
    Bench(bench::Bench),
}

fn main() -> ExitCode {
    let arguments = Args::parse();
    if let Err(error) = std::env::set_current_dir(tidy::root()) {
        eprintln!("error: cannot enter the workspace: {error}");
        return ExitCode::FAILURE;
    }
    let result = match arguments.chore {
        Chore::Tidy => tidy::run(),
        Chore::Definitions => definitions::run(),
        Chore::Test => test::run(),
        Chore::Kubernetes { names } => kubernetes::run(&names),
        Chore::Schemas => schemas::run(),
        Chore::Differential { options } => test::differential(&options),
        Chore::Clients => test::clients(),
        Chore::E2e(options) => e2e::run(&options),
        Chore::Conformance(options) => conformance::run(options),
        Chore::Bench(bench) => bench::run(bench),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
