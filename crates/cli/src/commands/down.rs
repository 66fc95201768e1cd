//! `stead down`: clears away what clusters that have ended left behind.
//!
//! A cluster that ends by itself leaves nothing but its data. One that was killed may leave an ephemeral
//! directory, which holds a kubeconfig with credentials.

use super::node::refused;
use crate::failure::Hint;
use crate::places;
use anyhow::{Context, Result, anyhow};
use clap::Args;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use stead_cluster::node::process::{end_all, kill_all, users};

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

/// What is left of a cluster that has ended.
struct Remains {
    place: PathBuf,
    /// Whether its directory goes too.
    data: Data,
    _lock: Option<File>,
}

/// What becomes of the data of a cluster.
#[derive(PartialEq, Eq)]
enum Data {
    Stays,
    Goes,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let remains = match &arguments.data {
        Some(data) => vec![named(data)?],
        None => all()?,
    };
    // Outside, a user may end whatever runs in his namespaces, as whomever. Inside, he may remove what those have left,
    // also what is closed to its owner; where he may make no namespaces, there is no such thing.
    for left in &remains {
        kill_all(&left.place.join("nodes"));
    }
    // What ran in other namespaces has ended: a new one does.
    refused(users::become_root(None))?;
    for left in &remains {
        end_all(&left.place.join("nodes"));
        if left.data == Data::Goes {
            std::fs::remove_dir_all(&left.place).with_context(|| format!("cannot remove {}", left.place.display()))?;
        }
    }
    Ok(())
}

/// The cluster in a directory, which must have ended.
fn named(data: &Path) -> Result<Remains> {
    if !data.is_dir() {
        return Err(anyhow!("there is no cluster in {}", data.display())).hint("check the directory");
    }
    match life(data)? {
        Life::Running => Err(anyhow!("the cluster in {} is running", data.display()))
            .hint("stop its `stead up` first, with Ctrl-C or SIGTERM"),
        Life::Ended(lock) => Ok(Remains {
            place: data.to_owned(),
            data: Data::Stays,
            _lock: lock,
        }),
    }
}

/// Every cluster of this user that has ended.
fn all() -> Result<Vec<Remains>> {
    let runtime = folders(&places::runtime()?)?.into_iter().filter(|place| {
        let name = place.file_name();
        name.is_some_and(|name| name.as_encoded_bytes().starts_with(b"ephemeral-"))
    });
    // Of a durable cluster, and of nodes that joined another, only what runs goes; the data stays.
    let data = places::data()?;
    let durable = folders(&data.join("joined"))?.into_iter().chain([data]);
    let known = runtime
        .map(|place| (place, Data::Goes))
        .chain(durable.map(|place| (place, Data::Stays)));
    let mut remains = Vec::new();
    for (place, data) in known {
        if let Life::Ended(_lock) = life(&place)? {
            remains.push(Remains { place, data, _lock });
        }
    }
    Ok(remains)
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
