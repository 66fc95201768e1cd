//! How namespaces, nodes, configuration and events are printed.

use super::cells::{NONE, UNKNOWN, plain, since};
use super::columns::{AGE, Column, NAME, text, wide};
use super::{Printer, Row};
use serde_json::{Value, json};

pub const PRINTERS: &[Printer] = &[
    Printer {
        group: "",
        plural: "namespaces",
        columns: &[NAME, text("Status"), AGE],
        cells: |row| vec![row.name(), row.text("/status/phase").into(), row.age()],
    },
    Printer {
        group: "",
        plural: "nodes",
        columns: &[
            NAME,
            text("Status"),
            text("Roles"),
            AGE,
            text("Version"),
            wide("Internal-IP"),
            wide("External-IP"),
            wide("OS-Image"),
            wide("Kernel-Version"),
            wide("Container-Runtime"),
        ],
        cells: node,
    },
    Printer {
        group: "",
        plural: "configmaps",
        columns: &[NAME, text("Data"), AGE],
        cells: |row| {
            let count = |pointer: &str| row.at(pointer).as_object().map_or(0, |map| map.len());
            vec![row.name(), (count("/data") + count("/binaryData")).into(), row.age()]
        },
    },
    Printer {
        group: "",
        plural: "secrets",
        columns: &[NAME, text("Type"), text("Data"), AGE],
        cells: |row| {
            let count = row.at("/data").as_object().map_or(0, |map| map.len());
            vec![row.name(), row.text("/type").into(), count.into(), row.age()]
        },
    },
    Printer {
        group: "",
        plural: "serviceaccounts",
        columns: &[NAME, AGE],
        cells: |row| vec![row.name(), row.age()],
    },
    Printer {
        group: "",
        plural: "componentstatuses",
        columns: &[NAME, text("Status"), text("Message"), text("Error")],
        cells: component,
    },
    Printer {
        group: "",
        plural: "resourcequotas",
        columns: &[NAME, text("Request"), text("Limit"), AGE],
        cells: quota,
    },
    Printer {
        group: "",
        plural: "events",
        columns: EVENT,
        cells: event,
    },
    Printer {
        group: "events.k8s.io",
        plural: "events",
        columns: EVENT,
        cells: event,
    },
];

const EVENT: &[Column] = &[
    text("Last Seen"),
    text("Type"),
    text("Reason"),
    text("Object"),
    wide("Subobject"),
    wide("Source"),
    text("Message"),
    wide("First Seen"),
    wide("Count"),
    Column { priority: 1, ..NAME },
];

fn node(row: &Row<'_>) -> Vec<Value> {
    let mut status = match row.condition("Ready") {
        Some("True") => "Ready".to_string(),
        Some(_) => "NotReady".to_string(),
        None => "Unknown".to_string(),
    };
    if row.flag("/spec/unschedulable") {
        status.push_str(",SchedulingDisabled");
    }
    let mut roles: Vec<&str> = Vec::new();
    for (key, value) in row.at("/metadata/labels").as_object().into_iter().flatten() {
        match key.strip_prefix("node-role.kubernetes.io/") {
            Some(role) if !role.is_empty() => roles.push(role),
            _ if key == "kubernetes.io/role" => roles.extend(value.as_str().filter(|role| !role.is_empty())),
            _ => {}
        }
    }
    roles.sort_unstable();
    let roles = if roles.is_empty() {
        NONE.to_string()
    } else {
        roles.join(",")
    };
    let address = |kind: &str| {
        let found = row.list("/status/addresses").iter().find(|a| a["type"] == kind);
        found.map_or(json!(NONE), |a| a["address"].clone())
    };
    let mut kernel = plain(&row.text_or("/status/nodeInfo/kernelVersion", UNKNOWN));
    let architecture = row.text("/status/nodeInfo/architecture");
    if !architecture.is_empty() {
        kernel.push_str(&format!(" ({architecture})"));
    }
    vec![
        row.name(),
        status.into(),
        roles.into(),
        row.age(),
        row.text("/status/nodeInfo/kubeletVersion").into(),
        address("InternalIP"),
        address("ExternalIP"),
        row.text_or("/status/nodeInfo/osImage", UNKNOWN),
        kernel.into(),
        row.text_or("/status/nodeInfo/containerRuntimeVersion", UNKNOWN),
    ]
}

fn component(row: &Row<'_>) -> Vec<Value> {
    let healthy = row.list("/conditions").iter().find(|c| c["type"] == "Healthy");
    let (status, message, error) = match healthy {
        Some(c) if c["status"] == "True" => ("Healthy", c["message"].clone(), c["error"].clone()),
        Some(c) => ("Unhealthy", c["message"].clone(), c["error"].clone()),
        None => ("Unknown", Value::Null, Value::Null),
    };
    let text = |value: Value| if value.is_null() { json!("") } else { value };
    vec![row.name(), status.into(), text(message), text(error)]
}

fn quota(row: &Row<'_>) -> Vec<Value> {
    let (mut requests, mut limits) = (Vec::new(), Vec::new());
    for (name, hard) in row.at("/status/hard").as_object().into_iter().flatten() {
        let used = match &row.at("/status/used")[name] {
            Value::Null => "0".to_string(),
            used => plain(used),
        };
        let line = format!("{name}: {used}/{}", plain(hard));
        match name.starts_with("limits.") {
            true => limits.push(line),
            false => requests.push(line),
        }
    }
    vec![
        row.name(),
        requests.join(", ").into(),
        limits.join(", ").into(),
        row.age(),
    ]
}

fn event(row: &Row<'_>) -> Vec<Value> {
    let either = |first: &'static str, second: &'static str| match row.at(first) {
        Value::Null => row.at(second),
        value => value,
    };
    let first_of = |first: &str, second: &str| match row.text(first) {
        "" => row.text(second).to_string(),
        text => text.to_string(),
    };
    let first_time = either("/firstTimestamp", "/deprecatedFirstTimestamp");
    let first = match first_time {
        Value::Null => since(row.at("/eventTime"), row.now),
        time => since(time, row.now),
    };
    let last = match (
        row.at("/series/lastObservedTime"),
        either("/lastTimestamp", "/deprecatedLastTimestamp"),
    ) {
        (Value::Null, Value::Null) => first.clone(),
        (Value::Null, time) => since(time, row.now),
        (observed, _) => since(observed, row.now),
    };
    let count = match (
        row.at("/series/count").as_i64(),
        either("/count", "/deprecatedCount").as_i64(),
    ) {
        (Some(count), _) => count,
        (None, None | Some(0)) => 1,
        (None, Some(count)) => count,
    };
    let about = if row.at("/involvedObject").is_null() {
        "/regarding"
    } else {
        "/involvedObject"
    };
    let kind = row.text(&format!("{about}/kind")).to_lowercase();
    let target = match row.text(&format!("{about}/name")) {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    let source = if row.at("/source").is_null() {
        "/deprecatedSource"
    } else {
        "/source"
    };
    let component = match row.text(&format!("{source}/component")) {
        "" => first_of("/reportingComponent", "/reportingController"),
        component => component.to_string(),
    };
    let host = first_of(&format!("{source}/host"), "/reportingInstance");
    let source = if host.is_empty() {
        component
    } else {
        format!("{component}, {host}")
    };
    let message = either("/message", "/note").as_str().unwrap_or_default().trim();
    vec![
        last.into(),
        row.text("/type").into(),
        row.text("/reason").into(),
        target.into(),
        row.text(&format!("{about}/fieldPath")).into(),
        source.into(),
        message.into(),
        first.into(),
        count.into(),
        row.name(),
    ]
}
