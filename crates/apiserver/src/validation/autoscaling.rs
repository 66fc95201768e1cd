//! What may be wrong with autoscalers.

use super::check::{Errors, Field};
use stead_machinery::names;
use stead_machinery::quantity::Quantity;

const SOURCES: [(&str, &str); 5] = [
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];
/// The longest window and the longest period, in seconds.
const LONGEST_WINDOW: i64 = 3600;
const LONGEST_PERIOD: i64 = 1800;

pub fn autoscaler(autoscaler: &Field<'_>, errors: &mut Errors) {
    let spec = autoscaler.at("spec");
    let (least, most) = (spec.at("minReplicas"), spec.at("maxReplicas"));
    if least.number().is_some_and(|replicas| replicas < 1) {
        errors.invalid(&least, "must be greater than or equal to 1");
    }
    let bound = most.number().unwrap_or_default();
    if bound == 0 {
        errors.required(&most, "must be set and greater than 0");
    } else if bound < 0 {
        errors.invalid(&most, "must be greater than or equal to 1");
    }
    if least.number().is_some_and(|replicas| replicas > bound) {
        errors.invalid_value(&most, bound, "must be greater than or equal to `minReplicas`");
    }
    reference(&spec.at("scaleTargetRef"), errors);
    let metrics = spec.at("metrics");
    for metric in metrics.items() {
        self::metric(&metric, errors);
    }
    let outside = |metric: Field<'_>| ["Object", "External"].contains(&metric.at("type").text());
    if least.number() == Some(0) && !metrics.items().any(outside) {
        errors.forbidden(
            &metrics,
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    for direction in ["scaleUp", "scaleDown"] {
        scaling_rules(&spec.at("behavior").at(direction), errors);
    }
}

pub fn status(autoscaler: &Field<'_>, errors: &mut Errors) {
    let status = autoscaler.at("status");
    errors.not_negative(&status.at("currentReplicas"));
    errors.not_negative(&status.at("desiredReplicas"));
}

fn reference(target: &Field<'_>, errors: &mut Errors) {
    errors.named(&target.at("kind"), names::path_segment);
    errors.named(&target.at("name"), names::path_segment);
    let version = target.at("apiVersion");
    if version.text() != "v1" && !version.text().contains('/') {
        errors.invalid_value(&version, version.text(), "apiVersion must specify API group");
    }
}

fn metric(metric: &Field<'_>, errors: &mut Errors) {
    let kind = metric.at("type");
    if kind.text().is_empty() {
        errors.required(&kind, "must specify a metric source type");
    }
    let expected = SOURCES
        .iter()
        .find(|(name, _)| *name == kind.text())
        .map(|(_, field)| *field);
    if expected.is_none() {
        errors.invalid_source(&kind);
    }
    let present: Vec<&str> = ["object", "external", "pods", "resource", "containerResource"]
        .into_iter()
        .filter(|field| metric.at(field).is_set())
        .collect();
    if let Some(first) = present.first() {
        source(first, &metric.at(first), errors);
    }
    if let Some(expected) = expected.filter(|expected| !metric.at(expected).is_set()) {
        let detail = "must populate information for the given metric source";
        errors.required(&metric.at(expected), detail);
    }
    if present.len() != 1 {
        for other in present.iter().filter(|field| Some(**field) != expected) {
            errors.forbidden(&metric.at(other), "must populate the given metric source only");
        }
    }
}

fn source(kind: &str, source: &Field<'_>, errors: &mut Errors) {
    let target = source.at("target");
    let (value, average, share) = (
        target.at("value"),
        target.at("averageValue"),
        target.at("averageUtilization"),
    );
    match kind {
        "resource" | "containerResource" => {
            if source.at("name").is_empty() {
                errors.required(&source.at("name"), "must specify a resource name");
            }
            if kind == "containerResource" && source.at("container").is_empty() {
                errors.required(&source.at("container"), "must specify a container");
            }
        }
        _ => {
            let name = source.at("metric").at("name");
            match name.text() {
                "" => errors.required(&name, "must specify a metric name"),
                text => errors.complaints(&name, names::path_segment(text)),
            }
        }
    }
    if kind == "object" {
        let described = source.at("describedObject");
        errors.named(&described.at("kind"), names::path_segment);
        errors.named(&described.at("name"), names::path_segment);
    }
    self::target(&target, errors);
    match kind {
        "object" if !value.is_set() && !average.is_set() => {
            errors.required(&average, "must set either a target value or averageValue");
        }
        "external" if !value.is_set() && !average.is_set() => {
            errors.required(
                &average,
                "must set either a target value for metric or a per-pod target",
            );
        }
        "external" if value.is_set() && average.is_set() => {
            errors.forbidden(
                &value,
                "may not set both a target value for metric and a per-pod target",
            );
        }
        "pods" if !average.is_set() => errors.required(&average, "must specify a positive target averageValue"),
        "resource" | "containerResource" if !share.is_set() && !average.is_set() => {
            errors.required(&share, "must set either a target raw value or a target utilization");
        }
        "resource" | "containerResource" if share.is_set() && average.is_set() => {
            errors.forbidden(&average, "may not set both a target raw value and a target utilization");
        }
        _ => {}
    }
}

fn target(target: &Field<'_>, errors: &mut Errors) {
    let kind = target.at("type");
    if kind.text().is_empty() {
        errors.required(&kind, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        errors.invalid_value(&kind, kind.text(), "must be either Utilization, Value, or AverageValue");
    }
    for name in ["value", "averageValue"] {
        let amount = target.at(name);
        let parsed = amount.text().parse::<Quantity>();
        if parsed.is_ok_and(|amount| amount.is_zero() || amount.is_negative()) {
            errors.invalid(&amount, "must be positive");
        }
    }
    let share = target.at("averageUtilization");
    if share.number().is_some_and(|share| share < 1) {
        errors.invalid(&share, "must be greater than 0");
    }
}

fn scaling_rules(rules: &Field<'_>, errors: &mut Errors) {
    if !rules.is_set() {
        return;
    }
    let (window, policies) = (rules.at("stabilizationWindowSeconds"), rules.at("policies"));
    if window.number().is_some_and(|seconds| seconds < 0) {
        errors.invalid(&window, "must be greater than or equal to zero");
    }
    if window.number().is_some_and(|seconds| seconds > LONGEST_WINDOW) {
        errors.invalid(&window, format!("must be less than or equal to {LONGEST_WINDOW}"));
    }
    errors.one_of_if_set(&rules.at("selectPolicy"), &["Disabled", "Max", "Min"]);
    if policies.is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        errors.one_of(&policy.at("type"), &["Percent", "Pods"]);
        for name in ["value", "periodSeconds"] {
            let number = policy.at(name);
            if number.number().unwrap_or_default() <= 0 {
                errors.invalid(&number, "must be greater than zero");
            }
        }
        let period = policy.at("periodSeconds");
        if period.number().is_some_and(|seconds| seconds > LONGEST_PERIOD) {
            errors.invalid(&period, format!("must be less than or equal to {LONGEST_PERIOD}"));
        }
    }
}

impl Errors {
    fn invalid_source(&mut self, kind: &Field<'_>) {
        let known: Vec<&str> = SOURCES.iter().map(|(name, _)| *name).collect();
        self.unsupported(kind, &known);
    }
}
