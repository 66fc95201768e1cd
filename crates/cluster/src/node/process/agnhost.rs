//! The sub-commands of the `agnhost` test image that small tests use.
//!
//! Kubernetes' own tests run this image; those that need no more than a process that waits, prints or serves its
//! host name run on Stead's nodes without a container image.

use super::{hello, hold};
use std::io::{self, Write};
use std::process::ExitCode;

/// Runs a sub-command.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some((command, rest)) = arguments.split_first() else {
        return hold::pause();
    };
    match command.as_str() {
        "pause" => hold::pause(),
        "serve-hostname" | "netexec" => hello::main(),
        "echo" => say(&rest.join(" ")),
        "env" => {
            for (name, value) in std::env::vars() {
                say(&format!("{name}={value}"));
            }
            ExitCode::SUCCESS
        }
        "mounttest" => mounttest(rest),
        other => {
            let _ = writeln!(io::stderr(), "agnhost {other}: this sub-command is not built in");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prints what the flags ask about files, in the words that the tests look for.
fn mounttest(flags: &[String]) -> ExitCode {
    for flag in flags {
        let Some((name, path)) = flag.trim_start_matches('-').split_once('=') else {
            continue;
        };
        match name {
            "file_content" => match std::fs::read_to_string(path) {
                Ok(text) => say(&format!("content of file \"{path}\": {text}")),
                Err(error) => say(&format!("error reading file content for \"{path}\": {error}")),
            },
            "file_mode" => {
                use std::os::unix::fs::PermissionsExt;
                match std::fs::symlink_metadata(path).or_else(|_| std::fs::metadata(path)) {
                    Ok(found) => say(&format!(
                        "mode of file \"{path}\": {:o}",
                        found.permissions().mode() & 0o777
                    )),
                    Err(error) => say(&format!("error: {error}")),
                }
            }
            _ => ExitCode::SUCCESS,
        };
    }
    ExitCode::SUCCESS
}
