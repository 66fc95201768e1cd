//! Every chore of the repository by name: `cargo xtask --help`.

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
    /// Check the rules of the tree: file length, dependency direction, purity, forbidden words
    Tidy,
}

fn main() -> ExitCode {
    let arguments = Args::parse();
    if let Err(error) = std::env::set_current_dir(tidy::root()) {
        eprintln!("error: cannot enter the workspace: {error}");
        return ExitCode::FAILURE;
    }
    let result = match arguments.chore {
        Chore::Tidy => tidy::run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
