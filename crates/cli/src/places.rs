//! Where a user's clusters live on disk.

use crate::failure::Hint;
use crate::home::written_to;
use anyhow::{Context, Result, anyhow};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use stead_cluster::node::process::users;

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

/// What pods must not see of the machine: this cluster's directory, those of the user's other clusters, and the files
/// that let their reader be an administrator.
pub fn private(home: &Path) -> Vec<PathBuf> {
    let others = [data(), runtime()].into_iter().flatten().chain(kubeconfigs());
    let mut places: Vec<PathBuf> = others.filter_map(|place| place.canonicalize().ok()).collect();
    // Also such as are written only later: they are named as they will be.
    let usual = data().ok().into_iter().flat_map(|data| written_to(&data));
    places.extend(usual.chain(written_to(home)));
    places.push(home.to_owned());
    places
}

/// Where kubectl looks for credentials.
fn kubeconfigs() -> Vec<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG").unwrap_or_default();
    let usual = absolute("HOME").map(|home| home.join(".kube/config"));
    std::env::split_paths(&listed).chain(usual).collect()
}

/// The user's directory for what does not outlive a login: ephemeral clusters are below it.
pub fn runtime() -> Result<PathBuf> {
    let directory = match absolute("XDG_RUNTIME_DIR").filter(|directory| directory.is_dir()) {
        Some(base) => base.join("stead"),
        None => std::env::temp_dir().join(format!("stead-{}", users::number_outside())),
    };
    // In a directory that all can write to, somebody else may have been there first, and left a link.
    if fs::symlink_metadata(&directory).is_ok_and(|found| found.is_symlink()) {
        return Err(anyhow!("{} is a link", directory.display())).hint("remove it, or set XDG_RUNTIME_DIR");
    }
    create_private(&directory)?;
    own(&directory).hint("set XDG_RUNTIME_DIR to a directory of your own")?;
    close(&directory)?;
    Ok(directory)
}

/// A directory for a cluster, that only its owner can enter. One that is there already has to be empty, or a cluster's.
pub fn make_private(directory: &Path) -> Result<()> {
    create_private(directory)?;
    own(directory).hint("choose a directory of your own, with --data DIR, or use --ephemeral")?;
    let open = mode(directory)? & 0o077 != 0;
    let strange = !directory.join("lock").exists() && entries(directory)? > 0;
    if open && strange {
        // Closing somebody's home or /tmp to everyone else would be a poor surprise.
        return Err(anyhow!(
            "{} is open to others and holds other things than a cluster",
            directory.display()
        ))
        .hint("choose an empty directory with --data DIR, or use --ephemeral");
    }
    close(directory)
}

fn create_private(directory: &Path) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .with_context(|| format!("cannot use the directory {}", directory.display()))
        .hint("choose a directory that you may write to, with --data DIR, or use --ephemeral")
}

/// Refuses a directory of somebody else.
fn own(directory: &Path) -> Result<()> {
    let owner = metadata(directory)?.uid();
    match owner == nix::unistd::getuid().as_raw() {
        true => Ok(()),
        false => Err(anyhow!("{} belongs to another user", directory.display())),
    }
}

fn close(directory: &Path) -> Result<()> {
    if mode(directory)? & 0o777 == 0o700 {
        return Ok(());
    }
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700))
        .with_context(|| format!("cannot close {} to others", directory.display()))
}

fn mode(directory: &Path) -> Result<u32> {
    Ok(metadata(directory)?.mode())
}

fn metadata(directory: &Path) -> Result<fs::Metadata> {
    fs::metadata(directory).with_context(|| format!("cannot read {}", directory.display()))
}

fn entries(directory: &Path) -> Result<usize> {
    let entries = fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    Ok(entries.count())
}

fn absolute(variable: &str) -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os(variable)?);
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_holds_other_things_is_refused_and_left_as_it_is() {
        let place = tempfile::tempdir().expect("a directory");
        fs::set_permissions(place.path(), fs::Permissions::from_mode(0o755)).expect("permissions");
        fs::write(place.path().join("letters"), "").expect("a file");
        make_private(place.path()).expect_err("it is somebody's");
        assert_eq!(mode(place.path()).expect("a mode") & 0o777, 0o755);
        fs::remove_file(place.path().join("letters")).expect("removed");
        make_private(place.path()).expect("an empty one is ours");
        assert_eq!(mode(place.path()).expect("a mode") & 0o777, 0o700);
    }
}
