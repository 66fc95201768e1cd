//! Where a user's clusters live on disk.

use crate::failure::Hint;
use anyhow::{Context, Result, anyhow};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// `$XDG_DATA_HOME/stead`, where a durable cluster is unless `--data` says otherwise.
pub fn data() -> Result<PathBuf> {
    let base = match absolute("XDG_DATA_HOME") {
        Some(base) => base,
        None => absolute("HOME")
            .ok_or_else(|| anyhow!("neither XDG_DATA_HOME nor HOME is set"))
            .hint("give a directory with --data, or use --ephemeral")?
            .join(".local/share"),
    };
    Ok(base.join("stead"))
}

/// Where images that were loaded are kept, for all of the user's clusters.
pub fn images() -> Result<PathBuf> {
    Ok(data()?.join("images"))
}

/// The user's directory for what does not outlive a login: ephemeral clusters are below it.
pub fn runtime() -> Result<PathBuf> {
    let directory = match absolute("XDG_RUNTIME_DIR").filter(|directory| directory.is_dir()) {
        Some(base) => base.join("stead"),
        None => std::env::temp_dir().join(format!("stead-{}", nix::unistd::getuid())),
    };
    make_private(&directory)?;
    // In a directory that all can write to, somebody else may have been there first.
    let owner = fs::metadata(&directory)
        .with_context(|| format!("cannot read {}", directory.display()))?
        .uid();
    if owner != nix::unistd::getuid().as_raw() {
        return Err(anyhow!("{} belongs to another user", directory.display()))
            .hint("set XDG_RUNTIME_DIR to a directory of your own");
    }
    Ok(directory)
}

/// A directory that only its owner can enter.
pub fn make_private(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .and_then(|()| fs::set_permissions(directory, fs::Permissions::from_mode(0o700)))
        .with_context(|| format!("cannot use the directory {}", directory.display()))
        .hint("choose a directory that you may write to, with --data DIR, or use --ephemeral")
}

fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}
