//! What may be wrong with configuration, quotas, nodes and the small kinds.

use super::check::{Errors, Field};
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

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

pub fn resource_quota(quota: &Field<'_>, errors: &mut Errors) {
    const KNOWN: [&str; 13] = [
        "cpu",
        "memory",
        "ephemeral-storage",
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "services.nodeports",
        "services.loadbalancers",
        "storage",
    ];
    for (name, amount) in quota.at("spec").at("hard").entries() {
        let prefixed = ["requests.", "limits.", "count/"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if !KNOWN.contains(&name) && !prefixed && !name.contains('/') && !name.starts_with("hugepages-") {
            errors.invalid_value(&amount, name, "must be a standard resource type or fully qualified");
            errors.invalid_value(&amount, name, "must be a standard resource for quota");
        }
        if amount
            .text()
            .parse::<Quantity>()
            .is_ok_and(|quantity| quantity.is_negative())
        {
            errors.invalid(&amount, "must be greater than or equal to 0");
        }
    }
}

pub fn limit_range(range: &Field<'_>, errors: &mut Errors) {
    let limits = range.at("spec").at("limits");
    errors.unique(&limits, "type");
    for limit in limits.items() {
        let amount = |list: &str, name: &str| {
            let text = limit.value[list][name].as_str()?;
            text.parse::<Quantity>()
                .ok()
                .map(|quantity| (quantity, text.to_string()))
        };
        for (name, field) in limit.at("min").entries() {
            let Some((least, shown)) = amount("min", name) else {
                continue;
            };
            for (list, words) in [
                ("max", "max"),
                ("defaultRequest", "default request"),
                ("default", "default"),
            ] {
                let Some((bound, bound_shown)) = amount(list, name).filter(|(bound, _)| least > *bound) else {
                    continue;
                };
                let detail = format!("min value {shown} is greater than {words} value {bound}");
                match list {
                    "max" => errors.invalid(&field, detail),
                    "defaultRequest" => errors.invalid_value(&limit.at(list).key(name), bound_shown, detail),
                    _ => errors.invalid_value(&limit.at(list).key(name), shown.clone(), detail),
                }
            }
        }
    }
}

pub fn node(node: &Field<'_>, errors: &mut Errors) {
    // Kubernetes reports taints below the metadata, and clients may match on it.
    let taints = Field {
        value: node.at("spec").at("taints").value,
        path: "metadata.taints".to_string(),
    };
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
    errors.one_of_if_set(&class.at("preemptionPolicy"), &["Never", "PreemptLowerPriority"]);
}

pub fn lease(lease: &Field<'_>, errors: &mut Errors) {
    let spec = lease.at("spec");
    let duration = spec.at("leaseDurationSeconds");
    if duration.number().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&duration, "must be greater than 0");
    }
    errors.not_negative(&spec.at("leaseTransitions"));
}

pub fn runtime_class(class: &Field<'_>, errors: &mut Errors) {
    let handler = class.at("handler");
    errors.complaints(&handler, names::dns1123_label(handler.text()));
}
