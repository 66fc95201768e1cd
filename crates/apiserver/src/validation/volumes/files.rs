//! What may be wrong with volumes whose files come from the API.

use crate::validation::check::{Errors, Field};
use crate::validation::environment::{self, Shown};
use std::collections::BTreeSet;

const SHORTEST_TOKEN: i64 = 10 * 60;
const LONGEST_TOKEN: i64 = 1 << 32;

/// A volume of the keys of one object.
pub fn keyed(source: &Field<'_>, name: &str, errors: &mut Errors) {
    errors.present(&source.at(name));
    mode(&source.at("defaultMode"), errors);
    for item in source.at("items").items() {
        key_to_path(&item, errors);
    }
}

pub fn mode(mode: &Field<'_>, errors: &mut Errors) {
    if mode.number().is_some_and(|bits| !(0..=0o777).contains(&bits)) {
        errors.invalid(mode, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

fn key_to_path(item: &Field<'_>, errors: &mut Errors) {
    errors.present(&item.at("key"));
    errors.present(&item.at("path"));
    free_path(&item.at("path"), errors);
    mode(&item.at("mode"), errors);
}

/// A path below the volume that does not begin like the names that the node keeps for itself.
fn free_path(path: &Field<'_>, errors: &mut Errors) {
    errors.descending_path(path);
    if path.text().starts_with("..") && !path.text().starts_with("../") {
        errors.invalid(path, "must not start with '..'");
    }
}

/// One file of the downward API; Kubernetes names the volume, not the file.
pub fn downward(item: &Field<'_>, volume: &Field<'_>, errors: &mut Errors) {
    let file = Field {
        value: item.value,
        path: volume.path.clone(),
    };
    errors.present(&file.at("path"));
    free_path(&file.at("path"), errors);
    let (field, resource) = (file.at("fieldRef"), file.at("resourceFieldRef"));
    match (field.is_set(), resource.is_set()) {
        (true, other) => {
            environment::field(&field, Shown::InFile, errors);
            if other {
                let why = "fieldRef and resourceFieldRef can not be specified simultaneously";
                errors.invalid_value(&file, "resource", why);
            }
        }
        (false, true) => environment::resource(&resource, Shown::InFile, errors),
        (false, false) => errors.required(&file, "one of fieldRef and resourceFieldRef is required"),
    }
    mode(&file.at("mode"), errors);
}

/// Several sources in one volume.
pub fn projected(volume: &Field<'_>, errors: &mut Errors) {
    mode(&volume.at("defaultMode"), errors);
    let mut taken = BTreeSet::new();
    for source in volume.at("sources").items() {
        for name in ["secret", "configMap"] {
            let object = source.at(name);
            if !object.is_set() {
                continue;
            }
            errors.present(&object.at("name"));
            for item in object.at("items").items() {
                key_to_path(&item, errors);
                let path = item.at("path").text();
                if !path.is_empty() && !taken.insert(path) {
                    errors.invalid_value(volume, object.at("name").text(), "conflicting duplicate paths");
                }
            }
        }
        for item in source.at("downwardAPI").at("items").items() {
            downward(&item, &source.at("downwardAPI"), errors);
            let path = item.at("path").text();
            if !path.is_empty() && !taken.insert(path) {
                errors.invalid_value(volume, path, "conflicting duplicate paths");
            }
        }
        token(&source.at("serviceAccountToken"), volume, errors);
        let sources = source.entries().filter(|(_, value)| value.is_set()).count();
        if sources > 1 {
            errors.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

fn token(token: &Field<'_>, volume: &Field<'_>, errors: &mut Errors) {
    if !token.is_set() {
        return;
    }
    let seconds = token.at("expirationSeconds");
    match seconds.number().unwrap_or_default() {
        short if short < SHORTEST_TOKEN => {
            errors.invalid_value(&seconds, short, "may not specify a duration less than 10 minutes");
        }
        long if long > LONGEST_TOKEN => {
            errors.invalid(&seconds, "may not specify a duration larger than 2^32 seconds");
        }
        _ => {}
    }
    // The volume is named, not its source.
    let path = Field {
        value: token.at("path").value,
        path: volume.at("path").path,
    };
    errors.present(&path);
    free_path(&path, errors);
}
