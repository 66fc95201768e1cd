//! What may be wrong with configuration, quotas, nodes and the small kinds.

use super::check::{Errors, Field};
use super::resources;
use std::collections::BTreeSet;
use stead_machinery::names;

/// Bytes that all values of a ConfigMap or Secret have together.
const MOST_DATA: usize = 1024 * 1024;

pub fn config_map(map: &Field<'_>, errors: &mut Errors) {
    let (data, binary) = (map.at("data"), map.at("binaryData"));
    let mut bytes = 0;
    for (key, value) in data.entries() {
        key_complaints(key, &value, errors);
        if binary.value.get(key).is_some() {
            errors.invalid_value(&value, key, "duplicate of key present in binaryData");
        }
        bytes += value.text().len();
    }
    for (key, value) in binary.entries() {
        key_complaints(key, &value, errors);
        bytes += value.text().len() / 4 * 3;
    }
    too_long(bytes, errors);
}

fn key_complaints(key: &str, field: &Field<'_>, errors: &mut Errors) {
    for complaint in names::config_map_key(key) {
        errors.invalid_value(field, key, complaint);
    }
}

fn too_long(bytes: usize, errors: &mut Errors) {
    if bytes > MOST_DATA {
        errors.0.push(stead_machinery::field::FieldError::new(
            "",
            stead_machinery::field::FieldErrorKind::TooLong,
            "".into(),
            format!("may not be more than {MOST_DATA} bytes"),
        ));
    }
}

pub fn secret(secret: &Field<'_>, errors: &mut Errors) {
    let data = secret.at("data");
    let mut bytes = 0;
    for (key, value) in data.entries() {
        key_complaints(key, &value, errors);
        bytes += value.text().len() / 4 * 3;
    }
    too_long(bytes, errors);
    let mut need = |keys: &[&str]| {
        for key in keys.iter().filter(|key| data.value.get(**key).is_none()) {
            errors.required(&data.key(key), "");
        }
    };
    match secret.at("type").text() {
        "kubernetes.io/dockerconfigjson" => need(&[".dockerconfigjson"]),
        "kubernetes.io/dockercfg" => need(&[".dockercfg"]),
        "kubernetes.io/tls" => need(&["tls.crt", "tls.key"]),
        "kubernetes.io/ssh-auth" => need(&["ssh-privatekey"]),
        "kubernetes.io/basic-auth" => {
            let has = |key: &str| data.value.get(key).is_some();
            if !has("username") && !has("password") {
                need(&["username", "password"]);
            }
        }
        "kubernetes.io/service-account-token" => {
            let name = secret
                .at("metadata")
                .at("annotations")
                .key("kubernetes.io/service-account.name");
            errors.present(&name);
        }
        _ => {}
    }
}

/// A namespace shows that it is going when it is, and only then.
pub fn namespace_status(namespace: &Field<'_>, errors: &mut Errors) {
    let going = !namespace.at("metadata").at("deletionTimestamp").is_empty();
    let phase = namespace.at("status").at("phase");
    let phase = Field {
        value: phase.value,
        path: "status.Phase".to_string(),
    };
    let why = match (going, phase.text()) {
        (false, "Active") | (true, "Terminating") => return,
        (false, _) => "may only be 'Active' if `deletionTimestamp` is empty",
        (true, _) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
    };
    errors.invalid_value(&phase, phase.text(), why);
}

pub fn controller_revision(revision: &Field<'_>, errors: &mut Errors) {
    errors.not_negative(&revision.at("revision"));
}

/// What a new revision keeps is an object.
pub fn revision_data(revision: &Field<'_>, errors: &mut Errors) {
    let data = revision.at("data");
    if !data.is_set() {
        errors.required(&data, "data is mandatory");
    } else if !data.value.is_object() {
        errors.required(&data, "data must be a valid JSON object");
    }
}

pub fn node(node: &Field<'_>, errors: &mut Errors) {
    // Kubernetes reports taints below the metadata, and clients may match on it.
    let taints = Field {
        value: node.at("spec").at("taints").value,
        path: "metadata.taints".to_string(),
    };
    let mut seen = BTreeSet::new();
    for taint in taints.items() {
        if !seen.insert((taint.at("key").text(), taint.at("effect").text())) {
            errors.duplicate_because(&taint, "taints must be unique by key and effect pair");
        }
    }
    for taint in taints.items() {
        let (key, effect) = (taint.at("key"), taint.at("effect"));
        for complaint in names::qualified_name(key.text()) {
            errors.invalid_value(&key, key.text(), complaint);
        }
        errors.complaints(&taint.at("value"), names::label_value(taint.at("value").text()));
        match effect.text() {
            "" => errors.required(&effect, ""),
            _ => errors.one_of(&effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
        }
    }
    for cidr in node.at("spec").at("podCIDRs").items() {
        errors.cidr(&cidr);
    }
}

pub fn priority_class(class: &Field<'_>, errors: &mut Errors) {
    /// Above this, classes belong to the system.
    const HIGHEST: i64 = 1_000_000_000;
    let name = class.at("metadata").at("name");
    let known = ["system-node-critical", "system-cluster-critical"];
    if name.text().starts_with("system-") {
        if !known.contains(&name.text()) {
            errors.forbidden(
                &name,
                format!(
                    "priority class names with 'system-' prefix are reserved for system use only. error: {} is not a \
                     known system priority class",
                    name.text()
                ),
            );
        }
    } else if class.at("value").number().is_some_and(|value| value > HIGHEST) {
        errors.forbidden(
            &class.at("value"),
            format!("maximum allowed value of a user defined priority is {HIGHEST}"),
        );
    }
    errors.one_of_if_set(&class.at("preemptionPolicy"), &["PreemptLowerPriority", "Never"]);
}

pub fn lease(lease: &Field<'_>, errors: &mut Errors) {
    let spec = lease.at("spec");
    let duration = spec.at("leaseDurationSeconds");
    if duration.number().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&duration, "must be greater than 0");
    }
    errors.not_negative(&spec.at("leaseTransitions"));
    let (strategy, preferred) = (spec.at("strategy"), spec.at("preferredHolder"));
    if !preferred.is_empty() && strategy.is_empty() {
        errors.forbidden(&preferred, "may only be specified if `strategy` is defined");
    }
}

/// Events that say when they happened in the old way belong to the namespace of what they are about.
pub fn event(event: &Field<'_>, errors: &mut Errors) {
    let about = event.at("involvedObject").at("namespace");
    let namespace = event.at("metadata").at("namespace");
    let agree = match (event.at("eventTime").is_set(), about.text()) {
        (false, "") => matches!(namespace.text(), "" | "default"),
        (false, about) => about == namespace.text(),
        (true, "") => matches!(namespace.text(), "default" | "kube-system"),
        (true, _) => true,
    };
    if !agree {
        errors.invalid_value(&about, about.text(), "does not match event.namespace");
    }
}

pub fn runtime_class(class: &Field<'_>, errors: &mut Errors) {
    errors.named(&class.at("handler"), names::dns1123_label);
    let scheduling = class.at("scheduling");
    errors.labels(&scheduling.at("nodeSelector"));
    resources::overhead(
        &Field {
            value: class.at("overhead").at("podFixed").value,
            path: class.at("overhead").path,
        },
        errors,
    );
    super::scheduling::tolerations(&scheduling.at("tolerations"), errors);
}
