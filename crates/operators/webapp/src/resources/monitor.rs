//! What tells Prometheus about the application: a ServiceMonitor and a PrometheusRule, where those kinds exist.

use super::ports;
use crate::names;
use serde_json::{Value, json};
use stead_apis::WebApp;

/// Where the explanation of an alert is, by its name.
pub const RUNBOOKS: &str = "https://stead.dev/docs/runbooks";

/// The ServiceMonitor, where the spec says that there are metrics.
pub fn service_monitor(app: &WebApp) -> Option<Value> {
    let wanted = app.spec.monitoring.as_ref()?;
    let port = wanted
        .port
        .clone()
        .or_else(|| ports(app).into_iter().next().map(|port| port.name));
    Some(object(
        app,
        "ServiceMonitor",
        json!({
            "selector": {"matchLabels": names::selector(app)},
            "endpoints": [{"port": port, "path": wanted.path, "interval": format!("{}s", wanted.interval_seconds)}],
        }),
    ))
}

/// Alerts on this application's own series.
pub fn rules(app: &WebApp) -> Option<Value> {
    app.spec.monitoring.as_ref()?;
    let name = app.metadata.name.clone().unwrap_or_default();
    let namespace = app.metadata.namespace.clone().unwrap_or_default();
    let series = format!("max(stead_webapp_ready{{namespace=\"{namespace}\",name=\"{name}\"}})");
    Some(object(
        app,
        "PrometheusRule",
        json!({
            "groups": [{
                "name": format!("stead-webapp-{}", names::child(app)),
                "rules": [{
                    "alert": "WebAppNotReady",
                    "expr": format!("{series} == 0"),
                    "for": "10m",
                    "labels": {"severity": "critical", "webapp": name},
                    "annotations": {
                        "summary": format!("WebApp {namespace}/{name} has not been ready for 10 minutes"),
                        "runbook_url": format!("{RUNBOOKS}/WebAppNotReady"),
                    },
                }],
            }],
        }),
    ))
}

fn object(app: &WebApp, kind: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": kind,
        "metadata": {"name": names::child(app), "namespace": app.metadata.namespace, "labels": names::labels(app)},
        "spec": spec,
    })
}
