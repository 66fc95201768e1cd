//! `stead plan` and `stead export` on a running cluster.

use crate::binary::{PATIENCE, Up, command, kubectl, stead, succeeded};
use serde_json::Value;
use std::path::{Path, PathBuf};

const APP: &str = "
apiVersion: stead.dev/v1
kind: WebApp
metadata:
  name: shop
  labels:
    team: blue
spec:
  image: nginx:1.25
  replicas: 2
  envFrom:
  - configMapRef: {name: settings}
  - secretRef: {name: password}
  ingress: {host: shop.example.com}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {COLOUR: green}
---
apiVersion: v1
kind: Secret
metadata: {name: password}
stringData: {PASSWORD: hunter2}
";

/// A cluster of hollow nodes with the operator, where there are a binary and kubectl.
fn cluster() -> Option<(PathBuf, Up)> {
    let binary = stead()?;
    kubectl()?;
    let parts = "controllers,scheduler,nodes,operators";
    let up = Up::start(&["--ephemeral", "--runtime", "hollow", "--parts", parts])?;
    Some((binary, up))
}

fn run(binary: &Path, up: &Up, arguments: &[&str]) -> String {
    succeeded(
        command(binary, up.place.path())
            .env("KUBECONFIG", &up.kubeconfig)
            .args(arguments),
    )
}

fn ready(up: &Up, namespace: &str) {
    let timeout = format!("--timeout={}s", PATIENCE.as_secs());
    up.run(&[
        "wait",
        "webapp/shop",
        "-n",
        namespace,
        "--for=condition=Ready",
        &timeout,
    ]);
}

/// The verb of a step of a plan, by kind.
fn verb<'a>(plan: &'a Value, kind: &str) -> Option<&'a str> {
    let steps = plan[0]["steps"].as_array()?;
    steps.iter().find(|step| step["kind"] == kind)?["verb"].as_str()
}

#[test]
fn a_plan_shows_what_would_change_and_changes_nothing() {
    let Some((binary, up)) = cluster() else { return };
    let only_app = APP.split("---").next().expect("the application");
    let file = up.file("app.yaml", only_app);
    let plan = |file: &str| -> Value {
        serde_json::from_str(&run(&binary, &up, &["plan", "-f", file, "-o", "json"])).expect("JSON")
    };
    // What it refers to is not there yet: the operator would wait, and make no pods.
    let waits = plan(&file);
    assert_eq!(
        (verb(&waits, "Service"), verb(&waits, "Deployment")),
        (Some("create"), None)
    );
    assert!(
        waits[0]["ready"]
            .as_str()
            .is_some_and(|why| why.contains("Secret password")),
        "{waits:#}"
    );
    up.apply(APP);
    ready(&up, "default");

    // A change is no new application, and needs no room for one.
    up.apply(
        "{apiVersion: v1, kind: ResourceQuota, metadata: {name: one}, spec: {hard: {count/webapps.stead.dev: 1}}}",
    );
    up.run(&[
        "wait",
        "quota/one",
        "--for=jsonpath={.status.used.count/webapps\\.stead\\.dev}=1",
        "--timeout=30s",
    ]);
    let version = || {
        up.run(&[
            "get",
            "deploy,ing,svc,webapp",
            "-o",
            "jsonpath={.items[*].metadata.resourceVersion}",
        ])
    };
    let before = version();
    assert_eq!(verb(&plan(&file), "Deployment"), Some("keep"));
    assert!(run(&binary, &up, &["plan", "-f", &file]).contains("nothing changes"));
    let changed = only_app
        .replace("nginx:1.25", "nginx:1.27")
        .replace("  ingress: {host: shop.example.com}\n", "");
    let changed = up.file("changed.yaml", &changed);
    let lines = run(&binary, &up, &["plan", "-f", &changed]);
    assert!(
        lines.contains("change  Deployment shop  (its pods are replaced)"),
        "{lines}"
    );
    assert!(
        lines.contains("spec.template.spec.containers[app].image: nginx:1.25 -> nginx:1.27"),
        "{lines}"
    );
    assert!(lines.contains("delete  Ingress shop"), "{lines}");
    assert_eq!(version(), before, "a plan changes nothing");

    for (wrong, why) in [
        ("replicas: 5000", "spec.replicas"),
        ("replica: 2", "unknown field \"spec.replica\""),
    ] {
        let file = up.file("wrong.yaml", &only_app.replace("replicas: 2", wrong));
        let words = refused(&binary, &up, &["plan", "-f", &file]);
        assert!(
            words.contains("the cluster would refuse it") && words.contains(why),
            "{words}"
        );
    }
}

/// Runs a command that has to fail, and gives its complaint.
fn refused(binary: &Path, up: &Up, arguments: &[&str]) -> String {
    let output = command(binary, up.place.path())
        .env("KUBECONFIG", &up.kubeconfig)
        .args(arguments)
        .output()
        .expect("the binary starts");
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{arguments:?}: {words}");
    words
}

#[test]
fn what_is_not_there_is_told_in_one_sentence_and_changes_nothing() {
    let Some((binary, up)) = cluster() else { return };
    up.apply(APP);
    ready(&up, "default");
    let generation = || up.run(&["get", "webapp", "shop", "-o", "jsonpath={.metadata.generation}"]);
    let before = generation();
    for (arguments, complaint) in [
        (
            ["rollback", "webapp", "shop", "--to=9"],
            "error: there is no revision 9\n",
        ),
        (
            ["rollback", "webapp", "shop", "--to=1"],
            "error: revision 1 is what the spec asks for now\n",
        ),
        (
            ["rollback", "webapp", "shop", "-ndefault"],
            "error: there is no earlier revision\n",
        ),
        (
            ["status", "webapp", "nosuch", "-ndefault"],
            "error: cannot read webapp nosuch: webapps.stead.dev \"nosuch\" not found\n",
        ),
        (
            ["export", "webapp", "shop", "-nelsewhere"],
            "error: cannot read webapp shop: webapps.stead.dev \"shop\" not found\n",
        ),
    ] {
        let words = refused(&binary, &up, &arguments);
        assert!(words.starts_with(complaint) && words.contains("\nhint: "), "{words}");
    }
    assert_eq!(generation(), before);
}

#[test]
fn an_exported_application_lives_in_another_namespace_with_its_configuration() {
    let Some((binary, up)) = cluster() else { return };
    up.apply(APP);
    ready(&up, "default");
    let exported = run(&binary, &up, &["export", "webapp", "shop"]);
    assert!(
        !exported.contains("namespace:") && !exported.contains("uid:"),
        "{exported}"
    );
    up.run(&["create", "namespace", "staging"]);
    lives_again(&up, "staging", &exported);
    let without = run(&binary, &up, &["export", "webapp", "shop", "--secrets", "omit"]);
    assert!(
        !without.contains("aHVudGVyMg==") && without.contains("COLOUR"),
        "{without}"
    );
}

#[test]
fn an_exported_application_lives_in_another_cluster_after_its_own_is_lost() {
    let Some((binary, lost)) = cluster() else { return };
    lost.apply(APP);
    ready(&lost, "default");
    let exported = run(&binary, &lost, &["export", "webapp", "shop"]);
    drop(lost);
    let Some((_, other)) = cluster() else { return };
    lives_again(&other, "default", &exported);
}

/// Applies what was exported, and finds the application and what it reads as they were.
fn lives_again(up: &Up, namespace: &str, exported: &str) {
    let file = up.file("exported.yaml", exported);
    up.run(&["apply", "-n", namespace, "-f", &file]);
    ready(up, namespace);
    let one = |kind: &str, name: &str, field: &str| {
        let output = format!("jsonpath={{{field}}}");
        up.run(&["get", kind, name, "-n", namespace, "-o", &output])
    };
    assert_eq!(one("secret", "password", ".data.PASSWORD"), "aHVudGVyMg==");
    assert_eq!(one("configmap", "settings", ".data.COLOUR"), "green");
    assert_eq!(one("webapp", "shop", ".metadata.labels.team"), "blue");
    assert_eq!(one("webapp", "shop", ".spec.image"), "nginx:1.25");
    assert_eq!(one("ingress", "shop", ".spec.rules[0].host"), "shop.example.com");
}
