//! The first command of the README: a cluster, an operator, and an application of real processes that answers.

use crate::binary::{Up, command, http, kubectl, stead, succeeded};
use nix::sys::signal::Signal;
use std::path::Path;

fn get(url: &str) -> String {
    http(url.strip_prefix("http://").expect("an http address"), "/")
}

/// Processes whose command line names this directory.
pub fn processes_of(place: &Path) -> Vec<String> {
    let marker = place.display().to_string();
    let all = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    all.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok())
        .map(|line| String::from_utf8_lossy(&line).replace('\0', " "))
        .filter(|line| line.contains(&marker) && line.contains("run-container"))
        .collect()
}

#[test]
fn the_demo_answers_and_kubectl_does_the_rest_and_a_kill_leaves_nothing_that_down_does_not_find() {
    let Some(up) = Up::whole(&["--ephemeral", "--demo"]) else {
        return;
    };
    let line: serde_json::Value = serde_json::from_str(&up.next_line()).expect("one JSON object a line");
    assert_eq!(line["event"], "demo");
    let url = line["url"].as_str().expect("an address");
    assert!(get(url).contains("Hello from Stead"), "{url}");

    if kubectl().is_some() {
        up.run(&["wait", "webapp/hello", "--for=condition=Ready", "--timeout=60s"]);
        let pods = up.run(&["get", "pods", "-l", "app.kubernetes.io/instance=hello", "-o", "name"]);
        assert_eq!(pods.lines().count(), 3, "{pods}");
        let pod = pods.lines().next().expect("a pod");
        assert!(up.run(&["logs", pod]).contains("listening on"));
        assert_eq!(up.run(&["exec", pod, "--", "/bin/echo", "hi"]), "hi\n");
        up.run(&["scale", "webapp", "hello", "--replicas", "5"]);
        up.run(&[
            "wait",
            "webapp/hello",
            "--for=jsonpath={.status.availableReplicas}=5",
            "--timeout=60s",
        ]);
        // That it was not ready meanwhile may be over before anybody can look: the new one is known by its identity.
        let identity = || up.run(&["get", "deployment", "hello", "-o", "jsonpath={.metadata.uid}"]);
        let old = identity();
        up.run(&["delete", "deployment", "hello"]);
        up.run(&["wait", "deployment/hello", "--for=create", "--timeout=60s"]);
        up.run(&["wait", "deployment/hello", "--for=condition=Available", "--timeout=60s"]);
        assert_ne!(identity(), old);
        up.run(&["wait", "webapp/hello", "--for=condition=Ready", "--timeout=60s"]);
    }

    let place = up.place.path().to_path_buf();
    let (_, _, held) = up.stop(Signal::SIGKILL);
    assert!(
        !processes_of(&place).is_empty(),
        "pods outlive the process that started them"
    );
    succeeded(command(&stead().expect("the binary"), &place).arg("down"));
    assert_eq!(processes_of(&place), Vec::<String>::new());
    drop(held);
}
