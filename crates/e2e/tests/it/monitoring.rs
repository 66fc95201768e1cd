//! The alerts and the dashboard of `stead manifests --only monitoring`, judged by Prometheus' own tool.

use crate::binary::{command, stead, succeeded};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use stead_test::skip::skipped;
use stead_test::tools::Tool;

fn objects() -> Option<Vec<Value>> {
    let binary = stead()?;
    let place = tempfile::tempdir().expect("a directory");
    let text = succeeded(command(&binary, place.path()).args(["manifests", "--only", "monitoring"]));
    Some(serde_saphyr::from_multiple(&text).expect("YAML"))
}

fn promtool() -> Option<PathBuf> {
    match Tool::Promtool.find() {
        Ok(path) => Some(path),
        Err(missing) => {
            skipped(missing);
            None
        }
    }
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> &'a Value {
    objects.iter().find(|object| object["kind"] == kind).expect(kind)
}

fn write(place: &Path, name: &str, value: &Value) -> PathBuf {
    let path = place.join(name);
    std::fs::write(&path, value.to_string()).expect("a file");
    path
}

/// Series that should and should not wake somebody.
fn trial() -> Value {
    let ready = |name: &str, values: &str| json!({"series": format!("stead_webapp_ready{{namespace=\"default\",name=\"{name}\",pod=\"a\"}}"), "values": values});
    let alert = json!({
        "exp_labels": {"namespace": "default", "name": "down", "severity": "critical"},
        "exp_annotations": {
            "summary": "WebApp default/down has not been ready for 10 minutes.",
            "runbook_url": "https://stead.dev/docs/runbooks/WebAppNotReady",
        },
    });
    json!({
        "rule_files": ["rules.yaml"],
        "tests": [{
            "interval": "1m",
            "input_series": [ready("down", "0x20"), ready("up", "1x20")],
            "alert_rule_test": [
                {"eval_time": "5m", "alertname": "WebAppNotReady", "exp_alerts": []},
                {"eval_time": "15m", "alertname": "WebAppNotReady", "exp_alerts": [alert]},
            ],
        }],
    })
}

#[test]
fn promtool_accepts_every_alert_and_they_ring_when_they_should() {
    let (Some(objects), Some(promtool)) = (objects(), promtool()) else {
        return;
    };
    let place = tempfile::tempdir().expect("a directory");
    let rules = write(place.path(), "rules.yaml", &of_kind(&objects, "PrometheusRule")["spec"]);
    let said = succeeded(
        Command::new(&promtool)
            .args(["check", "rules", "--lint=all", "--lint-fatal"])
            .arg(&rules),
    );
    assert!(said.contains("rules found"), "{said}");
    let trial = write(place.path(), "trial.yaml", &trial());
    succeeded(Command::new(&promtool).args(["test", "rules"]).arg(trial));
}

#[test]
fn promtool_accepts_the_rules_of_an_application() {
    let Some(promtool) = promtool() else { return };
    let app = json!({"apiVersion": "stead.dev/v1", "kind": "WebApp", "metadata": {"name": "shop", "namespace": "default"},
        "spec": {"image": "nginx:1.25", "monitoring": {}}});
    let app = serde_json::from_value(app).expect("a WebApp");
    let rules = stead_webapp::resources::monitor::rules(&app).expect("rules");
    let place = tempfile::tempdir().expect("a directory");
    let file = write(place.path(), "rules.yaml", &rules["spec"]);
    succeeded(Command::new(&promtool).args(["check", "rules"]).arg(file));
}

#[test]
fn every_query_of_the_dashboard_is_one() {
    let (Some(objects), Some(promtool)) = (objects(), promtool()) else {
        return;
    };
    let map = of_kind(&objects, "ConfigMap");
    assert_eq!(map["metadata"]["labels"]["grafana_dashboard"], "1");
    let text = map["data"]["stead.json"].as_str().expect("a dashboard");
    let dashboard: Value = serde_json::from_str(text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let recorded: Vec<Value> = panels
        .iter()
        .enumerate()
        .map(|(index, panel)| json!({"record": format!("panel:{index}"), "expr": panel["targets"][0]["expr"]}))
        .collect();
    let place = tempfile::tempdir().expect("a directory");
    let groups = json!({"groups": [{"name": "panels", "rules": recorded}]});
    let file = write(place.path(), "panels.yaml", &groups);
    succeeded(Command::new(&promtool).args(["check", "rules"]).arg(file));
}
