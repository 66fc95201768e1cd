//! Claims of pods: which volume they are bound to, and that the pod may have it.

use super::mount_error;
use crate::controllers::volumes::protection;
use crate::node::runtime::RuntimeError;
use crate::node::shape::Shape;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Volume};
use kube::{Api, Client};

/// What a volume of a pod is bound to, if it is a claim.
pub async fn bound(
    client: &Client,
    shape: &Shape<'_>,
    volume: &Volume,
) -> Result<Option<PersistentVolume>, RuntimeError> {
    let Some(used) = protection::claim_of(shape.pod, volume) else {
        return Ok(None);
    };
    let name = used.name();
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(client.clone(), shape.namespace());
    let claim = claims
        .get(name)
        .await
        .map_err(|error| mount_error(format!("persistentvolumeclaim: {error}")))?;
    used.check(shape.pod, &claim).map_err(mount_error)?;
    let bound = claim
        .spec
        .and_then(|spec| spec.volume_name)
        .filter(|volume| !volume.is_empty());
    let bound = bound.ok_or_else(|| mount_error(format!("persistentvolumeclaim \"{name}\" is not bound")))?;
    let volumes: Api<PersistentVolume> = Api::all(client.clone());
    let volume = volumes.get(&bound).await;
    volume
        .map(Some)
        .map_err(|error| mount_error(format!("persistentvolume: {error}")))
}
