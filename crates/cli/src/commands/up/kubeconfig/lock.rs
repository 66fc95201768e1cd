//! The lock of a kubeconfig: a file beside it, as kubectl and all that is built on client-go make one.

use crate::failure::Hint;
use anyhow::{Context, Result, anyhow};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use std::fs;
use std::io::ErrorKind::{AlreadyExists, NotFound, PermissionDenied, ReadOnlyFilesystem};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Whoever has it writes a small file: after so many looks it is one that was left behind.
pub const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(50);
/// What stands in locks of ours, before the number of the process.
const MARK: &str = "stead ";

/// The lock of a file, until it is dropped.
#[derive(Debug)]
pub struct Lock {
    /// None where nobody can make one: then nobody else has it either.
    path: Option<PathBuf>,
}

impl Lock {
    /// Waits for the lock of a file under the name that the user gives to it: kubectl follows no link for it either.
    pub fn take(file: &Path, attempts: u32) -> Result<Lock> {
        let mut name = file.as_os_str().to_owned();
        name.push(".lock");
        let path = PathBuf::from(name);
        for attempt in 0..attempts {
            if attempt > 0 {
                std::thread::sleep(PAUSE);
            }
            let made = fs::OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&path);
            match made {
                Ok(mut file) => {
                    // One without a name in it is as good, and only not known for what it is if we die before the end.
                    let _ = write!(file, "{MARK}{}", std::process::id());
                    return Ok(Lock { path: Some(path) });
                }
                Err(error) if error.kind() == AlreadyExists => {
                    if is_left_behind(&path) {
                        // Whoever else saw that may have been faster.
                        let _ = fs::remove_file(&path);
                    }
                }
                // A link may be where nothing can be written, and its file elsewhere. Whether the file can be, is asked apart.
                Err(error) if matches!(error.kind(), PermissionDenied | ReadOnlyFilesystem | NotFound) => {
                    return Ok(Lock { path: None });
                }
                Err(error) => return Err(error).with_context(|| format!("cannot write {}", path.display())),
            }
        }
        let shown = path.display();
        Err(anyhow!(
            "{} is being written by another program: {shown} is there",
            file.display()
        ))
        .hint(format!("if no other program runs that writes it, remove {shown}"))
    }
}

/// Whether a process of ours made it and was killed before it could let go. Others do not say who they are.
fn is_left_behind(path: &Path) -> bool {
    let text = fs::read_to_string(path).unwrap_or_default();
    let maker = text.strip_prefix(MARK).and_then(|number| number.parse().ok());
    maker.is_some_and(|number| kill(Pid::from_raw(number), None) == Err(Errno::ESRCH))
}

impl Drop for Lock {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            let _ = fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_written_by_one_at_a_time_and_a_lock_that_stays_is_named() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("config");
        let first = Lock::take(&file, 1).expect("it is free");
        let (what, hint) = crate::failure::describe(&Lock::take(&file, 2).expect_err("it is taken"));
        assert!(what.contains("config.lock is there"), "{what}");
        assert!(hint.is_some_and(|hint| hint.contains("remove") && hint.contains("config.lock")));
        drop(first);
        Lock::take(&file, 1).expect("free again");
        let lock = place.path().join("config.lock");
        assert!(!lock.exists());
        let mut gone = std::process::Command::new("true").spawn().expect("a process");
        gone.wait().expect("it ends");
        fs::write(&lock, format!("{MARK}{}", gone.id())).expect("a lock");
        Lock::take(&file, 2).expect("nobody has it any more");
    }
}
