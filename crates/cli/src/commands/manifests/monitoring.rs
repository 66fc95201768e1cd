//! What tells Prometheus about the operator: where its metrics are, and when to wake somebody.

use super::builders::{Place, labels, metadata};
use super::dashboard;
use crate::commands::operator::NAME;
use serde_json::{Value, json};
use stead_webapp::resources::monitor::RUNBOOKS;

/// An alert: its name, how bad it is, what is true, for how long, and a sentence for whoever is woken.
struct Alert {
    name: &'static str,
    severity: &'static str,
    expression: &'static str,
    lasting: &'static str,
    summary: &'static str,
}

const ALERTS: &[Alert] = &[
    Alert {
        name: "SteadOperatorWithoutLeader",
        severity: "critical",
        expression: r#"sum(leader_election_master_status{name="stead-operator"}) < 1 or absent(leader_election_master_status{name="stead-operator"})"#,
        lasting: "2m",
        summary: "No replica of the operator leads: nothing is reconciled.",
    },
    Alert {
        name: "SteadReconcileErrors",
        severity: "warning",
        expression: "sum by (controller) (rate(controller_runtime_reconcile_errors_total[5m])) > 0.1",
        lasting: "10m",
        summary: "Reconciles of {{ $labels.controller }} keep failing.",
    },
    Alert {
        name: "SteadReconcilePanics",
        severity: "critical",
        expression: "sum by (controller) (increase(controller_runtime_reconcile_panics_total[15m])) > 0",
        lasting: "0m",
        summary: "A reconcile of {{ $labels.controller }} panicked.",
    },
    Alert {
        name: "SteadQueueGrows",
        severity: "warning",
        expression: "sum by (name) (workqueue_depth) > 100",
        lasting: "15m",
        summary: "The queue of {{ $labels.name }} is not worked off.",
    },
    Alert {
        name: "SteadHotLoop",
        severity: "warning",
        expression: "sum by (controller) (increase(stead_hot_loops_total[30m])) > 0",
        lasting: "0m",
        summary: "{{ $labels.controller }} and somebody else keep undoing each other's writes.",
    },
    Alert {
        name: "WebAppNotReady",
        severity: "critical",
        // Every replica of the operator shows every application; one that says it is ready is enough.
        expression: "max by (namespace, name) (stead_webapp_ready) == 0",
        lasting: "10m",
        summary: "WebApp {{ $labels.namespace }}/{{ $labels.name }} has not been ready for 10 minutes.",
    },
    Alert {
        name: "WebAppRolledBack",
        severity: "warning",
        expression: "max by (namespace, name) (stead_webapp_rolled_back) == 1",
        lasting: "0m",
        summary: "A change of WebApp {{ $labels.namespace }}/{{ $labels.name }} failed; the last good revision runs.",
    },
];

pub fn build(place: &Place) -> Vec<Value> {
    let rules: Vec<Value> = ALERTS.iter().map(rule).collect();
    vec![
        json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "ServiceMonitor", "metadata": metadata(place, NAME),
            "spec": {"selector": {"matchLabels": labels()}, "endpoints": [{"port": "metrics", "interval": "30s"}]}}),
        json!({"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": metadata(place, NAME),
            "spec": {"groups": [{"name": NAME, "rules": rules}]}}),
        dashboard::build(place),
    ]
}

fn rule(alert: &Alert) -> Value {
    json!({
        "alert": alert.name,
        "expr": alert.expression,
        "for": alert.lasting,
        "labels": {"severity": alert.severity},
        "annotations": {
            "summary": alert.summary,
            "runbook_url": format!("{RUNBOOKS}/{}", alert.name),
        },
    })
}
