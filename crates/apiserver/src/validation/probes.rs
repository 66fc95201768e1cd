//! What may be wrong with probes and lifecycle hooks.

use super::check::{Errors, Field};

const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];

pub fn check(probe: &Field<'_>, errors: &mut Errors) {
    handler(probe, errors);
    for name in [
        "initialDelaySeconds",
        "timeoutSeconds",
        "periodSeconds",
        "successThreshold",
        "failureThreshold",
    ] {
        errors.not_negative(&probe.at(name));
    }
    let grace = probe.at("terminationGracePeriodSeconds");
    if grace.number().is_some_and(|seconds| seconds <= 0) {
        errors.invalid(&grace, "must be greater than 0");
    }
}

/// Exactly one way to act, well described.
pub fn handler(handler: &Field<'_>, errors: &mut Errors) {
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
            }
            "tcpSocket" => errors.port(&action.at("port")),
            "grpc" => errors.port_number(&action.at("port")),
            _ => {}
        }
    }
    if found == 0 {
        errors.required(handler, "must specify a handler type");
    }
}
