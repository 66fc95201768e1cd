//! The directory of a cluster: held by one process at a time, and gone with an ephemeral one.

use crate::failure::Hint;
use crate::places;
use anyhow::{Context, Result, anyhow};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The list of files outside of it that hold its credentials.
const WRITTEN: &str = "kubeconfigs";

/// A held directory. Dropping it lets go, and removes it where the cluster is ephemeral.
pub struct Home {
    pub path: PathBuf,
    pub life: Life,
    /// Held for as long as the process lives, however it ends.
    _lock: File,
}

/// How long a cluster's directory is meant to stay.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Life {
    Durable,
    Ephemeral,
}

impl Home {
    /// The directory of a durable cluster.
    pub fn durable(path: PathBuf) -> Result<Home> {
        places::make_private(&path)?;
        // Kubeconfigs name it, and are read from elsewhere.
        let path = path
            .canonicalize()
            .with_context(|| format!("cannot use the directory {}", path.display()))?;
        let lock = lock(&path)?;
        Ok(Home {
            path,
            life: Life::Durable,
            _lock: lock,
        })
    }

    /// A new directory of its own under the user's runtime directory.
    pub fn ephemeral() -> Result<Home> {
        let runtime = places::runtime()?;
        for attempt in 0..1000 {
            let name = format!("{}-{attempt}", std::process::id());
            let path = runtime.join(format!("ephemeral-{name}"));
            if path.exists() {
                continue;
            }
            // Under this name `stead down` does not look: it would take a directory without a lock for an ended cluster.
            let beginning = runtime.join(format!("beginning-{name}"));
            match std::fs::create_dir(&beginning) {
                Ok(()) => {}
                // Left by a process that had our number before us.
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error).with_context(|| format!("cannot create {}", beginning.display())),
            }
            places::make_private(&beginning)?;
            let lock = lock(&beginning)?;
            std::fs::rename(&beginning, &path).with_context(|| format!("cannot create {}", path.display()))?;
            return Ok(Home {
                path,
                life: Life::Ephemeral,
                _lock: lock,
            });
        }
        Err(anyhow!("{} is full of old clusters", runtime.display())).hint("remove what is in it")
    }
}

impl Home {
    /// Notes files outside of the directory that hold the administrator's key: also the next `stead up` hides them from
    /// its pods, wherever that one writes its own. Those that are gone are forgotten.
    pub fn remember(&self, files: impl IntoIterator<Item = PathBuf>) -> Result<()> {
        let mut known = written_to(&self.path);
        known.retain(|file| !is_gone(file));
        known.extend(files.into_iter().filter(|file| !file.starts_with(&self.path)));
        known.sort();
        known.dedup();
        // No name has a zero in it, and some have a line break.
        let text: Vec<u8> = known
            .iter()
            .flat_map(|file| file.as_os_str().as_bytes().iter().chain([&0]))
            .copied()
            .collect();
        let path = self.path.join(WRITTEN);
        let new = self.path.join(format!("{WRITTEN}.new"));
        std::fs::write(&new, text)
            .and_then(|()| std::fs::rename(&new, &path))
            .with_context(|| format!("cannot write {}", path.display()))
    }
}

/// Where clusters of this directory have written kubeconfigs.
pub fn written_to(directory: &Path) -> Vec<PathBuf> {
    let text = std::fs::read(directory.join(WRITTEN)).unwrap_or_default();
    let names = text.split(|byte| *byte == 0).filter(|name| !name.is_empty());
    names.map(|name| PathBuf::from(OsStr::from_bytes(name))).collect()
}

/// Whether a file was removed. One whose directory is not there either may be on a disk that comes back.
fn is_gone(file: &Path) -> bool {
    let missing = std::fs::symlink_metadata(file).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    missing && file.parent().is_some_and(Path::exists)
}

impl Drop for Home {
    fn drop(&mut self) {
        if self.life == Life::Ephemeral {
            // Pods of a durable cluster go on and are adopted again; nobody would come back for these.
            stead_cluster::node::process::end_all(&self.path.join("nodes"));
            let _ = std::fs::remove_dir_all(&self.path);
        }
    }
}

/// Takes the lock of a directory; it names the process that holds it.
fn lock(directory: &Path) -> Result<File> {
    let path = directory.join("lock");
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&path)
        .with_context(|| format!("cannot write {}", path.display()))
        .hint("choose a directory that you may write to, with --data DIR, or use --ephemeral")?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            let _ = file.read_to_string(&mut holder);
            let who = match holder.trim() {
                "" => String::new(),
                pid => format!(" (process {pid})"),
            };
            return Err(anyhow!(
                "another stead{who} runs the cluster in {}",
                directory.display()
            ))
            .hint("stop that one, choose another directory with --data DIR, or use --ephemeral");
        }
        Err(TryLockError::Error(error)) => {
            return Err(error).with_context(|| format!("cannot lock {}", path.display()));
        }
    }
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_held_by_one_cluster_at_a_time() {
        let place = tempfile::tempdir().expect("a directory");
        let first = Home::durable(place.path().join("data")).expect("a home");
        let second = Home::durable(place.path().join("data"));
        let text = second.err().map(|error| error.to_string()).unwrap_or_default();
        assert!(text.contains(&format!("(process {})", std::process::id())), "{text}");
        drop(first);
        Home::durable(place.path().join("data")).expect("free again");
    }

    #[test]
    fn where_kubeconfigs_were_written_is_known_until_they_are_gone() {
        let place = tempfile::tempdir().expect("a directory");
        let home = Home::durable(place.path().join("data")).expect("a home");
        let [first, second] = ["a\nb", "second"].map(|name| place.path().join(name));
        std::fs::write(&first, "").expect("a file");
        home.remember([first.clone(), home.path.join("kubeconfig")])
            .expect("a list");
        assert_eq!(written_to(&home.path), std::slice::from_ref(&first));
        home.remember([second.clone()]).expect("a list");
        assert_eq!(written_to(&home.path), [first.clone(), second.clone()]);
        assert!(places::private(&home.path).contains(&first), "it is hidden");
        std::fs::remove_file(&first).expect("removed");
        home.remember([second.clone()]).expect("a list");
        assert_eq!(written_to(&home.path), [second]);
    }
}
