//! The real kubectl beside running pods: logs, exec, attach, cp, port-forward, top.

use crate::binary::{PATIENCE, Up, eventually, http, kubectl, line_that};
use crate::terminal::Terminal;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};

/// A shell that ticks, as a pod.
const SHELL: &str = "apiVersion: v1
kind: Pod
metadata: {name: shell}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: shell
    image: busybox
    command: [sh, -c, 'echo begun; n=0; while sleep 1; do n=$((n+1)); echo tick $n; done']
";

/// A server that nobody reaches from outside of its pod.
const RECLUSE: &str = "apiVersion: v1
kind: Pod
metadata: {name: recluse}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: c, image: stead/hello, env: [{name: STEAD_LISTEN, value: 127.0.0.1}]}]
";

/// A program that reads lines and answers them, on a terminal or on pipes.
fn reader(name: &str, tty: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  containers:
  - name: reader
    image: busybox
    stdin: true
    stdinOnce: true
    tty: {tty}
    command: [sh, -c, 'while read line; do echo \"heard $line\"; done; echo over']
"
    )
}

fn cluster() -> Option<Up> {
    kubectl()?;
    Up::whole(&["--ephemeral", "--nodes", "3"])
}

/// A child that ends with its story.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn ready(up: &Up, what: &str) {
    up.run(&["wait", what, "--for=condition=Ready", "--timeout=60s"]);
}

#[test]
fn logs_are_followed_and_commands_run_with_and_without_a_terminal() {
    let Some(up) = cluster() else { return };
    up.apply(SHELL);
    ready(&up, "pod/shell");

    let follow = up.kubectl(&["logs", "-f", "shell"]).stdout(Stdio::piped()).spawn();
    let mut follow = Ended(follow.expect("kubectl starts"));
    let mut lines = BufReader::new(follow.0.stdout.take().expect("a pipe"));
    assert!(line_that(&mut lines, |line| line == "begun\n").is_some());
    assert!(line_that(&mut lines, |line| line == "tick 1\n").is_some());
    assert!(line_that(&mut lines, |line| line == "tick 2\n").is_some());
    assert_eq!(up.run(&["logs", "shell", "--tail=1"]).lines().count(), 1);
    assert!(up.run(&["logs", "shell", "--timestamps"]).contains("Z begun"));

    assert_eq!(up.run(&["exec", "shell", "--", "echo", "hello there"]), "hello there\n");
    let failed = up.kubectl(&["exec", "shell", "--", "sh", "-c", "exit 7"]).output();
    assert_eq!(failed.expect("kubectl starts").status.code(), Some(7));
    assert!(
        up.refused(&["exec", "shell", "--", "no-such-program"])
            .contains("executable file not found")
    );
    let input = up
        .kubectl(&["exec", "-i", "shell", "--", "wc", "-c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut input = input.expect("kubectl starts");
    let much = vec![b'x'; 300_000];
    input.stdin.take().expect("a pipe").write_all(&much).expect("it reads");
    let counted = input.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&counted.stdout).trim(), "300000");

    let mut shell = Terminal::start(&mut up.kubectl(&["exec", "-it", "shell", "--", "sh"]));
    shell.type_in("echo $((6 * 7)); stty size; tty\n");
    shell.shows("42\r\n24 80\r\n/dev/pts/");
    shell.type_in("sh -c 'echo asleep $((1 + 1)); exec sleep 100'\n");
    shell.shows("asleep 2\r\n");
    // Ctrl-C ends the sleep and not the shell: it is the leader of a session on a terminal of its own.
    shell.type_in("\u{3}");
    shell.type_in("echo still $TERM\n");
    shell.shows("still xterm\r\n");
    shell.type_in("exit 3\n");
    assert_eq!(shell.ends().code(), Some(3));
}

#[test]
fn attaching_joins_a_program_that_reads() {
    let Some(up) = cluster() else { return };
    up.apply(&reader("piped", "false"));
    up.apply(&reader("typed", "true"));
    ready(&up, "pod/piped");
    ready(&up, "pod/typed");

    let attach = up
        .kubectl(&["attach", "-i", "piped"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let mut attach = Ended(attach.expect("kubectl starts"));
    let mut keyboard = attach.0.stdin.take().expect("a pipe");
    let mut lines = BufReader::new(attach.0.stdout.take().expect("a pipe"));
    keyboard.write_all(b"one\n").expect("it reads");
    assert!(line_that(&mut lines, |line| line == "heard one\n").is_some());
    drop(keyboard);
    assert!(line_that(&mut lines, |line| line == "over\n").is_some());
    up.run(&[
        "wait",
        "pod/piped",
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout=60s",
    ]);
    assert!(up.run(&["logs", "piped"]).contains("heard one"), "the log has it too");

    let mut typed = Terminal::start(&mut up.kubectl(&["attach", "-it", "typed"]));
    typed.type_in("two\n");
    typed.shows("heard two\r\n");
    typed.type_in("\u{4}");
    typed.shows("over\r\n");
    up.run(&[
        "wait",
        "pod/typed",
        "--for=jsonpath={.status.phase}=Succeeded",
        "--timeout=60s",
    ]);

    let mut run = Terminal::start(&mut up.kubectl(&[
        "run",
        "-it",
        "--rm",
        "asked",
        "--image=busybox",
        "--restart=Never",
        "--",
        "sh",
        "-c",
        "read x; echo \"got $x\"",
    ]));
    run.shows("If you don't see");
    run.type_in("three\n");
    run.shows("got three");
    run.shows("deleted");
    assert!(run.ends().success());
}

#[test]
fn files_are_copied_in_and_out() {
    let Some(up) = cluster() else { return };
    up.apply(SHELL);
    ready(&up, "pod/shell");
    let text = "a line\n".repeat(50_000);
    let file = up.file("there.txt", &text);
    up.run(&["cp", &file, "shell:/tmp/there.txt"]);
    assert_eq!(
        up.run(&["exec", "shell", "--", "wc", "-l", "/tmp/there.txt"]).trim(),
        "50000 /tmp/there.txt"
    );
    let back = up.place.path().join("back.txt");
    up.run(&["cp", "shell:/tmp/there.txt", &back.display().to_string()]);
    assert!(std::fs::read_to_string(&back).expect("a file") == text);
}

#[test]
fn ports_of_pods_services_and_deployments_are_forwarded() {
    let Some(up) = cluster() else { return };
    up.run(&["create", "deployment", "web", "--image=stead/hello", "--port=8080"]);
    up.run(&["expose", "deployment", "web", "--port=80", "--target-port=8080"]);
    up.run(&["rollout", "status", "deployment/web", "--timeout=60s"]);
    up.apply(RECLUSE);
    ready(&up, "pod/recluse");
    for target in ["deployment/web", "service/web", "pod/recluse"] {
        let remote = if target.starts_with("service") { ":80" } else { ":8080" };
        let forward = up
            .kubectl(&["port-forward", target, remote])
            .stdout(Stdio::piped())
            .spawn();
        let mut forward = Ended(forward.expect("kubectl starts"));
        let mut lines = BufReader::new(forward.0.stdout.take().expect("a pipe"));
        let mut line = String::new();
        lines.read_line(&mut line).expect("a line");
        let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' '));
        let address = format!("127.0.0.1:{}", port.expect("a local port").0);
        // One forward carries many connections, one after the other and beside each other.
        let answers: Vec<_> = (0..8)
            .map(|_| {
                let address = address.clone();
                std::thread::spawn(move || http(&address, "/"))
            })
            .collect();
        for answer in answers {
            let answer = answer.join().expect("no panic");
            assert!(answer.contains("Hello from Stead"), "{target}: {answer}");
        }
    }
    let mut closed = up.kubectl(&["port-forward", "deployment/web", ":81"]);
    let mut closed = Ended(
        closed
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("kubectl starts"),
    );
    let mut lines = BufReader::new(closed.0.stdout.take().expect("a pipe"));
    let mut line = String::new();
    lines.read_line(&mut line).expect("a line");
    let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' '));
    http(&format!("127.0.0.1:{}", port.expect("a local port").0), "/");
    let mut complaints = BufReader::new(closed.0.stderr.take().expect("a pipe"));
    let told = line_that(&mut complaints, |line| line.contains("error forwarding port 81"));
    assert!(told.is_some(), "a port that nobody listens on is told");
}

#[test]
fn top_shows_what_pods_and_nodes_use() {
    let Some(up) = cluster() else { return };
    up.apply(
        &SHELL
            .replace("while sleep 1;", "while true;")
            .replace("echo tick $n", ":"),
    );
    ready(&up, "pod/shell");
    let busy = |row: &str| {
        let milli = row.split_whitespace().nth(1).and_then(|cpu| cpu.strip_suffix('m'));
        milli
            .and_then(|cpu| cpu.parse::<u32>().ok())
            .is_some_and(|cpu| cpu > 50)
    };
    eventually("a busy pod is seen to be busy", PATIENCE, || {
        let pods = up.run(&["top", "pods", "--no-headers"]);
        pods.lines()
            .any(|row| row.starts_with("shell ") && busy(row))
            .then_some(())
            .ok_or(pods)
    });
    let nodes = up.run(&["top", "nodes", "--no-headers"]);
    assert_eq!(nodes.lines().count(), 3, "{nodes}");
    assert!(nodes.lines().any(busy), "{nodes}");
    let containers = up.run(&["top", "pod", "shell", "--containers", "--no-headers"]);
    assert_eq!(
        containers.split_whitespace().take(2).collect::<Vec<_>>(),
        ["shell", "shell"]
    );
    assert!(
        up.run(&["api-resources", "--api-group=metrics.k8s.io"])
            .contains("PodMetrics")
    );
}
