//! `emptyDir`: a directory that is empty when the pod starts and goes with it.

use super::{Source, Volumes, Wanted, memory};
use crate::node::runtime::RuntimeError;
use async_trait::async_trait;
use k8s_openapi::api::core::v1::EmptyDirVolumeSource;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// Makes new directories.
pub struct Empty;

fn of(source: Source<'_>) -> Option<&EmptyDirVolumeSource> {
    match source {
        Source::Pod(volume) => volume.empty_dir.as_ref(),
        Source::Bound(_) => None,
    }
}

#[async_trait]
impl Volumes for Empty {
    fn serves(&self, source: Source<'_>) -> bool {
        of(source).is_some()
    }

    async fn publish(&self, wanted: &Wanted<'_>) -> Result<PathBuf, RuntimeError> {
        let empty = of(wanted.source).ok_or_else(|| wanted.unknown())?;
        let in_memory = empty.medium.as_deref() == Some("Memory");
        let place = match in_memory.then(|| memory::of(wanted.shape.uid())).flatten() {
            Some(memory) => memory.join(wanted.name),
            None => wanted.place.clone(),
        };
        std::fs::create_dir_all(&place).map_err(|error| wanted.failed(error))?;
        // Any user of the pod may write here.
        let _ = std::fs::set_permissions(&place, Permissions::from_mode(0o777));
        wanted.share(&place).await?;
        Ok(place)
    }

    async fn unpublish(&self, uid: &str) -> Result<(), RuntimeError> {
        let uid = uid.to_owned();
        // It waits for the last writers, and this thread has other pods to look after.
        let ended = tokio::task::spawn_blocking(move || memory::end(&uid)).await;
        ended.map_err(|error| RuntimeError::run(error.to_string()))
    }
}
