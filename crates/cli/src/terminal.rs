//! What people read: errors, hints and notes on standard error, in colour only on a terminal.

use std::io::{IsTerminal, Write};

/// A kind of line for people.
#[derive(Clone, Copy)]
pub enum Line {
    Error,
    Hint,
    Note,
}

/// Prints a line for people. That nobody reads standard error is no reason to fail.
pub fn tell(line: Line, text: &str) {
    let (word, colour) = match line {
        Line::Error => ("error", "31"),
        Line::Hint => ("hint", "36"),
        Line::Note => ("note", "2"),
    };
    let mut stream = std::io::stderr().lock();
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) || !stream.is_terminal();
    let _ = if plain {
        writeln!(stream, "{word}: {text}")
    } else {
        writeln!(stream, "\x1b[1;{colour}m{word}:\x1b[0m {text}")
    };
}

/// Prints a line of progress for people.
pub fn progress(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{text}");
}

/// Prints a line that scripts read, at once.
pub fn say(text: &str) -> std::io::Result<()> {
    let mut stream = std::io::stdout().lock();
    writeln!(stream, "{text}")?;
    stream.flush()
}

/// Sends what the server logs to standard error: warnings, or what STEAD_LOG asks for.
pub fn start_logging() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("STEAD_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stderr().is_terminal();
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(colours)
        .try_init();
}
