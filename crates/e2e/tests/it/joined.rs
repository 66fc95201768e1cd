//! A process node of ours that joins: the real control plane, whose kube-apiserver reads logs and runs commands through our
//! agent, and an embedded cluster, which has nodes of its own on the same machine.

use crate::binary::{PATIENCE, Up, command, eventually, http, kubectl, stead, succeeded};
use crate::terminal::Terminal;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
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

/// A pod on each of two nodes.
const PODS: &str = "apiVersion: v1
kind: Pod
metadata: {name: far}
spec:
  nodeName: far
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: busybox, command: [sh, -c, 'echo begun; while :; do sleep 1; done']}]
---
apiVersion: v1
kind: Pod
metadata: {name: near}
spec:
  nodeName: node-0
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: busybox, command: [sh, -c, 'echo begun; while :; do sleep 1; done']}]
";

/// Waits until kubectl succeeds and prints what is wanted.
#[track_caller]
fn until(up: &Up, what: &str, arguments: &[&str], wanted: &str) {
    eventually(what, PATIENCE, || {
        let output = up.kubectl(arguments).output().expect("kubectl starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        match output.status.success() && text.contains(wanted) {
            true => Ok(()),
            false => Err(text + &complaint),
        }
    });
}

#[test]
fn a_node_that_joins_an_embedded_cluster_is_reached_cut_off_and_given_back_like_its_own() {
    let (Some(binary), Some(_)) = (stead(), kubectl()) else {
        return;
    };
    let Some(up) = Up::whole(&[]) else { return };
    let elsewhere = tempfile::tempdir().expect("a directory");
    let data = elsewhere.path().join("data").display().to_string();
    let join = ["node", "join", "far", "--data", &data];
    let mut node = Process::start(Program {
        path: binary.clone(),
        arguments: join.iter().map(OsString::from).collect(),
        environment: vec![
            ("KUBECONFIG".into(), up.kubeconfig.clone().into()),
            ("XDG_DATA_HOME".into(), elsewhere.path().into()),
        ],
        log: elsewhere.path().join("node.log"),
    })
    .expect("the binary starts");
    let ask = |up: &Up, arguments: &[&str]| {
        let mut command = command(&binary, elsewhere.path());
        command.env("KUBECONFIG", &up.kubeconfig).args(arguments);
        command
    };
    until(
        &up,
        "the node is ready",
        &["get", "node", "far", "--no-headers"],
        " Ready ",
    );
    // Its Lease was there before it, and goes with it all the same.
    let owner = "jsonpath={.metadata.ownerReferences[*].kind}";
    let lease = ["get", "lease", "-n", "kube-node-lease", "far", "-o", owner];
    until(&up, "the lease is the node's", &lease, "Node");
    up.apply(PODS);
    up.run(&["wait", "pod/far", "pod/near", "--for=condition=Ready", "--timeout=60s"]);

    let addresses = up.run(&["get", "pods", "-o", "jsonpath={.items[*].status.podIP}"]);
    let addresses: Vec<&str> = addresses.split(' ').collect();
    assert!(addresses.len() == 2 && addresses[0] != addresses[1], "{addresses:?}");
    let range = up.run(&["get", "node", "far", "-o", "jsonpath={.spec.podCIDR}"]);
    let third = range.rsplit_once('.').expect("a range").0;
    assert!(addresses[0].starts_with(third), "{addresses:?} and {range}");
    assert_eq!(up.run(&["logs", "far"]), "begun\n");

    // The next API server of the same cluster is trusted, and trusts.
    let (_, _, place) = up.stop(Signal::SIGTERM);
    let Some(up) = Up::whole_in(place, &[]) else { return };
    until(&up, "logs are read again", &["logs", "far"], "begun");
    assert_eq!(up.run(&["exec", "far", "--", "echo", "hi"]), "hi\n");

    succeeded(&mut ask(&up, &["node", "partition", "far"]));
    eventually("nobody reaches the node", PATIENCE, || {
        let output = up.kubectl(&["logs", "far"]).output().expect("kubectl starts");
        let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
        let cut = complaint.contains("error trying to reach service");
        cut.then_some(()).ok_or(complaint)
    });
    assert_eq!(up.run(&["logs", "near"]), "begun\n");
    let refused = |arguments: &[&str]| {
        let output = ask(&up, arguments).output().expect("the binary starts");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let twice = refused(&join);
    assert!(twice.contains("another stead (process"), "{twice}");
    let other = elsewhere.path().join("other").display().to_string();
    let cut = refused(&["node", "join", "far", "--data", &other]);
    assert!(cut.contains("node far is cut from the API"), "{cut}");
    succeeded(&mut ask(&up, &["node", "heal", "far"]));
    until(&up, "it is reached again", &["exec", "far", "--", "echo", "hi"], "hi");

    if nix::unistd::geteuid().is_root() {
        let first = "head -c 30 /proc/1/cmdline | tr '\\0' ' '";
        let debug = [
            "debug",
            "far",
            "--image=busybox",
            "--target=main",
            "-c",
            "look",
            "--",
            "sh",
            "-c",
            first,
        ];
        up.run(&debug);
        until(&up, "it sees its target", &["logs", "far", "-c", "look"], "echo begun");
    }

    // After a clean stop nobody has to wait whether somebody still holds the name.
    kill(Pid::from_raw(node.id().try_into().expect("a number")), Signal::SIGTERM).expect("it runs");
    eventually("the node ends", PATIENCE, || {
        node.check().err().map(drop).ok_or_else(|| "it runs".to_string())
    });
    let lease = [
        "get",
        "lease",
        "-n",
        "kube-node-lease",
        "far",
        "-o",
        "jsonpath={.spec.holderIdentity}",
    ];
    assert_eq!(up.run(&lease), "");
    succeeded(ask(&up, &["down", "--data", &data]).env_remove("KUBECONFIG"));
    let (_, _, place) = up.stop(Signal::SIGTERM);
    succeeded(command(&binary, place.path()).arg("down"));
}
