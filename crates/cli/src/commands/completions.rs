//! `stead completions SHELL`: what a shell needs to complete our commands.

use super::Cli;
use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// Print a completion script for a shell
#[derive(Args)]
#[command(after_help = "Examples:
  source <(stead completions bash)
  stead completions fish > ~/.config/fish/completions/stead.fish")]
pub struct Arguments {
    /// The shell to complete in
    shell: Shell,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Cli::command(), "stead", &mut script);
    crate::terminal::say(String::from_utf8_lossy(&script).trim_end())?;
    Ok(())
}
