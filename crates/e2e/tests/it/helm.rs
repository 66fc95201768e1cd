//! Helm 4 on the embedded cluster: a chart is installed, upgraded, rolled back and uninstalled.

use crate::binary::{Up, command, succeeded};
use std::path::Path;
use std::process::Command;
use stead_test::skip::skipped;
use stead_test::tools::Tool;

/// The chart, beside the other examples.
const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/chart");

#[test]
fn a_chart_is_installed_upgraded_rolled_back_and_uninstalled() {
    let helm = match Tool::Helm.find() {
        Ok(path) => path,
        Err(missing) => return skipped(missing),
    };
    let Some(up) = Up::whole(&["--ephemeral", "--nodes", "3"]) else {
        return;
    };
    let run = |arguments: &[&str]| -> Command {
        let mut command = command(Path::new(&helm), up.place.path());
        command.env("KUBECONFIG", &up.kubeconfig).args(arguments);
        command
    };
    let helm = |arguments: &[&str]| succeeded(&mut run(arguments));
    let message = || up.run(&["get", "configmap", "hello", "-o", "jsonpath={.data.MESSAGE}"]);
    let answers = || {
        let pod = up.run(&["get", "pods", "-l", "app.kubernetes.io/instance=hello", "-o", "name"]);
        let pod = pod.lines().next().expect("a pod").to_owned();
        up.run(&["exec", &pod, "--", "printenv", "MESSAGE"])
    };

    let told = helm(&["install", "hello", CHART, "--wait", "--timeout", "90s"]);
    assert!(told.contains("STATUS: deployed"), "{told}");
    assert_eq!(message(), "Hello from a chart");
    assert_eq!(
        up.run(&["get", "deploy", "hello", "-o", "jsonpath={.status.availableReplicas}"]),
        "2"
    );
    assert!(
        up.refused(&["get", "job", "hello-greeting"]).contains("not found"),
        "the hook is cleaned up"
    );

    helm(&[
        "upgrade",
        "hello",
        CHART,
        "--set",
        "message=Good evening",
        "--set",
        "replicas=3",
        "--wait",
        "--timeout",
        "90s",
    ]);
    assert_eq!(message(), "Good evening");
    assert_eq!(
        up.run(&["get", "deploy", "hello", "-o", "jsonpath={.status.availableReplicas}"]),
        "3"
    );
    assert_eq!(
        helm(&["history", "hello", "--max", "10", "-o", "json"])
            .matches("\"revision\"")
            .count(),
        2
    );
    assert!(helm(&["list", "-o", "json"]).contains("\"revision\":\"2\""));
    assert!(helm(&["get", "manifest", "hello"]).contains("Good evening"));

    let mut failed = run(&[
        "upgrade",
        "hello",
        CHART,
        "--set",
        "broken=true",
        "--wait",
        "--timeout",
        "5s",
        "--rollback-on-failure",
    ]);
    assert!(
        !failed.output().expect("helm starts").status.success(),
        "pods that never are ready fail a release"
    );
    assert_eq!(message(), "Good evening", "and it goes back by itself");

    helm(&["rollback", "hello", "1", "--wait", "--timeout", "90s"]);
    assert_eq!(message(), "Hello from a chart");
    assert!(answers().contains("Hello from a chart"));
    assert_eq!(
        up.run(&["get", "deploy", "hello", "-o", "jsonpath={.spec.replicas}"]),
        "2"
    );

    helm(&["uninstall", "hello", "--wait", "--timeout", "90s"]);
    assert_eq!(helm(&["list", "-q"]), "");
    assert_eq!(
        up.run(&[
            "get",
            "deploy,svc,configmap,pods",
            "-l",
            "app.kubernetes.io/managed-by=Helm",
            "-o",
            "name"
        ]),
        ""
    );
    assert!(up.refused(&["get", "deploy", "hello"]).contains("not found"));
}
