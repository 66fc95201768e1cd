//! What may be wrong with the volumes of a pod.

use super::check::{Errors, Field};
use std::collections::BTreeSet;
use stead_machinery::names;

/// Checks volumes and gives the names of the good ones, which mounts refer to.
pub fn check(volumes: &Field<'_>, errors: &mut Errors) -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    for volume in volumes.items() {
        let name = volume.at("name");
        let before = errors.0.len();
        source(&volume, errors);
        match name.text() {
            "" => errors.required(&name, ""),
            text => {
                errors.complaints(&name, names::dns1123_label(text));
                if known.contains(text) {
                    errors.duplicate(&name);
                }
            }
        }
        if errors.0.len() == before {
            known.insert(name.text().to_string());
        }
    }
    known
}

/// A path on the node that is there and does not climb.
pub fn host_path(source: &Field<'_>, errors: &mut Errors) {
    let path = source.at("path");
    errors.present(&path);
    if path.text().split('/').any(|part| part == "..") {
        errors.invalid(&path, "must not contain '..'");
    }
}

fn source(volume: &Field<'_>, errors: &mut Errors) {
    let mut found = 0;
    for (kind, _) in volume
        .entries()
        .filter(|(kind, value)| *kind != "name" && value.is_set())
    {
        let source = volume.at(kind);
        found += 1;
        if found > 1 {
            errors.forbidden(&source, "may not specify more than 1 volume type");
            continue;
        }
        match kind {
            "hostPath" => host_path(&source, errors),
            "secret" => {
                errors.present(&source.at("secretName"));
                mode(&source, errors);
            }
            "configMap" => {
                errors.present(&source.at("name"));
                mode(&source, errors);
            }
            "persistentVolumeClaim" => errors.present(&source.at("claimName")),
            "downwardAPI" | "projected" => mode(&source, errors),
            "csi" => errors.present(&source.at("driver")),
            "nfs" => {
                errors.present(&source.at("server"));
                errors.present(&source.at("path"));
            }
            _ => {}
        }
    }
    if found == 0 {
        errors.required(volume, "must specify a volume type");
    }
}

fn mode(source: &Field<'_>, errors: &mut Errors) {
    let mode = source.at("defaultMode");
    if mode.number().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        errors.invalid(&mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}
