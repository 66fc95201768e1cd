//! Directories and files that the machine has: `hostPath`, and the local volumes that claims are bound to.

use super::{Source, Volumes, Wanted, mount_error};
use crate::node::runtime::RuntimeError;
use async_trait::async_trait;
use std::path::{Path, PathBuf};

/// Makes nothing but what is missing.
pub struct Host;

/// The path, and what `hostPath` says of its kind.
fn of(source: Source<'_>) -> Option<(&Path, &str)> {
    let (path, kind) = match source {
        Source::Pod(volume) => {
            let host = volume.host_path.as_ref()?;
            (&host.path, host.type_.as_deref().unwrap_or_default())
        }
        Source::Bound(volume) => {
            let spec = volume.spec.as_ref()?;
            let local = spec.local.as_ref().map(|local| &local.path);
            let path = local.or_else(|| spec.host_path.as_ref().map(|host| &host.path))?;
            (path, "DirectoryOrCreate")
        }
    };
    Some((Path::new(path), kind))
}

#[async_trait]
impl Volumes for Host {
    fn serves(&self, source: Source<'_>) -> bool {
        of(source).is_some()
    }

    async fn publish(&self, wanted: &Wanted<'_>) -> Result<PathBuf, RuntimeError> {
        let (path, kind) = of(wanted.source).ok_or_else(|| wanted.unknown())?;
        let place = host_path(path, kind)?;
        if let Source::Bound(_) = wanted.source {
            // A path that the pod itself names stays whose it is.
            wanted.share(&place).await?;
        }
        Ok(place)
    }
}

fn host_path(path: &Path, kind: &str) -> Result<PathBuf, RuntimeError> {
    let failed = |error: std::io::Error| mount_error(format!("hostPath {}: {error}", path.display()));
    match kind {
        "DirectoryOrCreate" => std::fs::create_dir_all(path).map_err(failed)?,
        "FileOrCreate" if !path.exists() => std::fs::write(path, "").map_err(failed)?,
        "Directory" if !path.is_dir() => {
            return Err(mount_error(format!(
                "hostPath type check failed: {} is not a directory",
                path.display()
            )));
        }
        "File" if !path.is_file() => {
            return Err(mount_error(format!(
                "hostPath type check failed: {} is not a file",
                path.display()
            )));
        }
        // Docker and containerd make a missing directory; so does everyone who relies on that.
        "" if !path.exists() => std::fs::create_dir_all(path).map_err(failed)?,
        _ => {}
    }
    Ok(path.to_owned())
}
