//! How pods are printed: one word for their state, counted restarts.

use super::cells::{NONE, since};
use super::columns::{AGE, NAME, text, wide};
use super::{Printer, Row};
use crate::catalogue::Resource;
use serde_json::{Value, json};

pub const PRINTERS: &[Printer] = &[Printer {
    group: "",
    plural: "pods",
    columns: &[
        NAME,
        text("Ready"),
        text("Status"),
        text("Restarts"),
        AGE,
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    cells,
}];

/// What a pod's containers add up to.
#[derive(Default)]
struct Tally {
    reason: String,
    total: usize,
    ready: usize,
    restarts: i64,
    last_restart: String,
}

/// Tables mark pods that ran to their end, so that kubectl can leave them out.
pub fn conditions(resource: &Resource, row: &Row<'_>) -> Option<Value> {
    if (resource.group.as_str(), resource.plural.as_str()) != ("", "pods") {
        return None;
    }
    let (reason, message) = match row.text("/status/phase") {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}]))
}

fn cells(row: &Row<'_>) -> Vec<Value> {
    let tally = tally(row);
    let restarts = match (tally.restarts, tally.last_restart.as_str()) {
        (0, _) | (_, "") => tally.restarts.to_string(),
        (count, last) => format!("{count} ({} ago)", since(&last.into(), row.now)),
    };
    let ip = row.text_or("/status/podIP", NONE);
    let gates = row.list("/spec/readinessGates");
    let gates = match gates.is_empty() {
        true => NONE.to_string(),
        false => {
            let met = |gate: &&Value| row.condition(gate["conditionType"].as_str().unwrap_or_default()) == Some("True");
            format!("{}/{}", gates.iter().filter(met).count(), gates.len())
        }
    };
    vec![
        row.name(),
        format!("{}/{}", tally.ready, tally.total).into(),
        tally.reason.into(),
        restarts.into(),
        row.age(),
        ip,
        row.text_or("/spec/nodeName", NONE),
        row.text_or("/status/nominatedNodeName", NONE),
        gates.into(),
    ]
}

fn tally(row: &Row<'_>) -> Tally {
    let inits = row.list("/spec/initContainers");
    let sidecar = |name: &Value| {
        inits
            .iter()
            .any(|c| c["name"] == *name && c["restartPolicy"] == "Always")
    };
    let mut tally = Tally {
        reason: row.text("/status/phase").to_string(),
        total: row.list("/spec/containers").len() + inits.iter().filter(|c| c["restartPolicy"] == "Always").count(),
        ..Tally::default()
    };
    if !row.text("/status/reason").is_empty() {
        tally.reason = row.text("/status/reason").to_string();
    }
    let gated = |c: &Value| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated";
    if row.list("/status/conditions").iter().any(gated) {
        tally.reason = "SchedulingGated".to_string();
    }
    let mut initializing = false;
    let mut sidecars = Tally::default();
    for (at, status) in row.list("/status/initContainerStatuses").iter().enumerate() {
        count_restarts(&mut tally, status);
        if sidecar(&status["name"]) {
            count_restarts(&mut sidecars, status);
        }
        let state = &status["state"];
        if state["terminated"]["exitCode"] == 0 {
            continue;
        }
        if sidecar(&status["name"]) && status["started"] == true {
            tally.ready += usize::from(status["ready"] == true);
            continue;
        }
        tally.reason = match (&state["terminated"], state["waiting"]["reason"].as_str()) {
            (Value::Object(_), _) => format!("Init:{}", ended(&state["terminated"])),
            (_, Some(waiting)) if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            _ => format!("Init:{at}/{}", inits.len()),
        };
        initializing = true;
        break;
    }
    if !initializing || row.condition("Initialized") == Some("True") {
        tally.restarts = sidecars.restarts;
        tally.last_restart = sidecars.last_restart;
        run(row, &mut tally);
    }
    let over = ["Succeeded", "Failed"].contains(&row.text("/status/phase"));
    if row.is_deleted() && row.text("/status/reason") == "NodeLost" {
        tally.reason = "Unknown".to_string();
    } else if row.is_deleted() && !over {
        tally.reason = "Terminating".to_string();
    }
    tally
}

fn run(row: &Row<'_>, tally: &mut Tally) {
    let mut running = false;
    for status in row.list("/status/containerStatuses").iter().rev() {
        count_restarts(tally, status);
        let state = &status["state"];
        match state["waiting"]["reason"].as_str() {
            Some(reason) if !reason.is_empty() => tally.reason = reason.to_string(),
            _ if state["terminated"].is_object() => tally.reason = ended(&state["terminated"]),
            _ if status["ready"] == true && state["running"].is_object() => {
                running = true;
                tally.ready += 1;
            }
            _ => {}
        }
    }
    if tally.reason == "Completed" && running {
        let ready = row.condition("Ready") == Some("True");
        tally.reason = if ready { "Running" } else { "NotReady" }.to_string();
    }
}

/// Why a container ended, if only as a number.
fn ended(terminated: &Value) -> String {
    let number = |field: &str| terminated[field].as_i64().unwrap_or_default();
    match terminated["reason"].as_str() {
        Some(reason) if !reason.is_empty() => reason.to_string(),
        _ if number("signal") != 0 => format!("Signal:{}", number("signal")),
        _ => format!("ExitCode:{}", number("exitCode")),
    }
}

fn count_restarts(tally: &mut Tally, status: &Value) {
    tally.restarts += status["restartCount"].as_i64().unwrap_or_default();
    let finished = status["lastState"]["terminated"]["finishedAt"]
        .as_str()
        .unwrap_or_default();
    if finished > tally.last_restart.as_str() {
        tally.last_restart = finished.to_string();
    }
}
