//! Who controls an object: owner references, and the claims that controllers make by them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::json;
use stead::{Context, Error, Kind, Typed};

/// The reference that makes `owner` the controller of an object.
pub fn controller_reference<K: Typed>(owner: &K) -> OwnerReference {
    let kind = Kind::of::<K>();
    let meta = owner.meta();
    OwnerReference {
        api_version: kind.api_version(),
        kind: kind.kind.to_string(),
        name: meta.name.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

/// The controller of an object, if it has one.
pub fn controller_of(meta: &ObjectMeta) -> Option<&OwnerReference> {
    meta.owner_references
        .iter()
        .flatten()
        .find(|owner| owner.controller == Some(true))
}

/// Whether an object is controlled by the one with this UID.
pub fn is_controlled_by(meta: &ObjectMeta, uid: &str) -> bool {
    controller_of(meta).is_some_and(|owner| owner.uid == uid)
}

/// Makes an object that nobody controls ours.
pub async fn adopt<K: Typed, O: Typed>(context: &Context, object: &K, owner: &O) -> Result<(), Error> {
    let mut owners = object.meta().owner_references.clone().unwrap_or_default();
    owners.push(controller_reference(owner));
    context
        .writer()
        .patch(object, json!({"metadata": {"ownerReferences": owners}}))
        .await
        .map(drop)
}

/// Lets go of an object that no longer matches.
pub async fn release<K: Typed>(context: &Context, object: &K, owner_uid: &str) -> Result<(), Error> {
    let owners: Vec<_> = object
        .meta()
        .owner_references
        .iter()
        .flatten()
        .filter(|owner| owner.uid != owner_uid)
        .cloned()
        .collect();
    context
        .writer()
        .patch(object, json!({"metadata": {"ownerReferences": owners}}))
        .await
        .map(drop)
}
