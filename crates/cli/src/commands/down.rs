//! `stead down`: clears away what clusters that have ended left behind.
//!
//! A cluster that ends by itself leaves nothing but its data. One that was killed may leave an ephemeral
//! directory, which holds a kubeconfig with credentials.

use crate::failure::Hint;
use crate::places;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use stead_cluster::node::process::end_all;

/// Clear away what ended clusters left behind
#[derive(Args)]
#[command(after_help = "Examples:
  stead down                    after every ended cluster of yours
  stead down --data ./cluster   after the one in that directory")]
pub struct Arguments {
    /// Only what the cluster in this directory left; its data stays
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

/// Whether a process still runs the cluster of a directory.
#[derive(Debug, PartialEq, Eq)]
enum Life {
    Running,
    Ended,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    if let Some(data) = &arguments.data {
        if !data.is_dir() {
            return Err(anyhow!("there is no cluster in {}", data.display())).hint("check the directory");
        }
        return match life(data)? {
            Life::Running => Err(anyhow!("the cluster in {} is running", data.display()))
                .hint("stop its `stead up` first, with Ctrl-C or SIGTERM"),
            Life::Ended => {
                end_all(&data.join("nodes"));
                Ok(())
            }
        };
    }
    let runtime = places::runtime()?;
    let entries = std::fs::read_dir(&runtime).with_context(|| format!("cannot read {}", runtime.display()))?;
    for entry in entries.filter_map(std::result::Result::ok) {
        let ours = entry.file_name().to_string_lossy().starts_with("ephemeral-");
        if ours && life(&entry.path())? == Life::Ended {
            end_all(&entry.path().join("nodes"));
            std::fs::remove_dir_all(entry.path())
                .with_context(|| format!("cannot remove {}", entry.path().display()))?;
        }
    }
    Ok(())
}

fn life(directory: &Path) -> Result<Life> {
    let Ok(lock) = File::open(directory.join("lock")) else {
        return Ok(Life::Ended);
    };
    match lock.try_lock() {
        Ok(()) => Ok(Life::Ended),
        Err(TryLockError::WouldBlock) => Ok(Life::Running),
        Err(TryLockError::Error(error)) => {
            Err(error).with_context(|| format!("cannot look into {}", directory.display()))
        }
    }
}
