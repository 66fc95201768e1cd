//! What may be wrong with probes and lifecycle hooks.

use super::check::{Errors, Field};

const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

/// `grace` is how long the pod may take to end.
pub fn check(probe: &Field<'_>, grace: Option<i64>, errors: &mut Errors) {
    handler(probe, grace, errors);
    for name in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.not_negative(&probe.at(name));
    }
    let own = probe.at("terminationGracePeriodSeconds");
    if own.number().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&own, "must be greater than 0");
    }
}

/// Exactly one way to act, well described.
pub fn handler(handler: &Field<'_>, grace: Option<i64>, errors: &mut Errors) {
    if !handler.is_set() {
        return;
    }
    let mut found = 0;
    for name in HANDLERS {
        let action = handler.at(name);
        if !action.is_set() {
            continue;
        }
        found += 1;
        if found > 1 {
            errors.forbidden(&action, "may not specify more than 1 handler type");
            continue;
        }
        match name {
            "exec" => errors.present(&action.at("command")),
            "httpGet" => {
                errors.present(&action.at("path"));
                errors.port(&action.at("port"));
                errors.one_of(&action.at("scheme"), &["HTTP", "HTTPS"]);
                headers(&action.at("httpHeaders"), errors);
            }
            "tcpSocket" => errors.port(&action.at("port")),
            "grpc" => errors.port_number(&action.at("port")),
            _ => sleep(&action, grace, errors),
        }
    }
    if found == 0 {
        errors.required(handler, "must specify a handler type");
    }
}

/// A pod cannot sleep longer than it may take to end.
fn sleep(action: &Field<'_>, grace: Option<i64>, errors: &mut Errors) {
    let seconds = action.at("seconds").number().unwrap_or(0);
    if let Some(grace) = grace.filter(|grace| seconds < 0 || seconds > *grace) {
        let why = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid_value(action, seconds, why);
    }
}

fn headers(list: &Field<'_>, errors: &mut Errors) {
    for header in list.items() {
        let name = header.at("name");
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if name.text().is_empty() || !name.text().chars().all(plain) {
            let why = "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', \
                       regex used for validation is '[-A-Za-z0-9]+')";
            errors.invalid_value(list, name.text(), why);
        }
    }
}
