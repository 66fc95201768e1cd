//! What may be wrong with the environment of a container, and with what the downward API shows.

use super::check::{Errors, Field};
use std::collections::BTreeSet;
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

/// Fields of a container that the downward API shows.
const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// Fields of a pod that a variable may show.
const IN_VARIABLES: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// Fields of a pod that a file may show.
const IN_FILES: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Fields of a pod that have a name in the downward API, whether they can be shown or not.
const KNOWN: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.phase",
    "status.podIP",
    "status.podIPs",
];

/// Units that an amount of bytes may be shown in.
const UNITS: [&str; 13] = [
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// Where the downward API shows something.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Shown {
    InVariable,
    InFile,
}

pub fn check(container: &Field<'_>, errors: &mut Errors) {
    for variable in container.at("env").items() {
        errors.named(&variable.at("name"), variable_name);
        if variable.at("valueFrom").is_set() {
            source(&variable, errors);
        }
    }
    let list = container.at("envFrom");
    for all in list.items() {
        errors.named_if_set(&all.at("prefix"), variable_name);
        let (map, secret) = (all.at("configMapRef"), all.at("secretRef"));
        for reference in [&map, &secret] {
            if reference.is_set() {
                errors.named(&reference.at("name"), names::dns1123_subdomain);
            }
        }
        // Kubernetes names the list here, not the item.
        match (map.is_set(), secret.is_set()) {
            (false, false) => errors.invalid_value(&list, "", "must specify one of: `configMapRef` or `secretRef`"),
            (true, true) => errors.invalid_value(&list, "", "may not have more than one field specified at a time"),
            _ => {}
        }
    }
}

fn variable_name(name: &str) -> Vec<String> {
    match name.chars().all(|c| c.is_ascii() && !c.is_ascii_control() && c != '=') {
        true => Vec::new(),
        false => vec![
            "a valid environment variable name must consist only of printable ASCII characters other than '='".into(),
        ],
    }
}

fn source(variable: &Field<'_>, errors: &mut Errors) {
    let source = variable.at("valueFrom");
    let mut found = 0;
    for kind in [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ] {
        let reference = source.at(kind);
        if !reference.is_set() {
            continue;
        }
        found += 1;
        match kind {
            "fieldRef" => field(&reference, Shown::InVariable, errors),
            "resourceFieldRef" => resource(&reference, Shown::InVariable, errors),
            "fileKeyRef" => file(&reference, errors),
            _ => {
                // A reference without a name is as old as the API.
                errors.named_if_set(&reference.at("name"), names::dns1123_subdomain);
                if reference.at("name").is_empty() {
                    let name = reference.at("name");
                    for complaint in names::dns1123_subdomain("") {
                        errors.invalid_value(&name, "", complaint);
                    }
                }
                errors.named(&reference.at("key"), names::config_map_key);
            }
        }
    }
    match found {
        0 => errors.invalid_value(
            &source,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        ),
        _ if !variable.at("value").is_empty() => {
            errors.invalid_value(&source, "", "may not be specified when `value` is not empty");
        }
        1 => {}
        _ => errors.invalid_value(&source, "", "may not have more than one field specified at a time"),
    }
}

/// A field of the pod.
pub fn field(reference: &Field<'_>, shown: Shown, errors: &mut Errors) {
    let path = reference.at("fieldPath");
    if path.is_empty() {
        errors.required(&path, "");
        return;
    }
    let subscript = path.text().strip_suffix("']").and_then(|text| text.split_once("['"));
    match subscript {
        Some(("metadata.annotations", key)) => named(reference, &key.to_lowercase(), errors),
        Some(("metadata.labels", key)) => named(reference, key, errors),
        _ if !KNOWN.contains(&path.text()) => errors.invalid(
            &path,
            format!("error converting fieldPath: field label not supported: {}", path.text()),
        ),
        _ => {
            let allowed = match shown {
                Shown::InVariable => IN_VARIABLES,
                Shown::InFile => IN_FILES,
            };
            errors.one_of(&path, allowed);
        }
    }
}

fn named(reference: &Field<'_>, key: &str, errors: &mut Errors) {
    for complaint in names::qualified_name(key) {
        errors.invalid_value(reference, key, complaint);
    }
}

/// An amount that a container asks for or is limited to.
pub fn resource(reference: &Field<'_>, shown: Shown, errors: &mut Errors) {
    let (container, resource) = (reference.at("containerName"), reference.at("resource"));
    let huge = ["requests.hugepages-", "limits.hugepages-"]
        .iter()
        .any(|prefix| resource.text().starts_with(prefix));
    match resource.text() {
        _ if shown == Shown::InFile && container.is_empty() => errors.required(&container, ""),
        "" => errors.required(&resource, ""),
        text if RESOURCES.contains(&text) || huge => {}
        _ => errors.unsupported(&resource, RESOURCES),
    }
    let Ok(divisor) = reference.at("divisor").text().parse::<Quantity>() else {
        return;
    };
    let bytes = "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the";
    let written = divisor.to_string();
    let why = match resource.text() {
        _ if divisor.is_zero() => return,
        "limits.cpu" | "requests.cpu" if !["1m", "1"].contains(&written.as_str()) => {
            "only divisor's values 1m and 1 are supported with the cpu resource".to_string()
        }
        _ if UNITS.contains(&written.as_str()) => return,
        "limits.memory" | "requests.memory" => format!("only divisor's values {bytes} memory resource"),
        "limits.ephemeral-storage" | "requests.ephemeral-storage" => {
            format!("only divisor's values {bytes} local ephemeral storage resource")
        }
        _ if huge => format!("only divisor's values {bytes} hugepages resource"),
        _ => return,
    };
    errors.invalid_value(&reference.at("divisor"), resource.text(), why);
}

/// A line of a file in a volume.
fn file(reference: &Field<'_>, errors: &mut Errors) {
    errors.named(&reference.at("key"), variable_name);
    errors.named(&reference.at("volumeName"), names::dns1123_label);
    errors.present(&reference.at("path"));
    errors.no_backsteps(&reference.at("path"));
}

/// Files that variables come from are in volumes that begin empty.
pub fn files(spec: &Field<'_>, errors: &mut Errors) {
    let known: Vec<Field<'_>> = spec.at("volumes").items().collect();
    let empty: BTreeSet<&str> = known
        .iter()
        .filter(|volume| volume.at("emptyDir").is_set())
        .map(|volume| volume.at("name").text())
        .collect();
    let known: BTreeSet<&str> = known.iter().map(|volume| volume.at("name").text()).collect();
    for list in ["initContainers", "containers", "ephemeralContainers"] {
        for container in spec.at(list).items() {
            for variable in container.at("env").items() {
                let reference = variable.at("valueFrom").at("fileKeyRef");
                let name = reference.at("volumeName");
                if !reference.is_set() || empty.contains(name.text()) {
                    continue;
                }
                match known.contains(name.text()) {
                    true => errors.invalid(&name, "referenced volume must be of type emptyDir"),
                    false => errors.not_found(&name),
                }
            }
        }
    }
}
