//! How the kinds that make pods are printed.

use super::cells::{NONE, UNSET, containers, duration, labels, plain, selector, since};
use super::columns::{AGE, NAME, flag, number, text, wide};
use super::{Printer, Row};
use jiff::Timestamp;
use serde_json::{Value, json};

pub const PRINTERS: &[Printer] = &[
    Printer {
        group: "apps",
        plural: "deployments",
        columns: &[
            NAME,
            text("Ready"),
            text("Up-to-date"),
            text("Available"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: deployment,
    },
    Printer {
        group: "apps",
        plural: "replicasets",
        columns: REPLICAS,
        cells: |row| replicas(row, selector(row.at("/spec/selector"))),
    },
    Printer {
        group: "",
        plural: "replicationcontrollers",
        columns: REPLICAS,
        cells: |row| replicas(row, labels(row.at("/spec/selector"))),
    },
    Printer {
        group: "apps",
        plural: "statefulsets",
        columns: &[NAME, text("Ready"), AGE, wide("Containers"), wide("Images")],
        cells: stateful_set,
    },
    Printer {
        group: "apps",
        plural: "daemonsets",
        columns: &[
            NAME,
            number("Desired"),
            number("Current"),
            number("Ready"),
            number("Up-to-date"),
            number("Available"),
            text("Node Selector"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: daemon_set,
    },
    Printer {
        group: "apps",
        plural: "controllerrevisions",
        columns: &[NAME, text("Controller"), text("Revision"), AGE],
        cells: revision,
    },
    Printer {
        group: "batch",
        plural: "jobs",
        columns: &[
            NAME,
            text("Status"),
            text("Completions"),
            text("Duration"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: job,
    },
    Printer {
        group: "batch",
        plural: "cronjobs",
        columns: &[
            NAME,
            text("Schedule"),
            text("Timezone"),
            flag("Suspend"),
            number("Active"),
            text("Last Schedule"),
            AGE,
            wide("Containers"),
            wide("Images"),
            wide("Selector"),
        ],
        cells: cron_job,
    },
    Printer {
        group: "autoscaling",
        plural: "horizontalpodautoscalers",
        columns: &[
            NAME,
            text("Reference"),
            text("Targets"),
            text("MinPods"),
            text("MaxPods"),
            text("Replicas"),
            AGE,
        ],
        cells: autoscaler,
    },
    Printer {
        group: "policy",
        plural: "poddisruptionbudgets",
        columns: &[
            NAME,
            text("Min Available"),
            text("Max Unavailable"),
            number("Allowed Disruptions"),
            AGE,
        ],
        cells: budget,
    },
    Printer {
        group: "",
        plural: "podtemplates",
        columns: &[NAME, text("Containers"), text("Images"), text("Pod Labels")],
        cells: |row| {
            let (names, images) = containers(row.list("/template/spec/containers"));
            vec![
                row.name(),
                names,
                images,
                labels(row.at("/template/metadata/labels")).into(),
            ]
        },
    },
];

const REPLICAS: &[super::Column] = &[
    NAME,
    number("Desired"),
    number("Current"),
    number("Ready"),
    AGE,
    wide("Containers"),
    wide("Images"),
    wide("Selector"),
];

const TEMPLATE: &str = "/spec/template/spec/containers";

fn deployment(row: &Row<'_>) -> Vec<Value> {
    let (names, images) = containers(row.list(TEMPLATE));
    vec![
        row.name(),
        ready(row),
        row.number("/status/updatedReplicas").into(),
        row.number("/status/availableReplicas").into(),
        row.age(),
        names,
        images,
        selector(row.at("/spec/selector")).into(),
    ]
}

fn ready(row: &Row<'_>) -> Value {
    format!(
        "{}/{}",
        row.number("/status/readyReplicas"),
        row.number("/spec/replicas")
    )
    .into()
}

fn replicas(row: &Row<'_>, selector: String) -> Vec<Value> {
    let (names, images) = containers(row.list(TEMPLATE));
    vec![
        row.name(),
        row.number("/spec/replicas").into(),
        row.number("/status/replicas").into(),
        row.number("/status/readyReplicas").into(),
        row.age(),
        names,
        images,
        selector.into(),
    ]
}

fn stateful_set(row: &Row<'_>) -> Vec<Value> {
    let (names, images) = containers(row.list(TEMPLATE));
    vec![row.name(), ready(row), row.age(), names, images]
}

fn daemon_set(row: &Row<'_>) -> Vec<Value> {
    let (names, images) = containers(row.list(TEMPLATE));
    let mut cells = vec![row.name()];
    for field in [
        "desiredNumberScheduled",
        "currentNumberScheduled",
        "numberReady",
        "updatedNumberScheduled",
        "numberAvailable",
    ] {
        cells.push(row.number(&format!("/status/{field}")).into());
    }
    cells.push(labels(row.at("/spec/template/spec/nodeSelector")).into());
    cells.extend([row.age(), names, images, selector(row.at("/spec/selector")).into()]);
    cells
}

fn revision(row: &Row<'_>) -> Vec<Value> {
    let owners = row.list("/metadata/ownerReferences").iter();
    let controller = owners.filter(|o| o["controller"] == true).map(|owner| {
        let kind = owner["kind"].as_str().unwrap_or_default().to_lowercase();
        let group = owner["apiVersion"]
            .as_str()
            .and_then(|v| v.split_once('/'))
            .map_or("", |(group, _)| group);
        let name = owner["name"].as_str().unwrap_or_default();
        match group {
            "" => format!("{kind}/{name}"),
            group => format!("{kind}.{group}/{name}"),
        }
    });
    let controller = { controller }.next().unwrap_or_else(|| NONE.to_string());
    vec![row.name(), controller.into(), row.number("/revision").into(), row.age()]
}

fn job(row: &Row<'_>) -> Vec<Value> {
    let succeeded = row.number("/status/succeeded");
    let completions = match (row.at("/spec/completions").as_i64(), row.number("/spec/parallelism")) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallelism) if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let time = |pointer: &str| row.text(pointer).parse::<Timestamp>().ok();
    let took = match (time("/status/startTime"), time("/status/completionTime")) {
        (None, _) => String::new(),
        (Some(start), end) => duration(end.unwrap_or(row.now).as_second() - start.as_second()),
    };
    let is = |kind: &str| row.condition(kind) == Some("True");
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if row.is_deleted() {
        "Terminating"
    } else if is("Suspended") {
        "Suspended"
    } else if is("FailureTarget") {
        "FailureTarget"
    } else if is("SuccessCriteriaMet") {
        "SuccessCriteriaMet"
    } else {
        "Running"
    };
    let (names, images) = containers(row.list(TEMPLATE));
    vec![
        row.name(),
        status.into(),
        completions.into(),
        took.into(),
        row.age(),
        names,
        images,
        selector(row.at("/spec/selector")).into(),
    ]
}

fn cron_job(row: &Row<'_>) -> Vec<Value> {
    let last = match row.at("/status/lastScheduleTime") {
        Value::Null => NONE.to_string(),
        time => since(time, row.now),
    };
    let suspended = match row.at("/spec/suspend") {
        Value::Bool(true) => "True",
        Value::Bool(false) => "False",
        _ => UNSET,
    };
    let (names, images) = containers(row.list("/spec/jobTemplate/spec/template/spec/containers"));
    vec![
        row.name(),
        row.text("/spec/schedule").into(),
        row.text_or("/spec/timeZone", NONE),
        suspended.into(),
        row.list("/status/active").len().into(),
        last.into(),
        row.age(),
        names,
        images,
        selector(row.at("/spec/jobTemplate/spec/selector")).into(),
    ]
}

fn budget(row: &Row<'_>) -> Vec<Value> {
    let bound = |pointer: &str| match row.at(pointer) {
        Value::Null => json!("N/A"),
        value => plain(value).into(),
    };
    vec![
        row.name(),
        bound("/spec/minAvailable"),
        bound("/spec/maxUnavailable"),
        row.number("/status/disruptionsAllowed").into(),
        row.age(),
    ]
}

fn autoscaler(row: &Row<'_>) -> Vec<Value> {
    let target = "/spec/scaleTargetRef";
    let reference = format!(
        "{}/{}",
        row.text(&format!("{target}/kind")),
        row.text(&format!("{target}/name"))
    );
    let least = match row.at("/spec/minReplicas").as_i64() {
        Some(replicas) => replicas.to_string(),
        None => UNSET.to_string(),
    };
    vec![
        row.name(),
        reference.into(),
        targets(row).into(),
        least.into(),
        row.number("/spec/maxReplicas").into(),
        row.number("/status/currentReplicas").into(),
        row.age(),
    ]
}

/// What is measured and what is wanted, of at most two metrics.
fn targets(row: &Row<'_>) -> String {
    let metrics = row.list("/spec/metrics");
    let mut shown: Vec<String> = Vec::new();
    for (at, metric) in metrics.iter().enumerate() {
        let field = match metric["type"].as_str().unwrap_or_default() {
            "External" => "external",
            "Pods" => "pods",
            "Object" => "object",
            "Resource" => "resource",
            "ContainerResource" => "containerResource",
            _ => {
                shown.push("<unknown type>".to_string());
                continue;
            }
        };
        let wanted = &metric[field]["target"];
        let current = &row.at(&format!("/status/currentMetrics/{at}"))[field]["current"];
        let of = |value: &Value, unit: &str, otherwise: &str| match value {
            Value::Null => otherwise.to_string(),
            value => format!("{}{unit}", plain(value)),
        };
        let unknown = "<unknown>";
        let resource = field.ends_with("esource");
        let pair = if !wanted["averageValue"].is_null() {
            let average = if ["external", "object"].contains(&field) {
                " (avg)"
            } else {
                ""
            };
            let (current, wanted) = (
                of(&current["averageValue"], "", unknown),
                of(&wanted["averageValue"], "", ""),
            );
            format!("{current}/{wanted}{average}")
        } else if resource {
            let current = of(&current["averageUtilization"], "%", unknown);
            format!("{current}/{}", of(&wanted["averageUtilization"], "%", "<auto>"))
        } else {
            format!(
                "{}/{}",
                of(&current["value"], "", unknown),
                of(&wanted["value"], "", "")
            )
        };
        shown.push(match resource {
            true => format!("{}: {pair}", metric[field]["name"].as_str().unwrap_or_default()),
            false => pair,
        });
    }
    match shown.len() {
        0 => NONE.to_string(),
        1 | 2 => shown.join(", "),
        more => format!("{} + {} more...", shown[..2].join(", "), more - 2),
    }
}
