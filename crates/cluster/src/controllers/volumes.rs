//! Persistent volumes: claims find volumes, or have one made for them in a local directory, and volumes are
//! given up as their policy says.
//!
//! A volume and a claim point at each other. The volume's pointer is written first, so that of two claims that
//! want the same volume one is refused by the API server; whoever dies in between goes on where it stopped.

mod claims;
mod classes;
mod directories;
mod ephemeral;
pub mod matching;
pub mod protection;
mod provision;
mod release;

pub use directories::Directories;

use k8s_openapi::api::core::v1::{ObjectReference, PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use stead::Manager;
use stead_machinery::quantity::Quantity;

/// The name of the provisioner that makes directories.
pub const PROVISIONER: &str = "stead.dev/local-directory";
/// The annotation by which the scheduler says where the first user of a claim will run.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a claim: it has been bound once, so that a missing volume means lost data.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On either side: the pointer was written here and not by a person.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On either side: the class, from the time before there was a field for it.
const CLASS_ANNOTATION: &str = "volume.beta.kubernetes.io/storage-class";
const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// Keeps a volume that we made until its directory is gone.
const DIRECTORY_FINALIZER: &str = "external-provisioner.volume.kubernetes.io/finalizer";

/// Adds the controllers of volumes. Without directories nothing is provisioned and there is no default class.
pub fn add_to(manager: &Manager, directories: Option<Directories>) {
    claims::add_to(manager, directories.clone());
    release::add_to(manager, directories.clone());
    protection::add_claims(manager);
    protection::add_volumes(manager);
    ephemeral::add_to(manager);
    if directories.is_some() {
        classes::add_to(manager);
    }
}

/// The volume that a claim names.
pub fn volume_name(claim: &PersistentVolumeClaim) -> Option<&str> {
    let name = claim.spec.as_ref()?.volume_name.as_deref()?;
    (!name.is_empty()).then_some(name)
}

/// The class of a claim; empty where it has none.
pub fn class_of(claim: &PersistentVolumeClaim) -> &str {
    named_class(claim).unwrap_or_default()
}

/// The class that a claim names, in the annotation that came before the field or in the field; `None` if it leaves
/// the class to the cluster. One that names the empty class does not.
pub fn named_class(claim: &PersistentVolumeClaim) -> Option<&str> {
    let field = claim.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&claim.metadata, CLASS_ANNOTATION).or(field)
}

/// The class of a volume; empty where it has none.
pub fn class_of_volume(volume: &PersistentVolume) -> &str {
    let field = volume.spec.as_ref().and_then(|spec| spec.storage_class_name.as_deref());
    annotation(&volume.metadata, CLASS_ANNOTATION)
        .or(field)
        .unwrap_or_default()
}

/// How much a claim asks for.
pub fn requested(claim: &PersistentVolumeClaim) -> Option<Quantity> {
    let resources = claim.spec.as_ref()?.resources.as_ref()?;
    resources.requests.as_ref()?.get("storage")?.0.parse().ok()
}

/// How much a volume holds.
pub fn capacity(volume: &PersistentVolume) -> Option<Quantity> {
    let capacity = volume.spec.as_ref()?.capacity.as_ref()?;
    capacity.get("storage")?.0.parse().ok()
}

/// Whether volumes of a class wait for the pod that uses them to have a node.
pub fn waits_for_consumer(class: &StorageClass) -> bool {
    class.volume_binding_mode.as_deref() == Some("WaitForFirstConsumer")
}

/// The claim that a volume is for.
pub fn claim_ref(volume: &PersistentVolume) -> Option<&ObjectReference> {
    volume.spec.as_ref()?.claim_ref.as_ref()
}

/// Whether a volume's pointer means this claim: by name, and by UID where it has one.
pub fn is_for(reference: &ObjectReference, claim: &PersistentVolumeClaim) -> bool {
    let uid = reference.uid.as_deref().unwrap_or_default();
    reference.namespace == claim.metadata.namespace
        && reference.name == claim.metadata.name
        && (uid.is_empty() || Some(uid) == claim.metadata.uid.as_deref())
}

fn annotation<'a>(meta: &'a kube::core::ObjectMeta, name: &str) -> Option<&'a str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

fn is_ours(volume: &PersistentVolume) -> bool {
    annotation(&volume.metadata, PROVISIONED_BY) == Some(PROVISIONER)
}
