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

/// What quotas count besides objects of any kind.
const KNOWN_QUOTAS: [&str; 13] = [
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

pub fn resource_quota(quota: &Field<'_>, errors: &mut Errors) {
    quota_amounts(&quota.at("spec").at("hard"), errors);
}

pub fn quota_status(quota: &Field<'_>, errors: &mut Errors) {
    quota_amounts(&quota.at("status").at("hard"), errors);
    quota_amounts(&quota.at("status").at("used"), errors);
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

fn quota_amounts(amounts: &Field<'_>, errors: &mut Errors) {
    for (name, amount) in amounts.entries() {
        let prefixed = ["requests.", "limits.", "count/"]
            .iter()
            .any(|prefix| name.starts_with(prefix));
        if !KNOWN_QUOTAS.contains(&name) && !prefixed && !name.contains('/') && !name.starts_with("hugepages-") {
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

/// What else may be wrong with one limit.
fn limit(limit: &Field<'_>, errors: &mut Errors) {
    let kind = limit.at("type");
    let standard = ["Container", "Pod", "PersistentVolumeClaim"].contains(&kind.text());
    if !standard && !kind.text().contains('/') {
        for complaint in names::qualified_name(kind.text()) {
            errors.invalid(&kind, complaint);
        }
        errors.invalid(&kind, "must be a standard limit type or fully qualified");
    }
    for list in ["max", "min", "default", "defaultRequest", "maxLimitRequestRatio"] {
        let amounts = limit.at(list);
        if kind.text() == "Pod" && list.starts_with("default") {
            if !amounts.is_empty() {
                errors.forbidden(&amounts, "may not be specified when `type` is 'Pod'");
            }
            continue;
        }
        for (name, amount) in amounts.entries() {
            let known = match kind.text() {
                "Pod" | "Container" => ["cpu", "memory", "ephemeral-storage"].contains(&name),
                _ => true,
            };
            if !known && !name.contains('/') && !name.starts_with("hugepages-") {
                let detail = "must be a standard resource type or fully qualified";
                errors.invalid_value(&amount, name, detail);
            }
        }
    }
    let stored = |list: &str| limit.at(list).value.get("storage").is_some();
    if kind.text() == "PersistentVolumeClaim" && !stored("min") && !stored("max") {
        let detail = "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&limit.at("limits"), detail);
    }
    let amount = |list: &str, name: &str| limit.value[list][name].as_str()?.parse::<Quantity>().ok();
    let upper = [
        ("defaultRequest", "default request", "max", "max"),
        ("defaultRequest", "default request", "default", "default limit"),
        ("default", "default", "max", "max"),
    ];
    for (list, words, bound_list, bound_words) in upper {
        for (name, field) in limit.at(list).entries().filter(|_| kind.text() != "Pod") {
            let (Some(value), Some(bound)) = (amount(list, name), amount(bound_list, name)) else {
                continue;
            };
            if value > bound {
                let detail = format!("{words} value {value} is greater than {bound_words} value {bound}");
                // Kubernetes shows the bound for a default, and the value for a default request.
                let shown = if list == "default" {
                    bound.to_string()
                } else {
                    value.to_string()
                };
                errors.invalid_value(&field, shown, detail);
            }
        }
    }
    for (name, field) in limit.at("maxLimitRequestRatio").entries() {
        let one: Option<Quantity> = "1".parse().ok();
        if let (Some(ratio), Some(one)) = (amount("maxLimitRequestRatio", name), one)
            && ratio < one
        {
            errors.invalid(&field, format!("ratio {ratio} is less than 1"));
        }
    }
}

pub fn limit_range(range: &Field<'_>, errors: &mut Errors) {
    let limits = range.at("spec").at("limits");
    errors.unique(&limits, "type");
    for limit in limits.items() {
        self::limit(&limit, errors);
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
    let all: Vec<Field<'_>> = taints.items().collect();
    for (index, taint) in all.iter().enumerate() {
        let same = |other: &Field<'_>| {
            other.value["key"] == taint.value["key"] && other.value["effect"] == taint.value["effect"]
        };
        if all[..index].iter().any(same) {
            errors.duplicate_because(taint, "taints must be unique by key and effect pair");
        }
    }
    for taint in all {
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
    super::pods::tolerations(&scheduling.at("tolerations"), errors);
}
