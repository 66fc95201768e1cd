//! What may be wrong with the kinds that make pods.

use super::check::{Errors, Field};
use super::pods;
use serde_json::Value;
use stead_machinery::selector::LabelSelector;

pub fn deployment(deployment: &Field<'_>, errors: &mut Errors) {
    let spec = deployment.at("spec");
    errors.not_negative(&spec.at("replicas"));
    selected_template(&spec, "deployment", errors);
    always_restarts(&spec, errors);
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
    selected_template(&spec, "replicaset", errors);
    if spec.at("replicas").number() != Some(0) || spec.at("template").is_set() {
        always_restarts(&spec, errors);
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
    if !matches {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    pods::spec(&template.at("spec"), errors);
    always_restarts(&spec, errors);
}

pub fn stateful_set(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.at("spec");
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
    errors.not_negative(&spec.at("replicas"));
    errors.not_negative(&spec.at("minReadySeconds"));
    selected_template(&spec, "statefulset", errors);
    always_restarts(&spec, errors);
}

pub fn daemon_set(set: &Field<'_>, errors: &mut Errors) {
    let spec = set.at("spec");
    selected_template(&spec, "daemonset", errors);
    always_restarts(&spec, errors);
    errors.not_negative(&spec.at("minReadySeconds"));
    let strategy = spec.at("updateStrategy");
    let rolling = strategy.at("rollingUpdate");
    match strategy.at("type").text() {
        "OnDelete" => {}
        "RollingUpdate" => {
            count_or_percent(&rolling.at("maxUnavailable"), errors);
            count_or_percent(&rolling.at("maxSurge"), errors);
            let (down, surge) = (rolling.at("maxUnavailable"), rolling.at("maxSurge"));
            if is_zero(&down) && is_zero(&surge) {
                errors.required(&down, "cannot be 0 when maxSurge is 0");
            }
        }
        _ => errors.unsupported(&strategy, &["RollingUpdate", "OnDelete"]),
    }
    errors.not_negative(&spec.at("revisionHistoryLimit"));
}

pub fn job(job: &Field<'_>, errors: &mut Errors) {
    let spec = job.at("spec");
    errors.present(&spec.at("selector"));
    job_spec(&spec, errors);
    let selector = spec.at("selector");
    if !selector.is_set() {
        return;
    }
    errors.selector(&selector);
    if !spec.at("manualSelector").is_true() {
        let uid = job.at("metadata").at("uid");
        let generated = serde_json::json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid.value}});
        if *selector.value != generated {
            errors.invalid(&selector, "`selector` not auto-generated");
        }
    }
    matches_template(&spec, errors);
}

fn job_spec(spec: &Field<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.not_negative(&spec.at(name));
    }
    errors.one_of_if_set(&spec.at("completionMode"), &["NonIndexed", "Indexed"]);
    let indexed = spec.at("completionMode").text() == "Indexed";
    if indexed && !spec.at("completions").is_set() {
        errors.required(&spec.at("completions"), "when completion mode is Indexed");
    }
    template(&spec.at("template"), errors);
    let policy = spec.at("template").at("spec").at("restartPolicy");
    match policy.text() {
        "OnFailure" | "Never" => {}
        "" | "Always" => errors.required(&policy, "valid values: \"OnFailure\", \"Never\""),
        _ => errors.unsupported(&policy, &["OnFailure", "Never"]),
    }
}

pub fn cron_job(job: &Field<'_>, errors: &mut Errors) {
    let spec = job.at("spec");
    let (schedule, zone) = (spec.at("schedule"), spec.at("timeZone"));
    match schedule.text() {
        "" => errors.required(&schedule, ""),
        text => {
            if let Some(complaint) = schedule_complaint(text) {
                errors.invalid(&schedule, complaint);
            }
        }
    }
    if zone.is_set() && jiff::tz::TimeZone::get(zone.text()).is_err() {
        errors.invalid(&zone, format!("unknown time zone {}", zone.text()));
    }
    errors.not_negative(&spec.at("startingDeadlineSeconds"));
    errors.one_of(&spec.at("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    job_spec(&spec.at("jobTemplate").at("spec"), errors);
    errors.not_negative(&spec.at("successfulJobsHistoryLimit"));
    errors.not_negative(&spec.at("failedJobsHistoryLimit"));
}

fn schedule_complaint(text: &str) -> Option<String> {
    if text.starts_with('@') {
        return None;
    }
    let fields: Vec<&str> = text.split_whitespace().collect();
    match fields.len() {
        5 => None,
        found => Some(format!(
            "expected exactly 5 fields, found {found}: [{}]",
            fields.join(" ")
        )),
    }
}

pub fn pod_template(object: &Field<'_>, errors: &mut Errors) {
    template(&object.at("template"), errors);
}

fn template(template: &Field<'_>, errors: &mut Errors) {
    errors.labels(&template.at("metadata").at("labels"));
    pods::spec(&template.at("spec"), errors);
}

/// A selector that is there, is not empty and selects what the template makes.
fn selected_template(spec: &Field<'_>, kind: &str, errors: &mut Errors) {
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
    if errors.0.len() > before && selector.is_set() && !selector.is_empty() {
        errors.invalid(&selector, "invalid label selector");
    } else if !selector.is_empty() || !selector.is_set() {
        matches_template(spec, errors);
    }
    template(&spec.at("template"), errors);
}

fn matches_template(spec: &Field<'_>, errors: &mut Errors) {
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
fn always_restarts(spec: &Field<'_>, errors: &mut Errors) {
    let policy = spec.at("template").at("spec").at("restartPolicy");
    if ["OnFailure", "Never"].contains(&policy.text()) {
        errors.unsupported(&policy, &["Always"]);
    }
}

fn is_zero(field: &Field<'_>) -> bool {
    match field.value {
        Value::String(text) => text == "0%",
        value => value.as_i64() == Some(0),
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
