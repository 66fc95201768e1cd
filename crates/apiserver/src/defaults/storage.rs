//! Defaults of volumes, claims and the classes they come from.

use super::{Defaulter, Fields, child, set};
use serde_json::json;

pub const TYPES: &[(&str, Defaulter)] = &[
    ("api.core.v1.PersistentVolume", volume),
    ("api.core.v1.PersistentVolumeClaim", claim),
    ("api.core.v1.PersistentVolumeClaimSpec", claim_spec),
    ("api.storage.v1.StorageClass", class),
    ("api.storage.v1.CSIDriver", driver),
];

fn volume(volume: &mut Fields) {
    if let Some(status) = child(volume, "status") {
        set(status, "phase", "Pending");
    }
    if let Some(spec) = child(volume, "spec") {
        set(spec, "persistentVolumeReclaimPolicy", "Retain");
        set(spec, "volumeMode", "Filesystem");
    }
}

fn claim(claim: &mut Fields) {
    if let Some(status) = child(claim, "status") {
        set(status, "phase", "Pending");
    }
}

fn claim_spec(spec: &mut Fields) {
    set(spec, "volumeMode", "Filesystem");
}

fn class(class: &mut Fields) {
    set(class, "reclaimPolicy", "Delete");
    set(class, "volumeBindingMode", "Immediate");
}

fn driver(driver: &mut Fields) {
    let Some(spec) = child(driver, "spec") else {
        return;
    };
    set(spec, "attachRequired", true);
    for name in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
        set(spec, name, false);
    }
    set(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
    set(spec, "volumeLifecycleModes", json!(["Persistent"]));
}
