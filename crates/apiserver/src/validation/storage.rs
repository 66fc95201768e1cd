//! What may be wrong with volumes, claims and storage classes.

use super::check::{Errors, Field};
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// What a volume can be made of. Where there are several, the first in this order is the one that counts.
const SOURCES: &[&str] = &[
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

/// What a volume is made of, as a value of its own.
pub fn volume_source(spec: &Field<'_>) -> serde_json::Value {
    let sources = spec.entries().filter(|(name, _)| SOURCES.contains(name));
    sources
        .map(|(name, field)| (name.to_string(), field.value.clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

pub fn volume(volume: &Field<'_>, errors: &mut Errors) {
    let spec = volume.at("spec");
    errors.present(&spec.at("accessModes"));
    access_modes(&spec.at("accessModes"), errors);
    let capacity = spec.at("capacity");
    if capacity.is_empty() {
        errors.required(&capacity, "");
    }
    if capacity.value.get("storage").is_none() || capacity.entries().count() > 1 {
        errors.unsupported(&capacity, &["storage"]);
    }
    errors.one_of_if_set(
        &spec.at("persistentVolumeReclaimPolicy"),
        &["Delete", "Recycle", "Retain"],
    );
    for (name, amount) in capacity.entries() {
        let shown = capacity.key(name);
        match amount.text().parse::<Quantity>() {
            Ok(quantity) if quantity.is_negative() => {
                errors.invalid(&shown, "must be a valid resource quantity");
                errors.invalid(&shown, "must be greater than zero");
            }
            Ok(quantity) if quantity.is_zero() => errors.invalid(&shown, "must be greater than zero"),
            _ => {}
        }
    }
    sources(&spec, errors);
    errors.named_if_set(&spec.at("storageClassName"), names::dns1123_subdomain);
    errors.one_of_if_set(&spec.at("volumeMode"), &["Block", "Filesystem"]);
    let nodes = spec.at("nodeAffinity");
    if nodes.is_set() && !nodes.at("required").is_set() {
        errors.required(&nodes.at("required"), "must specify required node constraints");
    }
    super::scheduling::node_selector(&nodes.at("required"), errors);
    let attributes = spec.at("volumeAttributesClassName");
    if attributes.is_set() {
        errors.named(&attributes, names::dns1123_subdomain);
        if !spec.at("csi").is_set() {
            errors.required(
                &spec.at("csi"),
                "has to be specified when using volumeAttributesClassName",
            );
        }
    }
}

/// A volume is made of one thing.
fn sources(spec: &Field<'_>, errors: &mut Errors) {
    let mut found = 0;
    for name in SOURCES.iter().copied().filter(|name| !spec.value[name].is_null()) {
        found += 1;
        match found {
            // Kubernetes forgot to count before this one.
            _ if name == "flexVolume" => super::volumes::source(name, &spec.at(name), errors),
            1 => super::volumes::source(name, &spec.at(name), errors),
            _ => super::volumes::one_too_many(name, spec, errors),
        }
    }
    if found == 0 {
        errors.required(spec, "must specify a volume type");
    }
}

fn access_modes(modes: &Field<'_>, errors: &mut Errors) {
    for mode in modes.value.as_array().into_iter().flatten() {
        // The list is named, with the value of its item.
        let field = Field {
            value: mode,
            path: modes.path.clone(),
        };
        errors.one_of(&field, ACCESS_MODES);
    }
}

pub fn claim(claim: &Field<'_>, errors: &mut Errors) {
    claim_spec(&claim.at("spec"), errors);
}

/// What a claim asks for, also where a pod or a set makes it.
pub fn claim_spec(spec: &Field<'_>, errors: &mut Errors) {
    let modes = spec.at("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    access_modes(&modes, errors);
    let single = modes.items().any(|mode| mode.text() == "ReadWriteOncePod");
    if single && modes.items().count() > 1 {
        errors.forbidden(&modes, "may not use ReadWriteOncePod with other access modes");
    }
    errors.selector(&spec.at("selector"));
    let requested = spec.at("resources").at("requests").at("storage");
    let shown = Field {
        value: requested.value,
        path: format!("{}[storage]", spec.at("resources").path),
    };
    match requested.text().parse::<Quantity>() {
        _ if !requested.is_set() => errors.required(&shown, ""),
        Ok(amount) if amount.is_zero() || amount.is_negative() => errors.invalid(&shown, "must be greater than zero"),
        Ok(_) => {}
        Err(_) => errors.invalid(&shown, "must be a quantity"),
    }
    errors.named_if_set(&spec.at("storageClassName"), names::dns1123_subdomain);
    errors.one_of_if_set(&spec.at("volumeMode"), &["Block", "Filesystem"]);
    data_source(&spec.at("dataSource"), errors);
    data_source(&spec.at("dataSourceRef"), errors);
    errors.named_if_set(&spec.at("dataSourceRef").at("namespace"), names::dns1123_label);
    let (old, new) = (spec.at("dataSource"), spec.at("dataSourceRef"));
    if old.is_set() && new.is_set() {
        let same = |name: &str| old.at(name).value == new.at(name).value;
        if !new.at("namespace").is_empty() {
            errors.invalid(spec, "may not be specified when dataSourceRef.namespace is specified");
        } else if !["apiGroup", "kind", "name"].into_iter().all(same) {
            errors.invalid(spec, "must match dataSourceRef");
        }
    }
    errors.named_if_set(&spec.at("volumeAttributesClassName"), names::dns1123_subdomain);
}

/// What the new volume begins with.
fn data_source(source: &Field<'_>, errors: &mut Errors) {
    if !source.is_set() {
        return;
    }
    let (kind, group) = (source.at("kind"), source.at("apiGroup"));
    errors.present(&source.at("name"));
    errors.present(&kind);
    if group.is_empty() && kind.text() != "PersistentVolumeClaim" {
        let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
        errors.invalid_value(source, kind.text(), why);
    }
    errors.named_if_set(&group, names::dns1123_subdomain);
}

pub fn csi_driver(driver: &Field<'_>, errors: &mut Errors) {
    let spec = driver.at("spec");
    errors.one_of_if_set(&spec.at("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"]);
    for mode in spec.at("volumeLifecycleModes").items() {
        // The list is named, with the value of its item.
        let field = Field {
            value: mode.value,
            path: spec.at("volumeLifecycleModes").path,
        };
        errors.one_of(&field, &["Persistent", "Ephemeral"]);
    }
    let period = spec.at("nodeAllocatableUpdatePeriodSeconds");
    if period.number().is_some_and(|seconds| seconds < 10) {
        errors.invalid(&period, "must be greater than or equal to 10 seconds");
    }
    let secrets = spec.at("serviceAccountTokenInSecrets");
    if secrets.is_set() && spec.at("tokenRequests").is_empty() {
        let why = "serviceAccountTokenInSecrets is set but no tokenRequests are specified";
        errors.invalid(&secrets, why);
    }
    for request in spec.at("tokenRequests").items() {
        let seconds = request.at("expirationSeconds");
        if seconds.number().is_some_and(|seconds| seconds < 600) {
            errors.invalid(&seconds, "may not specify a duration less than 10 minutes");
        }
    }
}

pub fn csi_node(node: &Field<'_>, errors: &mut Errors) {
    let drivers = node.at("spec").at("drivers");
    errors.unique(&drivers, "name");
    for driver in drivers.items() {
        let name = driver.at("name");
        errors.named(&name, |text| names::dns1123_subdomain(&text.to_lowercase()));
        errors.present(&driver.at("nodeID"));
        errors.not_negative(&driver.at("allocatable").at("count"));
        let mut seen = std::collections::BTreeSet::new();
        for key in driver.at("topologyKeys").items() {
            // Kubernetes names the driver, with the value of its key.
            let shown = Field {
                value: key.value,
                path: driver.path.clone(),
            };
            match key.is_empty() {
                true => errors.required(&shown, ""),
                false if !seen.insert(key.text()) => errors.duplicate(&shown),
                false => {}
            }
            errors.label_name(&shown);
        }
    }
}

pub fn attachment(attachment: &Field<'_>, errors: &mut Errors) {
    const ONE: &str = "must specify exactly one of inlineVolumeSpec and persistentVolumeName";
    let spec = attachment.at("spec");
    let (attacher, node, source) = (spec.at("attacher"), spec.at("nodeName"), spec.at("source"));
    errors.named(&attacher, |text| names::dns1123_subdomain(&text.to_lowercase()));
    for complaint in names::dns1123_subdomain(node.text()) {
        errors.invalid_value(&node, node.text(), complaint);
    }
    let (inline, volume) = (source.at("inlineVolumeSpec"), source.at("persistentVolumeName"));
    match (inline.is_set(), volume.is_set()) {
        (false, false) => errors.required(&source, ONE),
        (true, true) => errors.forbidden(&source, ONE),
        (false, true) => {
            if volume.is_empty() {
                errors.required(&volume, "must specify non empty persistentVolumeName");
            }
            errors.complaints(&volume, names::dns1123_subdomain(volume.text()));
        }
        (true, false) => {}
    }
}

pub fn class(class: &Field<'_>, errors: &mut Errors) {
    let provisioner = class.at("provisioner");
    match provisioner.text() {
        "" => errors.required(&provisioner, ""),
        text => errors.complaints(&provisioner, names::qualified_name(&text.to_lowercase())),
    }
    errors.one_of_if_set(&class.at("reclaimPolicy"), &["Delete", "Retain"]);
    errors.one_of(&class.at("volumeBindingMode"), &["Immediate", "WaitForFirstConsumer"]);
    for term in class.at("allowedTopologies").items() {
        for expression in term.at("matchLabelExpressions").items() {
            let (key, values) = (expression.at("key"), expression.at("values"));
            if values.is_empty() {
                errors.required(&values, "");
            }
            errors.complaints(&key, names::qualified_name(key.text()));
        }
    }
}
