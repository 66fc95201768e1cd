//! The directories that stand behind provisioned volumes.
//!
//! One directory for each volume, named after it, below one root. Nothing outside of the root is ever touched,
//! whatever a volume's object says.

use std::io;
use std::path::{Component, Path, PathBuf};

/// Where the directories are.
#[derive(Debug, Clone)]
pub struct Directories {
    root: PathBuf,
}

impl Directories {
    pub fn new(root: PathBuf) -> Self {
        Directories { root }
    }

    /// The directory of a volume; none for a name that would lead out of the root.
    pub fn path(&self, volume: &str) -> Option<PathBuf> {
        let mut parts = Path::new(volume).components();
        let single = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
        single.then(|| self.root.join(volume))
    }

    /// Makes the directory of a volume. It may be there already, from a try whose answer was lost.
    pub async fn create(&self, volume: &str) -> io::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt;
        let path = self.path(volume).ok_or(io::ErrorKind::InvalidInput)?;
        tokio::fs::create_dir_all(&path).await?;
        // Containers run as any user, and the directory is theirs.
        tokio::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o777)).await?;
        Ok(path)
    }

    /// Removes the directory of a volume with all that is in it. Gone already is fine.
    pub async fn remove(&self, volume: &str) -> io::Result<()> {
        let path = self.path(volume).ok_or(io::ErrorKind::InvalidInput)?;
        match tokio::fs::remove_dir_all(&path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_directory_comes_and_goes_and_nothing_outside_is_touched() {
        let root = tempfile::tempdir().unwrap();
        let directories = Directories::new(root.path().join("volumes"));
        let path = directories.create("pvc-1").await.unwrap();
        std::fs::write(path.join("data"), "kept").unwrap();
        directories.create("pvc-1").await.unwrap();
        assert_eq!(std::fs::read_to_string(path.join("data")).unwrap(), "kept");
        directories.remove("pvc-1").await.unwrap();
        directories.remove("pvc-1").await.unwrap();
        assert!(!path.exists());
        for name in ["..", "../other", "/etc", "a/b", ""] {
            assert!(directories.path(name).is_none(), "{name}");
            assert!(directories.remove(name).await.is_err(), "{name}");
        }
    }
}
