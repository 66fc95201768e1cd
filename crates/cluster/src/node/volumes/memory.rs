//! `emptyDir` in memory: a directory on a file system of the machine that is one.
//!
//! All containers of a pod see it, so it cannot be made in the file system of one. The kernel's place for shared memory is
//! on every machine; the directory has the name of its pod, and whoever ends the pod finds it by that.

use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use std::fs::DirBuilder;
use std::io::ErrorKind;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const SHARED_MEMORY: &str = "/dev/shm";

fn place(pod: &str) -> Option<PathBuf> {
    let is_name = !pod.is_empty() && !pod.contains(['/', '.']);
    is_name.then(|| Path::new(SHARED_MEMORY).join(format!("stead-{pod}")))
}

/// The directory of a pod in memory; none where the machine has no such file system, or somebody else is there.
pub fn of(pod: &str) -> Option<PathBuf> {
    let place = place(pod)?;
    match DirBuilder::new().mode(0o700).create(&place) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let found = std::fs::symlink_metadata(&place).ok()?;
            if !found.is_dir() || found.uid() != nix::unistd::geteuid().as_raw() {
                return None;
            }
        }
        Err(_) => return None,
    }
    let kind = statfs(&place).ok()?.filesystem_type();
    (kind == TMPFS_MAGIC).then_some(place)
}

/// Gives the memory of a pod back.
pub fn end(pod: &str) {
    let Some(place) = place(pod) else { return };
    // A process that is just ending may still write into it: try for a moment.
    for _ in 0..40 {
        match std::fs::remove_dir_all(&place) {
            Ok(()) => return,
            Err(error) if error.kind() == ErrorKind::NotFound => return,
            Err(_) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    tracing::warn!(pod, "the memory of a pod could not be given back");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_found_again_and_given_back() {
        let pod = format!("test-{}", uuid::Uuid::new_v4().simple());
        let Some(found) = of(&pod) else {
            return; // This machine has no file system in memory there.
        };
        assert_eq!(of(&pod), Some(found.clone()));
        end(&pod);
        assert!(!found.exists());
        assert_eq!(of("../escape"), None);
    }
}
