//! What may be wrong with volumes whose contents come from the node or from a storage system.

use crate::validation::check::{Errors, Field};
use stead_machinery::names;

/// What a source cannot do without.
const NEEDED: &[(&str, &[&str])] = &[
    ("awsElasticBlockStore", &["volumeID"]),
    ("azureDisk", &["diskName", "diskURI"]),
    ("azureFile", &["secretName", "shareName"]),
    ("cephfs", &["monitors"]),
    ("cinder", &["volumeID"]),
    ("flexVolume", &["driver"]),
    ("gcePersistentDisk", &["pdName"]),
    ("gitRepo", &["repository"]),
    ("glusterfs", &["endpoints", "path"]),
    ("iscsi", &["targetPortal", "iqn"]),
    ("nfs", &["server", "path"]),
    ("photonPersistentDisk", &["pdID"]),
    ("portworxVolume", &["volumeID"]),
    ("quobyte", &["volume"]),
    ("rbd", &["monitors", "image"]),
    ("scaleIO", &["gateway", "system", "volumeName"]),
    ("storageos", &["volumeName"]),
    ("vsphereVolume", &["volumePath"]),
];

const HOST_PATH_TYPES: &[&str] = &[
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
];

const MOST_DRIVER_LETTERS: usize = 63;

pub fn check(kind: &str, source: &Field<'_>, errors: &mut Errors) {
    // Kubernetes calls it by another name in errors.
    let renamed;
    let source = match kind {
        "gcePersistentDisk" => {
            let path = source.path.replace("gcePersistentDisk", "persistentDisk");
            renamed = Field {
                value: source.value,
                path,
            };
            &renamed
        }
        _ => source,
    };
    let needed = NEEDED.iter().find(|(name, _)| *name == kind);
    for name in needed.into_iter().flat_map(|(_, fields)| *fields) {
        errors.present(&source.at(name));
    }
    match kind {
        "hostPath" => host_path(source, errors),
        "awsElasticBlockStore" | "gcePersistentDisk" => {
            let partition = source.at("partition");
            if partition.number().is_some_and(|number| !(0..=255).contains(&number)) {
                errors.invalid(&partition, "must be between 1 and 255, inclusive");
            }
        }
        "azureDisk" => azure_disk(source, errors),
        "cinder" => secret_name(&source.at("secretRef"), errors),
        "csi" => csi(source, errors),
        "fc" => fibre_channel(source, errors),
        "flocker" => {
            let (name, id) = (source.at("datasetName"), source.at("datasetUUID"));
            match (name.is_empty(), id.is_empty()) {
                (true, true) => errors.required(source, "one of datasetName and datasetUUID is required"),
                (false, false) => {
                    let why = "datasetName and datasetUUID can not be specified simultaneously";
                    errors.invalid_value(source, "resource", why);
                }
                _ => {}
            }
            if name.text().contains('/') {
                errors.invalid(&name, "must not contain '/'");
            }
        }
        "gitRepo" => errors.descending_path(&source.at("directory")),
        "iscsi" => iscsi(source, errors),
        "nfs" => {
            let path = source.at("path");
            if !path.text().starts_with('/') {
                errors.invalid_value(&path, path.text(), "must be an absolute path");
            }
        }
        "quobyte" => quobyte(source, errors),
        "storageos" => {
            for name in ["volumeName", "volumeNamespace"] {
                errors.named_if_set(&source.at(name), names::dns1123_label);
            }
            secret_name(&source.at("secretRef"), errors);
        }
        _ => {}
    }
}

/// A path on the node that is there and does not climb.
fn host_path(source: &Field<'_>, errors: &mut Errors) {
    let path = source.at("path");
    if path.is_empty() {
        errors.required(&path, "");
        return;
    }
    errors.no_backsteps(&path);
    errors.one_of_if_set(&source.at("type"), HOST_PATH_TYPES);
}

fn secret_name(reference: &Field<'_>, errors: &mut Errors) {
    if reference.is_set() {
        errors.present(&reference.at("name"));
    }
}

fn azure_disk(source: &Field<'_>, errors: &mut Errors) {
    errors.one_of_if_set(&source.at("cachingMode"), &["None", "ReadOnly", "ReadWrite"]);
    let (kind, place) = (source.at("kind"), source.at("diskURI"));
    errors.one_of_if_set(&kind, &["Dedicated", "Managed", "Shared"]);
    let text = place.text().to_lowercase();
    let shape = match kind.text() {
        "Managed" if !text.starts_with("/subscriptions/") => {
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        }
        "Managed" => return,
        _ if !text.starts_with("https://") => {
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        }
        _ => return,
    };
    let value = serde_json::Value::from(place.text());
    let shown = Field {
        value: &value,
        path: place.path,
    };
    errors.unsupported(&shown, &[shape]);
}

fn csi(source: &Field<'_>, errors: &mut Errors) {
    let driver = source.at("driver");
    errors.present(&driver);
    errors.at_most(&driver, MOST_DRIVER_LETTERS);
    for complaint in names::dns1123_subdomain(&driver.text().to_lowercase()) {
        if !driver.is_empty() {
            errors.invalid(&driver, complaint);
        }
    }
    let secret = source.at("nodePublishSecretRef");
    secret_name(&secret, errors);
    let named = Field {
        value: secret.at("name").value,
        path: source.at("name").path,
    };
    errors.named_if_set(&named, names::dns1123_subdomain);
}

fn fibre_channel(source: &Field<'_>, errors: &mut Errors) {
    let (targets, ids, lun) = (source.at("targetWWNs"), source.at("wwids"), source.at("lun"));
    match (targets.is_empty(), ids.is_empty()) {
        (true, true) => errors.required(&targets, "must specify either targetWWNs or wwids, but not both"),
        (false, false) => errors.invalid(&targets, "targetWWNs and wwids can not be specified simultaneously"),
        _ => {}
    }
    if !targets.is_empty() {
        match lun.is_set() {
            false => errors.required(&lun, "lun is required if targetWWNs is specified"),
            true => unit(&lun, errors),
        }
    }
}

/// The number of a disk behind a controller.
fn unit(lun: &Field<'_>, errors: &mut Errors) {
    if lun.number().is_some_and(|number| !(0..=255).contains(&number)) {
        errors.invalid(lun, "must be between 0 and 255, inclusive");
    }
}

fn iscsi(source: &Field<'_>, errors: &mut Errors) {
    let (name, initiator) = (source.at("iqn"), source.at("initiatorName"));
    let known = |text: &str| ["iqn", "eui", "naa"].iter().any(|prefix| text.starts_with(prefix));
    const WHY: &str = "must be valid format starting with iqn, eui, or naa";
    if !name.is_empty() && !known(name.text()) {
        errors.invalid(&name, WHY);
    }
    unit(&source.at("lun"), errors);
    let asks = ["chapAuthDiscovery", "chapAuthSession"];
    if asks.iter().any(|name| source.at(name).is_true()) && !source.at("secretRef").is_set() {
        errors.required(&source.at("secretRef"), "");
    }
    if initiator.is_set() && !known(initiator.text()) {
        let shown = Field {
            value: initiator.value,
            path: source.at("initiatorname").path,
        };
        errors.invalid(&shown, WHY);
    }
}

fn quobyte(source: &Field<'_>, errors: &mut Errors) {
    const WHY: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = source.at("registry");
    if registry.is_empty() {
        errors.required(&registry, WHY);
        return;
    }
    let pair = |text: &str| {
        text.rsplit_once(':')
            .is_some_and(|(host, port)| !host.is_empty() && !port.is_empty())
    };
    if !registry.text().split(',').all(pair) {
        errors.invalid(&registry, WHY);
    }
}
