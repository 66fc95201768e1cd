//! What may be wrong with the volumes of a pod.

mod files;
mod sources;

use super::check::{Errors, Field};
use super::pods::Whose;
use super::storage;
use crate::verbs::metadata;
use std::collections::BTreeMap;
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

pub use sources::check as source;

/// The volumes of a pod that are well described, and whether each is a claim.
#[derive(Default)]
pub struct Volumes(BTreeMap<String, bool>);

impl Volumes {
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Whether there is a claim behind a volume; `None` where there is no such volume.
    pub fn is_claimed(&self, name: &str) -> Option<bool> {
        self.0.get(name).copied()
    }
}

/// What a volume of a pod can be made of. Where there are several, the first in this order is the one that counts.
const SOURCES: &[&str] = &[
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// Checks volumes and gives the good ones, which mounts refer to.
pub fn check(volumes: &Field<'_>, whose: Whose<'_>, errors: &mut Errors) -> Volumes {
    let mut known = Volumes::default();
    for volume in volumes.items() {
        let name = volume.at("name");
        let before = errors.0.len();
        sources_of(&volume, whose, errors);
        match name.text() {
            "" => errors.required(&name, ""),
            text => {
                errors.complaints(&name, names::dns1123_label(text));
                if known.has(text) {
                    errors.duplicate(&name);
                }
            }
        }
        if errors.0.len() == before {
            let claimed = volume.at("persistentVolumeClaim").is_set() || volume.at("ephemeral").is_set();
            known.0.insert(name.text().to_string(), claimed);
        }
    }
    known
}

fn sources_of(volume: &Field<'_>, whose: Whose<'_>, errors: &mut Errors) {
    let mut found = 0;
    for kind in SOURCES.iter().copied().filter(|kind| !volume.value[kind].is_null()) {
        let source = volume.at(kind);
        found += 1;
        if found > 1 {
            one_too_many(kind, volume, errors);
            continue;
        }
        match kind {
            "emptyDir" => empty(&source, errors),
            "secret" => files::keyed(&source, "secretName", errors),
            "configMap" => files::keyed(&source, "name", errors),
            "downwardAPI" => {
                files::mode(&source.at("defaultMode"), errors);
                for item in source.at("items").items() {
                    files::downward(&item, &source, errors);
                }
            }
            "projected" => files::projected(&source, errors),
            "persistentVolumeClaim" => errors.present(&source.at("claimName")),
            "ephemeral" => {
                ephemeral(&source, errors);
                if let Whose::Pod(pod) = whose {
                    claim_name(pod, volume, errors);
                }
            }
            "image" => {
                if whose != Whose::Template {
                    errors.present(&source.at("reference"));
                }
                errors.one_of_if_set(&source.at("pullPolicy"), &["Always", "IfNotPresent", "Never"]);
            }
            _ => sources::check(kind, &source, errors),
        }
    }
    if found == 0 {
        errors.required(volume, "must specify a volume type");
    }
}

/// Refuses a source beside another one.
pub fn one_too_many(kind: &str, volume: &Field<'_>, errors: &mut Errors) {
    // Kubernetes spells these so here.
    let name = match kind {
        "cephfs" => "cephFS",
        "downwardAPI" => "downwarAPI",
        kind => kind,
    };
    errors.forbidden(&volume.at(name), "may not specify more than 1 volume type");
}

fn empty(source: &Field<'_>, errors: &mut Errors) {
    let limit = source.at("sizeLimit");
    if limit.text().parse::<Quantity>().is_ok_and(|limit| limit.is_negative()) {
        errors.forbidden(&limit, "SizeLimit field must be a valid resource quantity");
    }
}

/// The claim of an ephemeral volume is called after the pod and the volume. Without either that is said elsewhere.
fn claim_name(pod: &str, volume: &Field<'_>, errors: &mut Errors) {
    let name = volume.at("name");
    if pod.is_empty() || name.text().is_empty() {
        return;
    }
    let claim = format!("{pod}-{}", name.text());
    for complaint in names::dns1123_subdomain(&claim) {
        errors.invalid(&name, format!("PVC name {claim:?}: {complaint}"));
    }
}

fn ephemeral(source: &Field<'_>, errors: &mut Errors) {
    let template = source.at("volumeClaimTemplate");
    if !template.is_set() {
        errors.required(&template, "");
        return;
    }
    claim_metadata(&template.at("metadata"), errors);
    storage::claim_spec(&template.at("spec"), errors);
}

/// The claim is named after the pod, and belongs to it; only labels and annotations are free.
fn claim_metadata(found: &Field<'_>, errors: &mut Errors) {
    let (labels, annotations) = (found.at("labels"), found.at("annotations"));
    metadata::labels(labels.value, &labels.path, &mut errors.0);
    metadata::annotations(annotations.value, &annotations.path, &mut errors.0);
    for (name, field) in found.entries() {
        let unset = match field.value {
            serde_json::Value::Null => true,
            serde_json::Value::String(text) => text.is_empty(),
            serde_json::Value::Number(number) => name == "generation" && number.as_i64() == Some(0),
            _ => false,
        };
        if unset || matches!(name, "labels" | "annotations") {
            continue;
        }
        // As Go writes it.
        let shown = if name == "uid" { "uID" } else { name };
        errors.forbidden(&found.at(shown), "cannot be set");
    }
}
