//! The real kubectl against the API server alone, ours or the real one: everything that a user does by hand in a day.

use crate::binary::{PATIENCE, Up, eventually, kubectl, line_that, rest};
use std::io::BufReader;
use std::process::Stdio;

const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  labels: {app: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: 'nginx:1.27', ports: [{containerPort: 80}]}
";

fn cluster() -> Option<Up> {
    kubectl()?;
    Up::either()
}

#[test]
fn kubectl_finds_and_explains_what_is_served() {
    let Some(up) = cluster() else { return };
    let resources = up.run(&["api-resources", "--no-headers"]);
    assert!(resources.lines().count() >= 60, "{resources}");
    for kind in [
        "pods",
        "deployments",
        "networkpolicies",
        "customresourcedefinitions",
        "leases",
        "clusterroles",
    ] {
        assert!(
            resources.lines().any(|line| line.starts_with(kind)),
            "{kind} in {resources}"
        );
    }
    assert!(up.run(&["api-versions"]).lines().any(|version| version == "apps/v1"));
    let explained = up.run(&["explain", "deployment", "--recursive"]);
    assert!(explained.contains("terminationGracePeriodSeconds"), "{explained}");
    assert!(
        up.run(&["explain", "pod.spec.containers.image"])
            .contains("Container image name")
    );
    assert_eq!(up.run(&["version"]).contains("+stead"), up.is_embedded());
}

#[test]
fn a_deployment_is_created_changed_and_shown_in_every_way() {
    let Some(up) = cluster() else { return };
    assert_eq!(up.apply(WEB).trim(), "deployment.apps/web created");
    assert_eq!(up.apply(WEB).trim(), "deployment.apps/web unchanged");
    let replicas = || up.run(&["get", "deploy", "web", "-o", "jsonpath={.spec.replicas}"]);

    let changed = up.file("changed.yaml", &WEB.replace("replicas: 2", "replicas: 3"));
    let difference = up.kubectl(&["diff", "-f", &changed]).output().expect("kubectl starts");
    let difference = (
        difference.status.code(),
        String::from_utf8_lossy(&difference.stdout).into_owned(),
    );
    assert_eq!(difference.0, Some(1), "{}", difference.1);
    assert!(difference.1.contains("+  replicas: 3"), "{}", difference.1);
    assert_eq!(replicas(), "2", "a diff changes nothing");

    up.run(&["patch", "deploy", "web", "-p", r#"{"spec":{"replicas":4}}"#]);
    assert_eq!(replicas(), "4");
    up.run(&[
        "patch",
        "deploy",
        "web",
        "--type=merge",
        "-p",
        r#"{"spec":{"replicas":5}}"#,
    ]);
    assert_eq!(replicas(), "5");
    up.run(&[
        "patch",
        "deploy",
        "web",
        "--type=json",
        "-p",
        r#"[{"op":"replace","path":"/spec/replicas","value":6}]"#,
    ]);
    assert_eq!(replicas(), "6");
    up.run(&["scale", "deploy", "web", "--replicas=7"]);
    assert_eq!(replicas(), "7");
    up.run(&["label", "deploy", "web", "tier=front"]);
    up.run(&["annotate", "deploy", "web", "who=me"]);
    assert!(
        up.run(&["get", "deploy", "-l", "tier=front", "-o", "name"])
            .contains("deployment.apps/web")
    );
    up.run(&["set", "image", "deploy/web", "web=nginx:1.28"]);
    assert!(up.run(&["get", "deploy", "-o", "wide"]).contains("nginx:1.28"));
    assert!(up.run(&["get", "deploy", "web", "-o", "yaml"]).contains("who: me"));
    let columns = up.run(&[
        "get",
        "deploy",
        "-o",
        "custom-columns=NAME:.metadata.name,WANTED:.spec.replicas",
    ]);
    assert!(
        columns.lines().any(|line| line.split_whitespace().eq(["web", "7"])),
        "{columns}"
    );
    let described = up.run(&["describe", "deploy", "web"]);
    assert!(
        described.contains("RollingUpdateStrategy:  25% max unavailable, 25% max surge"),
        "{described}"
    );
}

#[test]
fn an_editor_changes_an_object() {
    let Some(up) = cluster() else { return };
    up.run(&["create", "configmap", "settings", "--from-literal=colour=red"]);
    let editor = up.file("editor.sh", "#!/bin/sh\nsed -i 's/colour: red/colour: blue/' \"$1\"\n");
    let edited = up
        .kubectl(&["edit", "configmap", "settings"])
        .env("KUBE_EDITOR", format!("sh {editor}"))
        .output();
    let edited = edited.expect("kubectl starts");
    assert!(edited.status.success(), "{}", String::from_utf8_lossy(&edited.stderr));
    assert_eq!(
        up.run(&["get", "configmap", "settings", "-o", "jsonpath={.data.colour}"]),
        "blue"
    );
}

#[test]
fn a_watch_shows_changes_as_they_come() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    let mut watch = up
        .kubectl(&["get", "deploy", "-w", "--no-headers"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("a pipe"));
    assert!(line_that(&mut lines, |line| line.contains("0/2")).is_some());
    up.run(&["scale", "deploy", "web", "--replicas=9"]);
    assert!(line_that(&mut lines, |line| line.contains("0/9")).is_some());
    watch.kill().expect("it runs");
    watch.wait().expect("it ends");
    drop(rest(lines));
}

#[test]
fn waiting_ends_when_a_condition_is_met() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    let waiting = up
        .kubectl(&["wait", "deploy/web", "--for=condition=Available", "--timeout=60s"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("kubectl starts");
    let status = r#"{"status":{"conditions":[{"type":"Available","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z","lastUpdateTime":"2026-01-01T00:00:00Z"}]}}"#;
    up.run(&[
        "patch",
        "deploy",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ]);
    let output = waiting.wait_with_output().expect("it ends");
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("condition met"));
    assert!(
        up.refused(&[
            "wait",
            "deploy/web",
            "--for=jsonpath={.spec.replicas}=99",
            "--timeout=1s"
        ])
        .contains("timed out")
    );
}

#[test]
fn all_three_cascades_delete() {
    let Some(up) = cluster() else { return };
    for (cascade, finalizer) in [
        ("background", ""),
        ("orphan", "orphan"),
        ("foreground", "foregroundDeletion"),
    ] {
        up.apply(&WEB.replace("name: web\n", &format!("name: {cascade}\n")));
        up.run(&[
            "delete",
            "deploy",
            cascade,
            &format!("--cascade={cascade}"),
            "--wait=false",
        ]);
        if finalizer.is_empty() {
            assert!(up.refused(&["get", "deploy", cascade]).contains("not found"));
            continue;
        }
        // The API server alone marks it; garbage collection, which does the rest, is a controller's work.
        let held = up.run(&["get", "deploy", cascade, "-o", "jsonpath={.metadata.finalizers}"]);
        assert!(held.contains(finalizer), "{cascade}: {held}");
        up.run(&[
            "patch",
            "deploy",
            cascade,
            "--type=merge",
            "-p",
            r#"{"metadata":{"finalizers":null}}"#,
        ]);
        assert!(up.refused(&["get", "deploy", cascade]).contains("not found"));
    }
}

#[test]
fn users_see_what_they_may_do_and_tokens_let_service_accounts_in() {
    let Some(up) = cluster() else { return };
    assert!(up.run(&["auth", "whoami"]).contains("system:masters"));
    assert_eq!(up.run(&["auth", "can-i", "delete", "nodes"]).trim(), "yes");
    assert!(up.refused(&["get", "pods", "--as", "bob"]).contains(
        r#"pods is forbidden: User "bob" cannot list resource "pods" in API group "" in the namespace "default""#
    ));
    up.run(&["create", "serviceaccount", "robot"]);
    up.run(&["create", "role", "robot", "--verb=get,list", "--resource=pods"]);
    up.run(&[
        "create",
        "rolebinding",
        "robot",
        "--role=robot",
        "--serviceaccount=default:robot",
    ]);
    let token = up.run(&["create", "token", "robot"]);
    let with_token = |arguments: &[&str]| {
        let config = serde_json::json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": up.server, "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": token.trim()}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        let file = up.file("robot.json", &config.to_string());
        up.kubectl(arguments)
            .env("KUBECONFIG", file)
            .output()
            .expect("kubectl starts")
    };
    let who = with_token(&["auth", "whoami"]);
    assert!(String::from_utf8_lossy(&who.stdout).contains("system:serviceaccount:default:robot"));
    // Kubernetes' authorizer learns of a role a moment later.
    eventually("the role counts", PATIENCE, || {
        let pods = with_token(&["get", "pods"]);
        match pods.status.success() {
            true => Ok(()),
            false => Err(String::from_utf8_lossy(&pods.stderr).into_owned()),
        }
    });
    let secrets = with_token(&["get", "secrets"]);
    assert!(String::from_utf8_lossy(&secrets.stderr).contains("Forbidden"));
    up.run(&["delete", "serviceaccount", "robot"]);
    eventually("a token ends with its service account", PATIENCE, || {
        match with_token(&["get", "pods"]).status.success() {
            true => Err("it is let in"),
            false => Ok(()),
        }
        .map_err(str::to_string)
    });
}

#[test]
fn events_are_listed() {
    let Some(up) = cluster() else { return };
    up.apply(
        "apiVersion: v1
kind: Event
metadata: {name: web.1}
involvedObject: {apiVersion: apps/v1, kind: Deployment, name: web, namespace: default}
reason: Scaled
message: Scaled up to 2
type: Normal
firstTimestamp: '2026-01-01T00:00:00Z'
lastTimestamp: '2026-01-01T00:00:00Z'
count: 1
source: {component: test}
",
    );
    assert!(up.run(&["events"]).contains("Scaled up to 2"));
    assert!(
        up.run(&["events", "--for", "deployment/web"])
            .contains("Deployment/web")
    );
    assert!(up.run(&["get", "events"]).contains("Scaled"));
}

#[test]
fn the_audit_log_says_who_did_what_but_never_a_secret() {
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("audit.log");
    let path = log.display().to_string();
    let arguments = ["--ephemeral", "--audit-log", &path, "--audit-level", "request"];
    let Some(up) = kubectl().and_then(|_| Up::start(&arguments)) else {
        return;
    };
    up.run(&["create", "configmap", "open", "--from-literal=k=visible"]);
    up.run(&["create", "secret", "generic", "closed", "--from-literal=k=hidden"]);
    up.refused(&["get", "nodes", "--as", "bob"]);
    // The log is complete once the server has ended.
    up.stop(nix::sys::signal::Signal::SIGTERM);
    let text = std::fs::read_to_string(&log).expect("a log");
    let events: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let find = |verb: &str, resource: &str| {
        let wanted = |event: &&serde_json::Value| event["verb"] == verb && event["objectRef"]["resource"] == resource;
        events
            .iter()
            .find(wanted)
            .unwrap_or_else(|| panic!("no {verb} of {resource}"))
    };
    let open = find("create", "configmaps");
    assert_eq!(open["stage"], "ResponseComplete");
    assert_eq!(open["user"]["username"], "stead-admin");
    assert_eq!(open["objectRef"]["name"], "open");
    assert_eq!(open["requestObject"]["data"]["k"], "visible");
    assert!(
        open["userAgent"]
            .as_str()
            .is_some_and(|agent| agent.starts_with("kubectl/"))
    );
    assert!(find("create", "secrets").get("requestObject").is_none());
    let refused = find("list", "nodes");
    assert_eq!(refused["responseStatus"]["code"], 403);
    assert_eq!(refused["responseStatus"]["reason"], "Forbidden");
    assert!(
        !text.contains("hidden") && !text.contains("aGlkZGVu"),
        "no secret in the log"
    );
}
