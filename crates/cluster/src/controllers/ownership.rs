//! Who controls an object: owner references, and the claims that controllers make by them.

use super::pods;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::core::ObjectMeta;
use serde_json::json;
use std::sync::Arc;
use stead::{Context, Error, Index, Key, Kind, Store, Typed};
use stead_machinery::selector::LabelSelector as Selector;

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

/// A reference to an object, for events about it and for volumes.
pub fn about<K: Typed>(object: &K) -> ObjectReference {
    let kind = Kind::of::<K>();
    let meta = object.meta();
    ObjectReference {
        api_version: Some(kind.api_version()),
        kind: Some(kind.kind.to_string()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        uid: meta.uid.clone(),
        resource_version: meta.resource_version.clone(),
        field_path: None,
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

/// Objects that have owners, and among them at hand those that nobody controls: an owner looks at its own and at
/// these, and never at all objects of its namespace.
pub struct Family<K> {
    pub store: Store<K>,
    orphans: Index<K>,
}

impl<K: Typed> Family<K> {
    pub fn new(store: Store<K>) -> Self {
        let orphans = store.index(|object| {
            let meta = object.meta();
            let free = controller_of(meta).is_none();
            meta.namespace.iter().filter(|_| free).cloned().collect()
        });
        Family { store, orphans }
    }

    /// Those that the owner with this UID controls.
    pub fn controlled_by(&self, uid: &str) -> Vec<Arc<K>> {
        let mut owned = self.store.owned_by(uid);
        owned.retain(|object| is_controlled_by(object.meta(), uid));
        owned
    }

    /// Those of a namespace that nobody controls.
    pub fn orphans(&self, namespace: Option<&str>) -> Vec<Arc<K>> {
        self.store.by_index(&self.orphans, namespace.unwrap_or_default())
    }
}

/// The pods that are this owner's: controlled ones that match, and matching ones that nobody controls and that it
/// may `adopt`. Controlled ones that match no more are let go.
pub async fn claim_pods<O: Typed>(
    context: &Context,
    pods: &Family<Pod>,
    owner: &O,
    selector: &Selector,
    adoptable: impl Fn(&Pod) -> bool,
) -> Result<Vec<Arc<Pod>>, Error> {
    let meta = owner.meta();
    let uid = meta.uid.as_deref().unwrap_or_default();
    let mut claimed = Vec::new();
    for pod in pods.controlled_by(uid) {
        if pods::matches(selector, &pod) {
            claimed.push(pod);
        } else if meta.deletion_timestamp.is_none() {
            release(context, &*pod, uid).await?;
        }
    }
    if meta.deletion_timestamp.is_some() {
        return Ok(claimed);
    }
    for pod in pods.orphans(meta.namespace.as_deref()) {
        if adoptable(&pod) && pods::matches(selector, &pod) {
            adopt(context, &*pod, owner).await?;
            claimed.push(pod);
        }
    }
    Ok(claimed)
}

/// Whom to wake for a pod that nobody controls: the owners whose selectors fit may adopt it.
pub fn adopters<K: Typed>(owners: Store<K>, selector: impl Fn(&K) -> Option<Selector>) -> impl Fn(&Pod) -> Vec<Key> {
    move |pod| match controller_of(&pod.metadata) {
        Some(_) => Vec::new(),
        None => {
            let candidates = owners.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
            let fitting = candidates
                .iter()
                .filter(|owner| selector(owner).is_some_and(|selector| pods::matches(&selector, pod)));
            fitting.map(|owner| Key::of(&**owner)).collect()
        }
    }
}
