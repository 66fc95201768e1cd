//! A Grafana dashboard, in the ConfigMap that Grafana's usual installation looks for.

use super::builders::{Place, metadata};
use crate::commands::operator::NAME;
use serde_json::{Value, json};

/// A panel: its title, what it draws, and how a line is named.
struct Panel {
    title: &'static str,
    expression: &'static str,
    legend: &'static str,
    unit: &'static str,
}

const PANELS: &[Panel] = &[
    Panel {
        title: "Applications that are not ready",
        expression: "sum(1 - max by (namespace, name) (stead_webapp_ready))",
        legend: "not ready",
        unit: "short",
    },
    Panel {
        title: "Applications that went back to an earlier revision",
        expression: "max by (namespace, name) (stead_webapp_rolled_back) == 1",
        legend: "{{namespace}}/{{name}}",
        unit: "short",
    },
    Panel {
        title: "Available pods",
        expression: "max by (namespace, name) (stead_webapp_available_replicas)",
        legend: "{{namespace}}/{{name}}",
        unit: "short",
    },
    Panel {
        title: "Reconciles",
        expression: "sum by (controller, result) (rate(controller_runtime_reconcile_total[5m]))",
        legend: "{{controller}} {{result}}",
        unit: "ops",
    },
    Panel {
        title: "Reconcile time, 99 of 100",
        expression: "histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[5m])))",
        legend: "{{controller}}",
        unit: "s",
    },
    Panel {
        title: "Queue",
        expression: "sum by (name) (workqueue_depth)",
        legend: "{{name}}",
        unit: "short",
    },
    Panel {
        title: "Requests to the API server",
        expression: "sum by (method, code) (rate(rest_client_requests_total{job=\"stead-operator\"}[5m]))",
        legend: "{{method}} {{code}}",
        unit: "reqps",
    },
    Panel {
        title: "Who leads",
        expression: "leader_election_master_status{name=\"stead-operator\"}",
        legend: "{{pod}}",
        unit: "short",
    },
    Panel {
        title: "Memory",
        expression: "process_resident_memory_bytes{job=\"stead-operator\"}",
        legend: "{{pod}}",
        unit: "bytes",
    },
];

const COLUMNS: usize = 3;
const WIDTH: usize = 24 / COLUMNS;
const HEIGHT: usize = 8;

/// The ConfigMap with the dashboard.
pub fn build(place: &Place) -> Value {
    let mut meta = metadata(place, &format!("{NAME}-dashboard"));
    // Grafana's side-car finds dashboards by this label.
    meta["labels"]["grafana_dashboard"] = json!("1");
    let text = serde_json::to_string_pretty(&dashboard()).expect("a dashboard is plain data");
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": {"stead.json": text}})
}

fn dashboard() -> Value {
    let panels: Vec<Value> = PANELS.iter().enumerate().map(panel).collect();
    json!({
        "uid": "stead-operator",
        "title": "Stead",
        "tags": ["stead", "kubernetes"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [{"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"}]},
        "panels": panels,
    })
}

fn panel((index, panel): (usize, &Panel)) -> Value {
    json!({
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"x": index % COLUMNS * WIDTH, "y": index / COLUMNS * HEIGHT, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [{"refId": "A", "expr": panel.expression, "legendFormat": panel.legend}],
    })
}
