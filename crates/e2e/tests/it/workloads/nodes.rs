//! Nodes that are lost, cut off and drained.

use super::{WEB, cluster, of, pods, process_of, rolled_out};
use crate::binary::{PATIENCE, command, eventually, stead, succeeded};
use nix::sys::signal::{Signal, kill};
use std::time::Duration;

#[test]
fn pods_heal_after_a_kill_and_after_the_loss_of_a_node() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    rolled_out(&up);

    let victim = pods(&up, "app=web").swap_remove(0);
    kill(process_of(&victim), Signal::SIGKILL).expect("it runs");
    let pod = format!("pod/{victim}");
    up.run(&[
        "wait",
        &pod,
        "--for=jsonpath={.status.containerStatuses[0].restartCount}=1",
        "--timeout=60s",
    ]);
    up.run(&["wait", &pod, "--for=condition=Ready", "--timeout=60s"]);
    assert_eq!(
        of(&up, &pod, ".status.containerStatuses[0].lastState.terminated.exitCode"),
        "137"
    );

    let binary = stead().expect("the binary");
    let power = |verb: &str| {
        let mut change = command(&binary, up.place.path());
        succeeded(change.env("KUBECONFIG", &up.kubeconfig).args(["node", verb, "node-1"]));
    };
    let lost = of(
        &up,
        "pods --field-selector=spec.nodeName=node-1",
        ".items[*].metadata.name",
    );
    power("stop");
    up.run(&["wait", "node/node-1", "--for=condition=Ready=Unknown", "--timeout=120s"]);
    eventually("three pods are available elsewhere", Duration::from_secs(120), || {
        let rows = up.run(&["get", "pods", "-l", "app=web", "--no-headers", "-o", "wide"]);
        let alive = rows
            .lines()
            .filter(|row| row.contains("1/1") && row.contains("Running") && !row.contains("node-1"));
        (alive.count() == 3).then_some(()).ok_or(rows)
    });
    power("start");
    up.run(&["wait", "node/node-1", "--for=condition=Ready", "--timeout=60s"]);
    eventually("what was on the node is gone", PATIENCE, || {
        let rows = up.run(&["get", "pods", "-l", "app=web", "--no-headers"]);
        let left = lost.split_whitespace().any(|name| rows.contains(name));
        (!left && rows.lines().count() == 3).then_some(()).ok_or(rows)
    });
    rolled_out(&up);
}

#[test]
fn pods_of_a_node_that_was_off_for_a_moment_run_again() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    rolled_out(&up);
    let binary = stead().expect("the binary");
    for verb in ["stop", "start", "stop", "start"] {
        let mut change = command(&binary, up.place.path());
        succeeded(change.env("KUBECONFIG", &up.kubeconfig).args(["node", verb, "node-1"]));
    }
    let on_node = "--field-selector=spec.nodeName=node-1";
    eventually("its containers were started again", PATIENCE, || {
        let path = "jsonpath={.items[*].status.containerStatuses[0].restartCount}";
        let counts = up.run(&["get", "pods", "-l", "app=web", on_node, "-o", path]);
        let again = !counts.is_empty() && counts.split(' ').all(|count| count != "0");
        again
            .then_some(())
            .ok_or_else(|| up.run(&["get", "pods,events", on_node, "-o", "yaml"]))
    });
    let ready = "--for=condition=Ready";
    up.run(&["wait", "pods", "-l", "app=web", on_node, ready, "--timeout=60s"]);
}

#[test]
fn a_node_that_is_cut_off_runs_on_and_is_back_when_it_is_healed() {
    let Some(up) = cluster() else { return };
    // Kubernetes' own patience with lost nodes: five minutes, far more than this outage lasts.
    let web = WEB.replace("tolerationSeconds: 1", "tolerationSeconds: 300");
    up.apply(&web);
    rolled_out(&up);
    let before = pods(&up, "app=web");
    let on = |node: &str| {
        let field = format!("spec.nodeName={node}");
        let names = up.run(&["get", "pods", "-l", "app=web", "--field-selector", &field, "-o", "name"]);
        names
            .lines()
            .next()
            .and_then(|name| name.strip_prefix("pod/"))
            .map(str::to_owned)
    };
    let pod = on("node-1").expect("pods are spread over the nodes");
    let process = process_of(&pod);
    let power = |verb: &str| {
        let mut command = command(&stead().expect("the binary"), up.place.path());
        succeeded(command.env("KUBECONFIG", &up.kubeconfig).args(["node", verb, "node-1"]))
    };
    assert_eq!(power("partition"), "node/node-1 is cut from the API\n");
    up.run(&["wait", "node/node-1", "--for=condition=Ready=Unknown", "--timeout=90s"]);
    assert_eq!(process_of(&pod), process, "its pods run on");
    up.run(&[
        "wait",
        &format!("pod/{pod}"),
        "--for=condition=Ready=False",
        "--timeout=30s",
    ]);
    assert_eq!(power("heal"), "node/node-1 is on and connected\n");
    up.run(&["wait", "node/node-1", "--for=condition=Ready", "--timeout=60s"]);
    rolled_out(&up);
    up.run(&["wait", &format!("pod/{pod}"), "--for=condition=Ready", "--timeout=60s"]);
    assert_eq!(process_of(&pod), process, "nothing was started again");
    assert_eq!(pods(&up, "app=web"), before);
}

#[test]
fn nodes_are_cordoned_and_drained_without_breaking_a_budget() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    up.run(&[
        "create",
        "poddisruptionbudget",
        "web",
        "--selector=app=web",
        "--min-available=2",
    ]);
    rolled_out(&up);
    up.run(&["cordon", "node-0"]);
    assert!(up.run(&["get", "node", "node-0"]).contains("SchedulingDisabled"));
    up.run(&[
        "wait",
        "pdb/web",
        "--for=jsonpath={.status.disruptionsAllowed}=1",
        "--timeout=60s",
    ]);
    up.run(&["drain", "node-1", "--ignore-daemonsets", "--timeout=90s"]);
    rolled_out(&up);
    let where_they_are = up.run(&["get", "pods", "-l", "app=web", "-o", "wide", "--no-headers"]);
    assert!(!where_they_are.contains("node-1"), "{where_they_are}");
    for node in ["node-0", "node-1"] {
        up.run(&["uncordon", node]);
        assert!(!up.run(&["get", "node", node]).contains("SchedulingDisabled"));
    }
}
