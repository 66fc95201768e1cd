//! What may be wrong with jobs, and with those that are made on a schedule.

use super::check::{Errors, Field};
use super::workloads::{matches_template, template};
use serde_json::{Value, json};
use stead_machinery::cron::Schedule;
use stead_machinery::names::dns1123_label;

const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];

pub fn job(job: &Field<'_>, errors: &mut Errors) {
    let spec = job.at("spec");
    job_spec(&spec, errors);
    let selector = spec.at("selector");
    if !selector.is_set() {
        errors.required(&selector, "");
    }
    errors.selector(&selector);
    if selector.is_set() && !spec.at("manualSelector").is_true() {
        let uid = job.at("metadata").at("uid");
        let generated = json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid.value}});
        if *selector.value != generated {
            errors.invalid(&selector, "`selector` not auto-generated");
        }
        let metadata = spec.at("template").at("metadata");
        let name = job.at("metadata").at("name");
        for (label, wanted) in [
            ("batch.kubernetes.io/controller-uid", &uid),
            ("batch.kubernetes.io/job-name", &name),
            ("controller-uid", &uid),
            ("job-name", &name),
        ] {
            let found = metadata.at("labels").key(label);
            if !found.is_set() {
                errors.required(&found, &format!("must be '{}'", wanted.text()));
            } else if found.text() != wanted.text() {
                let labels = metadata.at("labels");
                errors.invalid_value(&found, labels.value.clone(), format!("must be '{}'", wanted.text()));
            }
        }
    }
    matches_template(&spec, errors);
    pod_names(job, errors);
}

/// The pods of an indexed job are named after it, so the longest of their names must be one.
fn pod_names(job: &Field<'_>, errors: &mut Errors) {
    let spec = job.at("spec");
    let count = spec.at("completions").number().unwrap_or_default();
    let name = job.at("metadata").at("name");
    let last = format!("{}-{}", name.text(), count - 1);
    if spec.at("completionMode").text() == "Indexed" && count > 0 && !dns1123_label(&last).is_empty() {
        let why = format!("will not able to create pod with invalid DNS label: {last}");
        errors.invalid(&name, why);
    }
}

pub fn status(job: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let spec = job.at("spec");
    // A job with as many pods at once as completions may be made smaller.
    let elastic =
        spec.at("completionMode").text() == "Indexed" && spec.at("completions").value == spec.at("parallelism").value;
    for name in ["failed", "succeeded"] {
        let count = job.at("status").at(name);
        let before = old.at("status").at(name).number().unwrap_or_default();
        let now = count.number().unwrap_or_default();
        if now < before && !(elastic && name == "succeeded") {
            errors.invalid_value(&count, now, format!("cannot decrease the {name} counter"));
        }
    }
    let (start, before) = (job.at("status").at("startTime"), old.at("status").at("startTime"));
    let resumes = condition(old, "Suspended") == "True" && condition(job, "Suspended") == "False";
    let suspended = spec.at("suspend").value == &Value::Bool(true);
    if before.is_set() && start.value != before.value && !suspended && !resumes {
        errors.invalid(&start, "field is immutable for unsuspended job once set");
    }
    for name in ["active", "succeeded", "failed", "ready", "terminating"] {
        errors.not_negative(&job.at("status").at(name));
    }
}

/// The status of a job's condition; empty where there is none.
fn condition(job: &Field<'_>, name: &str) -> String {
    let conditions = job.at("status").at("conditions");
    let found = conditions.items().find(|condition| condition.at("type").text() == name);
    found
        .map(|condition| condition.at("status").text().to_string())
        .unwrap_or_default()
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
    let (per_index, failed) = (spec.at("backoffLimitPerIndex"), spec.at("maxFailedIndexes"));
    if failed.is_set() && !per_index.is_set() {
        errors.required(&per_index, "when maxFailedIndexes is specified");
    }
    errors.one_of_if_set(&spec.at("completionMode"), &["NonIndexed", "Indexed"]);
    let completions = spec.at("completions");
    match spec.at("completionMode").text() {
        "Indexed" => {
            if !completions.is_set() {
                errors.required(&completions, "when completion mode is Indexed");
            }
            let too_many = failed.number() > completions.number();
            if completions.is_set() && failed.is_set() && too_many {
                errors.invalid(&failed, "must be less than or equal to completions");
            }
        }
        "" | "NonIndexed" => {
            for field in [&per_index, &failed, &spec.at("successPolicy")] {
                if field.is_set() {
                    errors.invalid(field, "requires indexed completion mode");
                }
            }
        }
        _ => {}
    }
    let manager = spec.at("managedBy");
    if manager.is_set() {
        match manager.is_empty() {
            true => errors.required(&manager, ""),
            false => errors.domain_path(&manager),
        }
    }
    let failures = spec.at("podFailurePolicy");
    for rule in failures.at("rules").items() {
        failure_rule(&rule, spec, errors);
    }
    let replacement = spec.at("podReplacementPolicy");
    match failures.is_set() {
        true => errors.one_of_if_set(&replacement, &["Failed"]),
        false => errors.one_of_if_set(&replacement, &["Failed", "TerminatingOrFailed"]),
    }
    template(&spec.at("template"), errors);
    let policy = spec.at("template").at("spec").at("restartPolicy");
    match policy.text() {
        "OnFailure" if failures.is_set() => {
            errors.invalid(
                &policy,
                "only \"Never\" is supported when podFailurePolicy is specified",
            );
        }
        "OnFailure" | "Never" => {}
        "" | "Always" => errors.required(&policy, "valid values: \"OnFailure\", \"Never\""),
        _ => errors.unsupported(&policy, &["OnFailure", "Never"]),
    }
}

fn failure_rule(rule: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let (action, codes, conditions) = (rule.at("action"), rule.at("onExitCodes"), rule.at("onPodConditions"));
    match action.text() {
        "" => errors.required(
            &action,
            "valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
        ),
        "FailIndex" if !spec.at("backoffLimitPerIndex").is_set() => {
            errors.invalid(&action, "requires the backoffLimitPerIndex to be set");
        }
        text if !ACTIONS.contains(&text) => errors.unsupported(&action, &ACTIONS),
        _ => {}
    }
    if codes.is_set() {
        exit_codes(&codes, spec, errors);
    }
    for condition in conditions.items() {
        errors.label_name(&condition.at("type"));
        errors.one_of(&condition.at("status"), &["False", "True", "Unknown"]);
    }
    let detail = match (codes.is_set(), conditions.is_empty()) {
        (true, false) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, true) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    errors.invalid_unshown(rule, detail);
}

fn exit_codes(codes: &Field<'_>, spec: &Field<'_>, errors: &mut Errors) {
    let (operator, values) = (codes.at("operator"), codes.at("values"));
    match operator.text() {
        "" => errors.required(&operator, "valid values: [\"In\" \"NotIn\"]"),
        _ => errors.one_of(&operator, &["In", "NotIn"]),
    }
    let (name, pod) = (codes.at("containerName"), spec.at("template").at("spec"));
    let mut names = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| pod.at(list).items().collect::<Vec<_>>());
    if name.is_set() && !names.any(|container| container.at("name").text() == name.text()) {
        let why = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&name, why);
    }
    if values.is_empty() {
        errors.invalid_value(&values, Value::Null, "at least one value is required");
    }
    for value in values.items() {
        if operator.text() == "In" && value.number() == Some(0) {
            errors.invalid(&value, "must not be 0 for the In operator");
        }
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
            if text.contains("TZ") {
                let detail = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead";
                errors.invalid(&schedule, detail);
            }
        }
    }
    errors.not_negative(&spec.at("startingDeadlineSeconds"));
    time_zone(&zone, errors);
    errors.one_of(&spec.at("concurrencyPolicy"), &["Allow", "Forbid", "Replace"]);
    let template = spec.at("jobTemplate").at("spec");
    job_spec(&template, errors);
    if template.at("selector").is_set() {
        errors.invalid(&template.at("selector"), "`selector` will be auto-generated");
    }
    if template.at("manualSelector").is_true() {
        errors.unsupported(&template.at("manualSelector"), &["nil", "false"]);
    }
    errors.not_negative(&spec.at("successfulJobsHistoryLimit"));
    errors.not_negative(&spec.at("failedJobsHistoryLimit"));
}

fn time_zone(zone: &Field<'_>, errors: &mut Errors) {
    if !zone.is_set() {
        return;
    }
    match zone.text() {
        "" => errors.invalid(zone, "timeZone must be nil or non-empty string"),
        text if text.eq_ignore_ascii_case("local") => {
            let detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones";
            errors.invalid(zone, detail);
        }
        text if jiff::tz::TimeZone::get(text).is_err() => {
            errors.invalid(zone, format!("unknown time zone {text}"));
        }
        _ => {}
    }
}

fn schedule_complaint(text: &str) -> Option<String> {
    let plain = match text.split_once(' ') {
        Some((zone, rest)) if zone.starts_with("TZ=") || zone.starts_with("CRON_TZ=") => rest,
        _ => text,
    };
    if plain.starts_with('@') {
        return None;
    }
    let fields: Vec<&str> = plain.split_whitespace().collect();
    if fields.len() != 5 {
        let found = fields.len();
        return Some(format!(
            "expected exactly 5 fields, found {found}: [{}]",
            fields.join(" ")
        ));
    }
    let limits = [(0, 59), (0, 23), (1, 31), (1, 12), (0, 6)];
    for (field, (least, most)) in fields.iter().zip(limits) {
        let Ok(number) = field.parse::<u32>() else { continue };
        if number > most {
            return Some(format!("end of range ({number}) above maximum ({most}): {field}"));
        }
        if number < least {
            return Some(format!(
                "beginning of range ({number}) below minimum ({least}): {field}"
            ));
        }
    }
    plain.parse::<Schedule>().err().map(|error| error.to_string())
}
