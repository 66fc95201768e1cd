//! How leases, classes, priorities and device claims are printed.

use super::cells::NONE;
use super::columns::{AGE, NAME, flag, number, text};
use super::{Printer, Row};
use serde_json::Value;

const FLOW: &str = "flowcontrol.apiserver.k8s.io";

pub const PRINTERS: &[Printer] = &[
    Printer {
        group: "coordination.k8s.io",
        plural: "leases",
        columns: &[NAME, text("Holder"), AGE],
        cells: |row| vec![row.name(), row.text("/spec/holderIdentity").into(), row.age()],
    },
    Printer {
        group: "node.k8s.io",
        plural: "runtimeclasses",
        columns: &[NAME, text("Handler"), AGE],
        cells: |row| vec![row.name(), row.text("/handler").into(), row.age()],
    },
    Printer {
        group: "scheduling.k8s.io",
        plural: "priorityclasses",
        columns: &[
            NAME,
            number("Value"),
            flag("Global-Default"),
            AGE,
            text("PreemptionPolicy"),
        ],
        cells: |row| {
            vec![
                row.name(),
                row.number("/value").into(),
                row.flag("/globalDefault").into(),
                row.age(),
                row.text("/preemptionPolicy").into(),
            ]
        },
    },
    Printer {
        group: "resource.k8s.io",
        plural: "deviceclasses",
        columns: &[NAME, AGE],
        cells: |row| vec![row.name(), row.age()],
    },
    Printer {
        group: "resource.k8s.io",
        plural: "resourceclaimtemplates",
        columns: &[NAME, AGE],
        cells: |row| vec![row.name(), row.age()],
    },
    Printer {
        group: "resource.k8s.io",
        plural: "resourceclaims",
        columns: &[NAME, text("State"), AGE],
        cells: claim,
    },
    Printer {
        group: "resource.k8s.io",
        plural: "resourceslices",
        columns: &[NAME, text("Node"), text("Driver"), text("Pool"), AGE],
        cells: |row| {
            vec![
                row.name(),
                row.text("/spec/nodeName").into(),
                row.text("/spec/driver").into(),
                row.text("/spec/pool/name").into(),
                row.age(),
            ]
        },
    },
    Printer {
        group: FLOW,
        plural: "flowschemas",
        columns: &[
            NAME,
            text("PriorityLevel"),
            text("MatchingPrecedence"),
            text("DistinguisherMethod"),
            AGE,
            text("MissingPL"),
        ],
        cells: |row| {
            vec![
                row.name(),
                row.text("/spec/priorityLevelConfiguration/name").into(),
                row.number("/spec/matchingPrecedence").into(),
                row.text_or("/spec/distinguisherMethod/type", NONE),
                row.age(),
                row.condition("Dangling").unwrap_or("?").into(),
            ]
        },
    },
    Printer {
        group: FLOW,
        plural: "prioritylevelconfigurations",
        columns: &[
            NAME,
            text("Type"),
            text("NominalConcurrencyShares"),
            text("Queues"),
            text("HandSize"),
            text("QueueLengthLimit"),
            AGE,
        ],
        cells: level,
    },
];

fn claim(row: &Row<'_>) -> Vec<Value> {
    let allocated = !row.at("/status/allocation").is_null();
    let mut states: Vec<&str> = Vec::new();
    if row.is_deleted() {
        states.push("deleted");
    }
    if !allocated && !row.is_deleted() {
        states.push("pending");
    }
    if allocated {
        states.push("allocated");
        if !row.list("/status/reservedFor").is_empty() {
            states.push("reserved");
        }
    }
    vec![row.name(), states.join(",").into(), row.age()]
}

fn level(row: &Row<'_>) -> Vec<Value> {
    let shown = |pointer: &str| match row.at(pointer) {
        Value::Null => NONE.into(),
        value => value.clone(),
    };
    let queuing = "/spec/limited/limitResponse/queuing";
    vec![
        row.name(),
        row.text("/spec/type").into(),
        shown("/spec/limited/nominalConcurrencyShares"),
        shown(&format!("{queuing}/queues")),
        shown(&format!("{queuing}/handSize")),
        shown(&format!("{queuing}/queueLengthLimit")),
        row.age(),
    ]
}
