//! `stead down`: clears away what clusters that have ended left behind.
//!
//! A cluster that ends by itself leaves nothing but its data. One that was killed may leave an ephemeral
//! directory, which holds a kubeconfig with credentials.

use crate::failure::Hint;
use crate::places;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use stead_cluster::node::process::{end_all, users};

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
enum Life {
    Running,
    /// With its lock, where it has one: nobody starts it while that is held.
    Ended(Option<File>),
}

pub fn run(arguments: &Arguments) -> Result<()> {
    // Containers leave directories that even their owner cannot look into. Signals reach them from any namespace, so
    // that it may be a new one; and where users may make none, no container has left such things.
    let _ = users::become_root(Path::new(""));
    if let Some(data) = &arguments.data {
        if !data.is_dir() {
            return Err(anyhow!("there is no cluster in {}", data.display())).hint("check the directory");
        }
        return match life(data)? {
            Life::Running => Err(anyhow!("the cluster in {} is running", data.display()))
                .hint("stop its `stead up` first, with Ctrl-C or SIGTERM"),
            Life::Ended(_lock) => {
                end_all(&data.join("nodes"));
                Ok(())
            }
        };
    }
    let runtime = places::runtime()?;
    for place in folders(&runtime)? {
        let ours = place
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b"ephemeral-"));
        if ours && let Life::Ended(_lock) = life(&place)? {
            end_all(&place.join("nodes"));
            std::fs::remove_dir_all(&place).with_context(|| format!("cannot remove {}", place.display()))?;
        }
    }
    // Of a durable cluster, and of nodes that joined another, only what runs goes; the data stays.
    let data = places::data()?;
    for place in folders(&data.join("joined"))?.into_iter().chain([data]) {
        if let Life::Ended(_lock) = life(&place)? {
            end_all(&place.join("nodes"));
        }
    }
    Ok(())
}

/// What is in a directory; nothing where there is none.
fn folders(directory: &Path) -> Result<Vec<PathBuf>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => Ok(entries
            .filter_map(std::result::Result::ok)
            .map(|entry| entry.path())
            .collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("cannot read {}", directory.display())),
    }
}

fn life(directory: &Path) -> Result<Life> {
    let unreadable = || format!("cannot look into {}", directory.display());
    let lock = match File::open(directory.join("lock")) {
        Ok(lock) => lock,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Life::Ended(None)),
        Err(error) => return Err(error).with_context(unreadable),
    };
    match lock.try_lock() {
        Ok(()) => Ok(Life::Ended(Some(lock))),
        Err(TryLockError::WouldBlock) => Ok(Life::Running),
        Err(TryLockError::Error(error)) => Err(error).with_context(unreadable),
    }
}
