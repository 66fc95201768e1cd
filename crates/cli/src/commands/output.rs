//! How commands that show something print it: for people, or for programs.

use crate::terminal::say;
use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::Serialize;

/// The form of what is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people
    #[default]
    Table,
    Json,
    Yaml,
}

impl Format {
    /// Prints a value for programs, or the lines that stand for it.
    pub fn print(self, value: &impl Serialize, lines: impl FnOnce() -> Vec<String>) -> Result<()> {
        let text = match self {
            Format::Table => lines().join("\n"),
            Format::Json => serde_json::to_string_pretty(value).context("cannot print it as JSON")?,
            Format::Yaml => serde_saphyr::to_string(value).context("cannot print it as YAML")?,
        };
        say(text.trim_end())?;
        Ok(())
    }
}
