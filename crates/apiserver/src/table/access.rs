//! How bindings, certificates, webhooks and admission policies are printed.

use super::cells::{NONE, UNSET, duration, plain, selector};
use super::columns::{AGE, Column, NAME, number, text, wide};
use super::{Printer, Row};
use serde_json::Value;

const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";

pub const PRINTERS: &[Printer] = &[
    Printer {
        group: RBAC,
        plural: "rolebindings",
        columns: BINDING,
        cells: binding,
    },
    Printer {
        group: RBAC,
        plural: "clusterrolebindings",
        columns: BINDING,
        cells: binding,
    },
    Printer {
        group: "certificates.k8s.io",
        plural: "certificatesigningrequests",
        columns: &[
            NAME,
            AGE,
            text("SignerName"),
            text("Requestor"),
            text("RequestedDuration"),
            text("Condition"),
        ],
        cells: signing_request,
    },
    Printer {
        group: ADMISSION,
        plural: "validatingwebhookconfigurations",
        columns: &[NAME, number("Webhooks"), AGE],
        cells: |row| vec![row.name(), row.list("/webhooks").len().into(), row.age()],
    },
    Printer {
        group: ADMISSION,
        plural: "mutatingwebhookconfigurations",
        columns: &[NAME, number("Webhooks"), AGE],
        cells: |row| vec![row.name(), row.list("/webhooks").len().into(), row.age()],
    },
    Printer {
        group: ADMISSION,
        plural: "validatingadmissionpolicies",
        columns: &[NAME, number("Validations"), text("ParamKind"), AGE],
        cells: |row| policy(row, "/spec/validations"),
    },
    Printer {
        group: ADMISSION,
        plural: "mutatingadmissionpolicies",
        columns: &[NAME, number("Mutations"), text("ParamKind"), AGE],
        cells: |row| policy(row, "/spec/mutations"),
    },
    Printer {
        group: ADMISSION,
        plural: "validatingadmissionpolicybindings",
        columns: POLICY_BINDING,
        cells: policy_binding,
    },
    Printer {
        group: ADMISSION,
        plural: "mutatingadmissionpolicybindings",
        columns: POLICY_BINDING,
        cells: policy_binding,
    },
    Printer {
        group: "apiregistration.k8s.io",
        plural: "apiservices",
        columns: &[NAME, text("Service"), text("Available"), AGE],
        cells: api_service,
    },
];

const BINDING: &[Column] = &[
    NAME,
    text("Role"),
    AGE,
    wide("Users"),
    wide("Groups"),
    wide("ServiceAccounts"),
];
const POLICY_BINDING: &[Column] = &[NAME, text("PolicyName"), text("ParamRef"), AGE];

fn binding(row: &Row<'_>) -> Vec<Value> {
    let role = format!("{}/{}", row.text("/roleRef/kind"), row.text("/roleRef/name"));
    let subjects = |kind: &str| -> Value {
        let of_kind = row.list("/subjects").iter().filter(|s| s["kind"] == kind);
        let names = of_kind.map(|subject| {
            let name = subject["name"].as_str().unwrap_or_default();
            match (kind, subject["namespace"].as_str()) {
                ("ServiceAccount", namespace) => format!("{}/{name}", namespace.unwrap_or_default()),
                _ => name.to_string(),
            }
        });
        names.collect::<Vec<_>>().join(", ").into()
    };
    vec![
        row.name(),
        role.into(),
        row.age(),
        subjects("User"),
        subjects("Group"),
        subjects("ServiceAccount"),
    ]
}

fn signing_request(row: &Row<'_>) -> Vec<Value> {
    let has = |kind: &str| row.condition(kind).is_some();
    let mut status = if has("Denied") {
        "Denied".to_string()
    } else if has("Approved") {
        "Approved".to_string()
    } else {
        "Pending".to_string()
    };
    if has("Failed") {
        status.push_str(",Failed");
    }
    if !row.text("/status/certificate").is_empty() {
        status.push_str(",Issued");
    }
    let wanted = match row.at("/spec/expirationSeconds").as_i64() {
        Some(seconds) => duration(seconds),
        None => NONE.to_string(),
    };
    vec![
        row.name(),
        row.age(),
        row.text_or("/spec/signerName", NONE),
        row.text("/spec/username").into(),
        wanted.into(),
        status.into(),
    ]
}

fn policy(row: &Row<'_>, rules: &str) -> Vec<Value> {
    let kind = match row.at("/spec/paramKind") {
        Value::Null => UNSET.to_string(),
        kind => format!("{}/{}", plain(&kind["apiVersion"]), plain(&kind["kind"])),
    };
    vec![row.name(), row.list(rules).len().into(), kind.into(), row.age()]
}

fn policy_binding(row: &Row<'_>) -> Vec<Value> {
    let reference = row.at("/spec/paramRef");
    let part = |field: &str| reference[field].as_str().unwrap_or_default();
    let shown = match (part("name"), part("namespace")) {
        ("", _) if !reference["selector"].is_null() => selector(&reference["selector"]),
        ("", _) => UNSET.to_string(),
        (name, "") => format!("*/{name}"),
        (name, namespace) => format!("{namespace}/{name}"),
    };
    vec![row.name(), row.text("/spec/policyName").into(), shown.into(), row.age()]
}

fn api_service(row: &Row<'_>) -> Vec<Value> {
    let service = match row.at("/spec/service") {
        Value::Null => "Local".to_string(),
        service => format!("{}/{}", plain(&service["namespace"]), plain(&service["name"])),
    };
    let available = row.list("/status/conditions").iter().find(|c| c["type"] == "Available");
    let available = match available {
        None => "Unknown".to_string(),
        Some(c) if c["status"] == "True" => "True".to_string(),
        Some(c) => format!("{} ({})", plain(&c["status"]), plain(&c["reason"])),
    };
    vec![row.name(), service.into(), available.into(), row.age()]
}
