//! A process node of ours on the real control plane: its kube-apiserver reads logs and runs commands through our agent.

use crate::binary::{PATIENCE, command, eventually, http, kubectl, stead, succeeded};
use crate::terminal::Terminal;
use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use stead_test::children::{Process, Program};
use stead_test::kubernetes::{Kubernetes, Parts, StartError};
use stead_test::skip::skipped;

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_the_real_control_plane_run_as_processes() {
    let (Some(binary), Some(kubectl)) = (stead(), kubectl()) else {
        return;
    };
    let cluster = match Kubernetes::start(Parts::All).await {
        Ok(cluster) => cluster,
        Err(StartError::Missing(missing)) => return skipped(missing),
        Err(error) => panic!("{error}"),
    };
    let place = tempfile::tempdir().expect("a directory");
    let data = place.path().join("data").display().to_string();
    let arguments = ["node", "join", "ours", "--runtime", "process", "--data", &data];
    let node = Process::start(Program {
        path: binary.clone(),
        arguments: arguments.iter().map(OsString::from).collect(),
        environment: vec![("KUBECONFIG".into(), cluster.kubeconfig().into())],
        log: place.path().join("node.log"),
    })
    .expect("the binary starts");
    let run = |arguments: &[&str]| {
        let mut command = command(&kubectl, place.path());
        command.env("KUBECONFIG", cluster.kubeconfig()).args(arguments);
        command
    };
    let told = |arguments: &[&str]| succeeded(&mut run(arguments));

    eventually("the node is ready", PATIENCE, || {
        let nodes = run(&["get", "nodes", "--no-headers"]).output().expect("kubectl starts");
        let nodes = String::from_utf8_lossy(&nodes.stdout).into_owned();
        nodes.contains(" Ready ").then_some(()).ok_or(nodes)
    });
    told(&["create", "deployment", "web", "--image=stead/hello", "--port=8080"]);
    told(&["rollout", "status", "deployment/web", "--timeout=90s"]);
    assert!(told(&["logs", "deployment/web"]).contains("listening on"));
    assert_eq!(told(&["exec", "deployment/web", "--", "echo", "hi"]), "hi\n");
    let failed = run(&["exec", "deployment/web", "--", "sh", "-c", "exit 5"]).output();
    assert_eq!(failed.expect("kubectl starts").status.code(), Some(5));
    let mut shell = Terminal::start(&mut run(&["exec", "-it", "deployment/web", "--", "sh"]));
    shell.type_in("stty size; echo $((40 + 2))\n");
    shell.shows("24 80\r\n42\r\n");
    shell.type_in("exit\n");
    assert!(shell.ends().success());

    let forward = run(&["port-forward", "deployment/web", ":8080"])
        .stdout(Stdio::piped())
        .spawn();
    let mut forward = forward.expect("kubectl starts");
    let mut line = String::new();
    let mut lines = BufReader::new(forward.stdout.take().expect("a pipe"));
    lines.read_line(&mut line).expect("a line");
    let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' '));
    let answer = http(&format!("127.0.0.1:{}", port.expect("a local port").0), "/");
    forward.kill().expect("it runs");
    forward.wait().expect("it ends");
    assert!(answer.contains("Hello from Stead"), "{answer}");

    drop(node);
    succeeded(command(&binary, place.path()).args(["down", "--data", &data]));
}
