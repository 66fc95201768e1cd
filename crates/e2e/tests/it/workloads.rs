//! The real kubectl on three nodes whose pods are processes: what a team does in its first week.

mod endings;
mod jobs;
mod nodes;
mod rollouts;
mod services;
mod sets;

use crate::binary::{Up, kubectl};
use nix::unistd::Pid;
use std::collections::BTreeSet;

const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      # Seconds, where Kubernetes waits five minutes: a test has less patience.
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers:
      - name: web
        image: stead/hello
        env: [{name: VERSION, value: one}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
";

/// A pod that does nothing but wait for commands.
const CLIENT: &str = "apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: client, image: busybox, command: [sleep, '1000000']}]
";

fn cluster() -> Option<Up> {
    kubectl()?;
    Up::whole(&["--ephemeral", "--nodes", "3"])
}

fn rolled_out(up: &Up) {
    up.run(&["rollout", "status", "deployment/web", "--timeout=120s"]);
}

fn of(up: &Up, what: &str, path: &str) -> String {
    let path = format!("jsonpath={{{path}}}");
    let words: Vec<&str> = ["get"]
        .into_iter()
        .chain(what.split(' '))
        .chain(["-o", &path])
        .collect();
    up.run(&words)
}

/// The names of the pods that this selector finds and that are not being deleted.
fn pods(up: &Up, selector: &str) -> Vec<String> {
    let template =
        "go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}{{\"\\n\"}}{{end}}{{end}}";
    let names = up.run(&["get", "pods", "-l", selector, "-o", template]);
    names.lines().map(str::to_owned).collect()
}

/// The process that a pod's container is, as the machine numbers it.
fn process_of(pod: &str) -> Pid {
    let marker = format!("HOSTNAME={pod}");
    let all = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let mut found = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let its = environment
            .split(|byte| *byte == 0)
            .any(|pair| pair == marker.as_bytes());
        (its && String::from_utf8_lossy(&line).contains("hello")).then_some(Pid::from_raw(pid))
    });
    found.next().expect("the pod has a process")
}

/// What the Service answers to a pod that asks by name, `times` times.
fn asked(up: &Up, url: &str, times: usize) -> BTreeSet<String> {
    let script = format!("for i in $(seq {times}); do curl -s -m 5 {url} || wget -T 5 -qO- {url}; done");
    let answers = up.run(&["exec", "client", "--", "sh", "-c", &script]);
    let hosts = answers.lines().filter_map(|line| line.strip_prefix("host: "));
    hosts.map(str::to_owned).collect()
}
