//! What may be wrong with the kinds that make pods.

use super::check::{Errors, Field};
use super::pods;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use stead_machinery::selector::LabelSelector;

pub fn deployment(deployment: &Field<'_>, errors: &mut Errors) {
    let spec = deployment.at("spec");
    errors.not_negative(&spec.at("replicas"));
    if let Selector::Usable = selected_template(&spec, "deployment", errors) {
        always_restarts(&spec, "ReplicaSet", errors);
    }
    let strategy = spec.at("strategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "Recreate" if rolling.is_set() => {
            errors.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
        }
        "Recreate" => {}
        "RollingUpdate" => {
            count_or_percent(&rolling.at("maxUnavailable"), errors);
            count_or_percent(&rolling.at("maxSurge"), errors);
            not_above_all(&rolling.at("maxUnavailable"), errors);
            if is_zero(&rolling.at("maxUnavailable")) && is_zero(&rolling.at("maxSurge")) {
                errors.invalid(&rolling.at("maxUnavailable"), "may not be 0 when `maxSurge` is 0");
            }
        }
        _ => errors.unsupported(&strategy, &["Recreate", "RollingUpdate"]),
    }
    errors.not_negative(&spec.at("minReadySeconds"));
    errors.not_negative(&spec.at("revisionHistoryLimit"));
    let deadline = spec.at("progressDeadlineSeconds");
    errors.not_negative(&deadline);
    let ready = spec.at("minReadySeconds").number().unwrap_or_default();
    if deadline.number().is_some_and(|seconds| seconds <= ready) {
        errors.invalid(&deadline, "must be greater than minReadySeconds");
    }
}

pub fn replica_set(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.at("spec");
    errors.not_negative(&spec.at("replicas"));
    errors.not_negative(&spec.at("minReadySeconds"));
    if let Selector::Usable = selected_template(&spec, "deployment", errors) {
        always_restarts(&spec, "ReplicaSet", errors);
    }
}

pub fn replication_controller(controller: &Field<'_>, errors: &mut Errors) {
    let spec = controller.at("spec");
    let (selector, template) = (spec.at("selector"), spec.at("template"));
    errors.not_negative(&spec.at("replicas"));
    errors.present(&selector);
    if !template.is_set() {
        errors.required(&template, "");
        return;
    }
    let labels = template.at("metadata").at("labels");
    let matches = selector.entries().all(|(key, value)| labels.value[key] == *value.value);
    if !matches && !selector.is_empty() {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    self::template(&template, errors);
    errors.not_negative(&spec.at("minReadySeconds"));
    always_restarts(&spec, "ReplicationController", errors);
}

pub fn stateful_set(set: &Field<'_>, errors: &mut Errors) {
    stateful_set_spec(&set.at("spec"), Judged::Whole, errors);
}

/// What was stored under older rules may stay: a set whose template would be refused today can still be scaled.
pub fn changed_stateful_set(set: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let mut before = Errors::default();
    stateful_set(old, &mut before);
    let judged = match before.0.is_empty() {
        true => Judged::Whole,
        false => Judged::Metadata,
    };
    stateful_set_spec(&set.at("spec"), judged, errors);
}

/// How much of a template is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judged {
    Whole,
    Metadata,
}

fn stateful_set_spec(spec: &Field<'_>, judged: Judged, errors: &mut Errors) {
    let (policy, strategy) = (spec.at("podManagementPolicy"), spec.at("updateStrategy"));
    match policy.text() {
        "OrderedReady" | "Parallel" => {}
        "" => errors.required(&policy, ""),
        _ => errors.invalid(&policy, "must be 'OrderedReady' or 'Parallel'"),
    }
    match strategy.at("type").text() {
        "OnDelete" if strategy.at("rollingUpdate").is_set() => {
            let rolling = strategy.at("rollingUpdate");
            errors.invalid(&rolling, "only allowed for updateStrategy 'RollingUpdate'");
        }
        "OnDelete" => {}
        "RollingUpdate" => errors.not_negative(&strategy.at("rollingUpdate").at("partition")),
        "" => errors.required(&strategy, ""),
        _ => errors.invalid(&strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    let retention = spec.at("persistentVolumeClaimRetentionPolicy");
    if retention.is_set() {
        for name in ["whenDeleted", "whenScaled"] {
            errors.one_of(&retention.at(name), &["Retain", "Delete"]);
        }
    }
    errors.not_negative(&spec.at("replicas"));
    errors.not_negative(&spec.at("minReadySeconds"));
    let start = spec.at("ordinals").at("start");
    errors.not_negative(&Field {
        path: format!("{}.ordinals.start", spec.path),
        ..start
    });
    let as_made = as_made(spec);
    let whole = Field {
        value: &as_made,
        path: spec.path.clone(),
    };
    selected(&whole, "statefulset", judged, errors);
    always_restarts(spec, "StatefulSet", errors);
}

/// The service and the claims of a StatefulSet cannot change, so they are only looked at once.
pub fn new_stateful_set(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.at("spec");
    errors.named_if_set(&spec.at("serviceName"), stead_machinery::names::dns1123_label);
    for claim in spec.at("volumeClaimTemplates").items() {
        super::storage::claim_spec(&claim.at("spec"), errors);
    }
}

/// The spec of a StatefulSet with a template as its pods are made: they get their names from the set, whatever the
/// template says, and volumes from their claims, which containers may mount.
fn as_made(spec: &Field<'_>) -> Value {
    let mut whole = spec.value.clone();
    if let Some(Value::Object(pod)) = whole.pointer_mut("/template/spec") {
        pod.remove("hostname");
        pod.remove("subdomain");
    }
    let claims = spec.at("volumeClaimTemplates");
    let names = claims.items().map(|claim| claim.at("metadata").at("name").text());
    let names: BTreeSet<&str> = names.collect();
    if names.is_empty() {
        return whole;
    }
    if let Some(Value::Object(pod)) = whole.pointer_mut("/template/spec") {
        let volumes = pod.entry("volumes").or_insert_with(|| json!([]));
        if let Value::Array(volumes) = volumes {
            // A claim takes the place of a volume of its name.
            volumes.retain(|volume| !names.contains(volume["name"].as_str().unwrap_or_default()));
            volumes.extend(
                names
                    .iter()
                    .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}})),
            );
        }
    }
    whole
}

pub fn daemon_set(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.at("spec");
    let selector = spec.at("selector");
    let before = errors.0.len();
    errors.selector(&selector);
    let labels = spec.at("template").at("metadata").at("labels");
    let selects = match selector.value {
        Value::Null => false,
        value => LabelSelector::from_object(value).is_ok_and(|selector| selector.matches(labels.value)),
    };
    if errors.0.len() == before && !selects {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    if selector.is_set() && selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
        errors.invalid(&selector, "empty selector is invalid for daemonset");
    }
    template(&spec.at("template"), errors);
    always_restarts(&spec, "DaemonSet", errors);
    errors.not_negative(&spec.at("minReadySeconds"));
    let strategy = spec.at("updateStrategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            count_or_percent(&rolling.at("maxUnavailable"), errors);
            count_or_percent(&rolling.at("maxSurge"), errors);
            let (down, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            not_above_all(&down, errors);
            not_above_all(&surge, errors);
            match (is_zero(&down), is_zero(&surge)) {
                (true, true) => errors.required(&down, "cannot be 0 when maxSurge is 0"),
                (false, false) => errors.invalid(&surge, "may not be set when maxUnavailable is non-zero"),
                _ => {}
            }
        }
        _ => errors.unsupported(&strategy, &["RollingUpdate", "OnDelete"]),
    }
    errors.not_negative(&spec.at("revisionHistoryLimit"));
}

/// The numbers of a status are counts.
pub fn status(object: &Field<'_>, errors: &mut Errors) {
    for (_, field) in object.at("status").entries() {
        let path = field.path.replace('[', ".").replace(']', "");
        errors.not_negative(&Field { path, ..field });
    }
    let status = object.at("status");
    let all = status.at("replicas").number().unwrap_or_default();
    let kind = object.at("kind").text();
    if kind == "DaemonSet" {
        return;
    }
    let counts: &[&str] = match kind {
        "StatefulSet" => &[
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ],
        "Deployment" => &["updatedReplicas", "readyReplicas", "availableReplicas"],
        _ => &["fullyLabeledReplicas", "readyReplicas", "availableReplicas"],
    };
    for name in counts {
        let count = status.at(name);
        let number = count.number().unwrap_or_default();
        if number > all {
            errors.invalid_value(&count, number, "cannot be greater than status.replicas");
        }
    }
    let (ready, available) = (status.at("readyReplicas"), status.at("availableReplicas"));
    if available.number().unwrap_or_default() > ready.number().unwrap_or_default() {
        errors.invalid(&available, "cannot be greater than readyReplicas");
    }
}

pub fn pod_template(object: &Field<'_>, errors: &mut Errors) {
    template(&object.at("template"), errors);
}

pub fn template(template: &Field<'_>, errors: &mut Errors) {
    template_metadata(template, errors);
    pods::spec(&template.at("spec"), errors);
}

fn template_metadata(template: &Field<'_>, errors: &mut Errors) {
    // Kubernetes leaves the metadata out of the path.
    let metadata = template.at("metadata");
    errors.labels(&Field {
        value: metadata.at("labels").value,
        path: template.at("labels").path,
    });
    let annotations = metadata.at("annotations").value;
    crate::verbs::metadata::annotations(annotations, &template.at("annotations").path, &mut errors.0);
}

/// Whether anything can be selected with a selector, so that it makes sense to judge what it selects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Selector {
    Usable,
    Unusable,
}

/// A selector that is there, is not empty and selects what the template makes.
fn selected_template(spec: &Field<'_>, kind: &str, errors: &mut Errors) -> Selector {
    selected(spec, kind, Judged::Whole, errors)
}

fn selected(spec: &Field<'_>, kind: &str, judged: Judged, errors: &mut Errors) -> Selector {
    let selector = spec.at("selector");
    let before = errors.0.len();
    match selector.value {
        Value::Null => errors.required(&selector, ""),
        _ => {
            errors.selector(&selector);
            if selector.at("matchLabels").is_empty() && selector.at("matchExpressions").is_empty() {
                errors.invalid(&selector, format!("empty selector is invalid for {kind}"));
            }
        }
    }
    let unusable = LabelSelector::from_object(selector.value).is_err();
    if errors.0.len() > before && selector.is_set() && !selector.is_empty() {
        let why = if kind == "statefulset" {
            ""
        } else {
            "invalid label selector"
        };
        errors.invalid(&selector, why);
        if unusable {
            return Selector::Unusable;
        }
    } else if !selector.is_empty() || !selector.is_set() {
        matches_template(spec, errors);
    }
    match judged {
        Judged::Whole => template(&spec.at("template"), errors),
        Judged::Metadata => template_metadata(&spec.at("template"), errors),
    }
    Selector::Usable
}

pub fn matches_template(spec: &Field<'_>, errors: &mut Errors) {
    let labels = spec.at("template").at("metadata").at("labels");
    let selects = match spec.at("selector").value {
        Value::Null => false,
        selector => LabelSelector::from_object(selector).is_ok_and(|s| s.matches(labels.value)),
    };
    if !selects {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
}

/// Pods of these kinds run for good.
fn always_restarts(spec: &Field<'_>, kind: &str, errors: &mut Errors) {
    let pod = spec.at("template").at("spec");
    let (policy, deadline) = (pod.at("restartPolicy"), pod.at("activeDeadlineSeconds"));
    if policy.is_set() && policy.text() != "Always" {
        errors.unsupported(&policy, &["Always"]);
    }
    if deadline.is_set() {
        errors.forbidden(&deadline, format!("activeDeadlineSeconds in {kind} is not Supported"));
    }
}

fn is_zero(field: &Field<'_>) -> bool {
    match field.value {
        Value::String(text) => text == "0%",
        value => value.as_i64() == Some(0),
    }
}

/// No more than all of them.
pub fn not_above_all(field: &Field<'_>, errors: &mut Errors) {
    let percent = field
        .text()
        .strip_suffix('%')
        .and_then(|digits| digits.parse::<i64>().ok());
    if percent.is_some_and(|percent| percent > 100) {
        errors.invalid(field, "must not be greater than 100%");
    }
}

/// An int-or-percent that is not negative.
pub fn count_or_percent(field: &Field<'_>, errors: &mut Errors) {
    match field.value {
        Value::String(text) => {
            let digits = text.strip_suffix('%').unwrap_or_default();
            if digits.is_empty() || !digits.chars().all(|c| c.is_ascii_digit()) {
                errors.invalid(
                    field,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                     regex used for validation is '[0-9]+%')",
                );
            }
        }
        _ => errors.not_negative(field),
    }
}
