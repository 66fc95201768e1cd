use super::*;
use crate::catalogue::Catalogue;

fn rows(group: &str, plural: &str, object: Value) -> Value {
    let catalogue = Catalogue::built_in();
    let version = if group == "autoscaling" { "v2" } else { "v1" };
    let resource = catalogue.get(group, version, plural).expect("served");
    let now = "2026-01-01T01:00:00Z".parse().expect("a time");
    let table = render(resource, &[object], now, Include::Metadata);
    let columns = table["columnDefinitions"].as_array().map(Vec::len);
    let cells = table["rows"][0]["cells"].as_array().map(Vec::len);
    assert_eq!(columns, cells, "every column of {plural} has a cell");
    table
}

fn meta(name: &str) -> Value {
    json!({"name": name, "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"})
}

#[test]
fn a_running_pod_shows_what_kubectl_users_know() {
    let table = rows(
        "",
        "pods",
        json!({
            "metadata": meta("web"),
            "spec": {"nodeName": "node-1", "containers": [{"name": "a"}, {"name": "b"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [
                {"name": "a", "ready": true, "restartCount": 0, "state": {"running": {}}},
                {"name": "b", "ready": false, "restartCount": 2, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                 "lastState": {"terminated": {"finishedAt": "2026-01-01T00:59:30Z"}}},
            ]},
        }),
    );
    assert_eq!(
        table["rows"][0]["cells"],
        json!([
            "web",
            "1/2",
            "CrashLoopBackOff",
            "2 (30s ago)",
            "60m",
            "10.0.0.1",
            "node-1",
            "<none>",
            "<none>"
        ])
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
}

#[test]
fn a_pod_that_is_over_or_going_says_so() {
    let mut metadata = meta("a");
    let spec = json!({"containers": [{"name": "a"}]});
    let done = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Succeeded", "containerStatuses": [
        {"name": "a", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}},
    ]}});
    let table = rows("", "pods", done);
    assert_eq!(table["rows"][0]["cells"][2], "Completed");
    assert_eq!(table["rows"][0]["conditions"][0]["type"], "Completed");
    metadata["deletionTimestamp"] = "2026-01-01T00:59:00Z".into();
    let going = json!({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}});
    assert_eq!(rows("", "pods", going)["rows"][0]["cells"][2], "Terminating");
    let initializing = json!({
        "metadata": meta("a"), "spec": {"containers": [{}], "initContainers": [{"name": "i"}, {"name": "j"}]},
        "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {"running": {}}}]},
    });
    assert_eq!(rows("", "pods", initializing)["rows"][0]["cells"][2], "Init:0/2");
}

#[test]
fn every_printed_kind_has_as_many_cells_as_columns_even_for_an_empty_object() {
    for printer in PRINTERS.iter().copied().flatten() {
        rows(printer.group, printer.plural, json!({"metadata": meta("a")}));
        rows(printer.group, printer.plural, json!({}));
    }
    rows(
        "rbac.authorization.k8s.io",
        "clusterroles",
        json!({"metadata": meta("a")}),
    );
}

#[test]
fn services_show_their_ports_and_addresses() {
    let table = rows(
        "",
        "services",
        json!({
            "metadata": meta("web"),
            "spec": {"type": "LoadBalancer", "clusterIPs": ["10.0.0.1"], "selector": {"app": "web"},
                "ports": [{"port": 80, "nodePort": 30080, "protocol": "TCP"}]},
            "status": {"loadBalancer": {}},
        }),
    );
    let cells = json!([
        "web",
        "LoadBalancer",
        "10.0.0.1",
        "<pending>",
        "80:30080/TCP",
        "60m",
        "app=web"
    ]);
    assert_eq!(table["rows"][0]["cells"], cells);
}

#[test]
fn ages_read_as_kubectl_writes_them() {
    for (seconds, text) in [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (200, "3m20s"),
        (3600, "60m"),
        (11_000, "3h3m"),
        (100_000, "27h"),
        (200_000, "2d7h"),
        (10_000_000, "115d"),
        (100_000_000, "3y62d"),
        (-5, "<invalid>"),
    ] {
        assert_eq!(cells::duration(seconds), text, "{seconds}");
    }
}
