//! What may be wrong with volumes, claims and storage classes.

use super::check::{Errors, Field};
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

const ACCESS_MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];

/// Fields of a volume's spec that are not its source.
const NOT_A_SOURCE: [&str; 9] = [
    "accessModes",
    "capacity",
    "claimRef",
    "mountOptions",
    "nodeAffinity",
    "persistentVolumeReclaimPolicy",
    "storageClassName",
    "volumeAttributesClassName",
    "volumeMode",
];

/// What a volume is made of, as a value of its own.
pub fn volume_source(spec: &Field<'_>) -> serde_json::Value {
    let sources = spec.entries().filter(|(name, _)| !NOT_A_SOURCE.contains(name));
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
    if spec.at("hostPath").is_set() {
        super::volumes::host_path(&spec.at("hostPath"), errors);
    }
    let sources = spec.entries().filter(|(name, _)| !NOT_A_SOURCE.contains(name)).count();
    if sources == 0 {
        errors.required(&spec, "must specify a volume type");
    }
    errors.named_if_set(&spec.at("storageClassName"), names::dns1123_subdomain);
    errors.one_of_if_set(&spec.at("volumeMode"), &["Block", "Filesystem"]);
    let required = spec.at("nodeAffinity").at("required");
    if required.is_set() && required.at("nodeSelectorTerms").is_empty() {
        errors.required(
            &required.at("nodeSelectorTerms"),
            "must have at least one node selector term",
        );
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
    let spec = claim.at("spec");
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
