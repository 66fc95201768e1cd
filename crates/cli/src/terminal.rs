//! What people read: errors, hints and notes on standard error, in colour only on a terminal.

use crate::failure::{Hint, ReaderGone};
use anyhow::{Context, Result};
use std::io::{ErrorKind, IsTerminal, Write};

/// A kind of line for people.
#[derive(Clone, Copy)]
pub enum Line {
    Error,
    Hint,
    Note,
}

/// How a stream is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    Colours,
    Plain,
}

/// What a colour stands for.
#[derive(Clone, Copy)]
pub enum Colour {
    Good,
    Waiting,
    Bad,
    Quiet,
}

impl Paint {
    /// For standard output.
    pub fn of_output() -> Self {
        Self::of(&std::io::stdout())
    }

    /// For standard error.
    pub fn of_errors() -> Self {
        Self::of(&std::io::stderr())
    }

    /// Colours on a terminal, unless the user wants none.
    fn of(stream: &impl IsTerminal) -> Self {
        let declined = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        match stream.is_terminal() && !declined {
            true => Paint::Colours,
            false => Paint::Plain,
        }
    }

    pub fn colour(self, colour: Colour, text: &str) -> String {
        let code = match colour {
            Colour::Good => "32",
            Colour::Waiting => "33",
            Colour::Bad => "31",
            Colour::Quiet => "2",
        };
        self.coded(code, text)
    }

    pub fn strong(self, text: &str) -> String {
        self.coded("1", text)
    }

    fn coded(self, code: &str, text: &str) -> String {
        match self {
            Paint::Colours => format!("\x1b[{code}m{text}\x1b[0m"),
            Paint::Plain => text.to_owned(),
        }
    }
}

/// Prints a line for people. That nobody reads standard error is no reason to fail.
pub fn tell(line: Line, text: &str) {
    let (word, code) = match line {
        Line::Error => ("error:", "1;31"),
        Line::Hint => ("hint:", "1;36"),
        Line::Note => ("note:", "1;2"),
    };
    let word = Paint::of_errors().coded(code, word);
    let _ = writeln!(std::io::stderr().lock(), "{word} {text}");
}

/// Prints a line of progress for people.
pub fn progress(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a line that scripts read, at once.
pub fn say(text: &str) -> Result<()> {
    write_line(&mut std::io::stdout().lock(), text)
}

fn write_line(stream: &mut impl Write, text: &str) -> Result<()> {
    match writeln!(stream, "{text}").and_then(|()| stream.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(ReaderGone.into()),
        other => other
            .context("cannot write to standard output")
            .hint("make room where it goes to, or send it elsewhere"),
    }
}

/// What is logged: what STEAD_LOG asks for, or lines of this level. The library that requests are sent with logs each one
/// that fails as an error, although it is tried again and whoever sent it tells what matters.
pub fn filter(level: &str) -> tracing_subscriber::EnvFilter {
    tracing_subscriber::EnvFilter::try_from_env("STEAD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(format!("{level},kube_client=off")))
}

/// Sends what the server logs to standard error: warnings, or what STEAD_LOG asks for.
pub fn start_logging() {
    let filter = filter("warn");
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(Paint::of_errors() == Paint::Colours)
        .try_init();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure;

    struct Broken(ErrorKind);

    impl Write for Broken {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn who_reads_no_further_is_told_from_a_full_disk() {
        let gone = write_line(&mut Broken(ErrorKind::BrokenPipe), "x").context("cannot say it");
        assert!(failure::is_reader_gone(&gone.expect_err("a closed pipe")));
        let full = write_line(&mut Broken(ErrorKind::StorageFull), "x").expect_err("a full disk");
        assert!(!failure::is_reader_gone(&full));
        let (text, hint) = failure::describe(&full);
        assert!(text.starts_with("cannot write to standard output: "), "{text}");
        assert!(hint.is_some());
    }
}
