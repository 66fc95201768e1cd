//! The commands, one a module, and how their outcome becomes an exit code.

mod completions;
mod connection;
mod down;
mod explain;
mod export;
mod image;
mod manifests;
mod node;
mod operator;
mod output;
mod planning;
mod rollback;
mod status;
mod up;

use crate::failure;
use crate::terminal::{Line, tell};
use clap::error::ErrorKind;
use clap::{Parser, Subcommand};
use std::ffi::OsString;
use std::process::ExitCode;

/// Something failed; a wrong command line is another thing.
const FAILED: u8 = 1;
const USAGE: u8 = 2;

/// A Kubernetes cluster in one process, and operators for it.
#[derive(Parser)]
#[command(
    name = "stead",
    version,
    about,
    propagate_version = true,
    disable_help_subcommand = true
)]
#[command(after_help = "Examples:
  stead up                    a cluster in $XDG_DATA_HOME/stead, until Ctrl-C
  stead up --ephemeral        one that is gone when it ends
  stead up --kubeconfig ./k & kubectl --kubeconfig ./k get nodes")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Up(Box<up::Arguments>),
    Down(down::Arguments),
    Operator(operator::Arguments),
    Manifests(manifests::Arguments),
    Node(node::Arguments),
    Image(image::Arguments),
    Status(status::Arguments),
    Plan(planning::Arguments),
    Explain(explain::Arguments),
    Export(export::Arguments),
    Rollback(rollback::Arguments),
    Completions(completions::Arguments),
}

/// Runs the command that the arguments name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let cli = match Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    let outcome = match cli.command {
        Command::Up(arguments) => up::run(*arguments),
        Command::Down(arguments) => down::run(&arguments),
        Command::Operator(arguments) => operator::run(&arguments),
        Command::Manifests(arguments) => manifests::run(&arguments),
        Command::Node(arguments) => node::run(arguments),
        Command::Image(arguments) => image::run(arguments),
        Command::Status(arguments) => status::run(&arguments),
        Command::Plan(arguments) => planning::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Export(arguments) => export::run(&arguments),
        Command::Rollback(arguments) => rollback::run(&arguments),
        Command::Completions(arguments) => completions::run(&arguments),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if failure::is_reader_gone(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let (text, hint) = failure::describe(&error);
            tell(Line::Error, &text);
            if let Some(hint) = hint {
                tell(Line::Hint, &hint);
            }
            ExitCode::from(match failure::is_misuse(&error) {
                true => USAGE,
                false => FAILED,
            })
        }
    }
}

/// Help and version are answers; everything else is a wrong command line.
fn refuse(error: &clap::Error) -> ExitCode {
    let shown = matches!(
        error.kind(),
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    );
    if shown {
        let _ = error.print();
        return match error.kind() {
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => ExitCode::from(USAGE),
            _ => ExitCode::SUCCESS,
        };
    }
    let text = error.render().to_string();
    let mut paragraphs = text.split("\n\n").map(|part| {
        let words: Vec<&str> = part.split_whitespace().collect();
        words.join(" ")
    });
    let what = paragraphs.next().unwrap_or_default();
    tell(Line::Error, what.strip_prefix("error: ").unwrap_or(&what));
    let tip = paragraphs.find_map(|part| part.strip_prefix("tip: ").map(str::to_string));
    tell(
        Line::Hint,
        tip.as_deref().unwrap_or("--help shows what is possible, with examples"),
    );
    ExitCode::from(USAGE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples_and_says_what_its_arguments_are() {
        let mut unseen = vec![(String::new(), Cli::command())];
        while let Some((above, command)) = unseen.pop() {
            let path = format!("{above}{} ", command.get_name());
            let help = command.clone().render_long_help().to_string();
            let examples = help.split("Examples:").nth(1).unwrap_or_default();
            assert!(
                examples.contains(&format!("\n  {}", path.trim_end())),
                "{path}--help has no example"
            );
            for argument in command.get_arguments() {
                assert!(
                    argument.get_help().is_some(),
                    "{path}--help does not describe {}",
                    argument.get_id()
                );
            }
            unseen.extend(command.get_subcommands().map(|below| (path.clone(), below.clone())));
        }
    }
}
