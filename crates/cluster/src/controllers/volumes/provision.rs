//! The volume that is made for a claim. Pure.

use super::{DIRECTORY_FINALIZER, PROVISIONED_BY, PROVISIONER};
use crate::controllers::ownership;
use k8s_openapi::api::core::v1::{HostPathVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeSpec};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use std::path::Path;

/// The name of the volume that is made for a claim: the same at every try, so that there is never a second one.
pub fn name(claim: &PersistentVolumeClaim) -> String {
    format!("pvc-{}", claim.metadata.uid.as_deref().unwrap_or_default())
}

/// Why a claim cannot have a directory.
pub fn refusal(claim: &PersistentVolumeClaim) -> Option<&'static str> {
    let spec = claim.spec.as_ref()?;
    if spec.volume_mode.as_deref() == Some("Block") {
        return Some("a directory cannot be a block device: volumeMode Block is not supported");
    }
    let selects = spec.selector.is_some();
    selects.then_some("claim Selector is not supported")
}

/// The volume for a claim, in this directory.
pub fn volume(claim: &PersistentVolumeClaim, class: &StorageClass, path: &Path) -> PersistentVolume {
    let spec = claim.spec.clone().unwrap_or_default();
    let requests = spec.resources.and_then(|resources| resources.requests);
    let capacity: BTreeMap<_, _> = requests
        .into_iter()
        .flatten()
        .filter(|(name, _)| name == "storage")
        .collect();
    PersistentVolume {
        metadata: ObjectMeta {
            name: Some(name(claim)),
            annotations: Some([(PROVISIONED_BY.to_string(), PROVISIONER.to_string())].into()),
            finalizers: Some(vec![DIRECTORY_FINALIZER.to_string()]),
            ..ObjectMeta::default()
        },
        spec: Some(PersistentVolumeSpec {
            access_modes: spec.access_modes,
            capacity: Some(capacity),
            claim_ref: Some(ownership::about(claim)),
            host_path: Some(HostPathVolumeSource {
                path: path.display().to_string(),
                type_: Some("DirectoryOrCreate".to_string()),
            }),
            mount_options: class.mount_options.clone(),
            persistent_volume_reclaim_policy: class.reclaim_policy.clone().or(Some("Delete".to_string())),
            storage_class_name: class.metadata.name.clone(),
            volume_mode: spec.volume_mode,
            ..PersistentVolumeSpec::default()
        }),
        status: None,
    }
}
