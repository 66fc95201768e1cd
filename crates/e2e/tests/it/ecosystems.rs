//! Tests that other projects wrote for their own clients, unmodified, on the real control plane and on the embedded one.
//!
//! Some of them fail on any Kubernetes of today, because they ask for versions that are gone. So the judge is the real
//! control plane: what passes there passes here.

use crate::binary::{Up, command};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use stead_test::kubernetes::{Kubernetes, Parts};
use stead_test::skip::skipped;

/// Test by test, whether it passed.
type Outcomes = BTreeMap<String, bool>;

/// Something that `cargo xtask test` puts beside the build.
fn beside(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this test has a path");
    let target = test.ancestors().nth(3).expect("tests are in target/PROFILE/deps");
    let path = target.join(name);
    if !path.exists() {
        skipped(format_args!(
            "{} is not there; `cargo xtask test` makes it",
            path.display()
        ));
        return None;
    }
    Some(path)
}

/// Runs a suite on both, and holds that nothing passes on Kubernetes alone.
async fn alike(suite: impl Fn(&Path) -> Outcomes) {
    let real = match Kubernetes::start(Parts::All).await {
        Ok(real) => real,
        Err(error) => return skipped(error),
    };
    let parts = [
        "--parts",
        "api,controllers,scheduler,nodes",
        "--runtime",
        "hollow",
        "--ephemeral",
    ];
    let Some(up) = Up::whole(&parts) else { return };
    let theirs = suite(&real.kubeconfig());
    let ours = suite(&up.kubeconfig);
    assert!(
        theirs.values().any(|passed| *passed),
        "nothing passes on Kubernetes: {theirs:?}"
    );
    let worse: Vec<_> = theirs
        .iter()
        .filter(|(name, passed)| **passed && ours.get(*name) != Some(&true))
        .map(|(name, _)| name)
        .collect();
    assert!(worse.is_empty(), "these pass on Kubernetes alone: {worse:#?}");
}

fn outcomes(mut command: Command) -> Outcomes {
    let output = command.output().expect("the suite starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let outcomes: Outcomes = text
        .lines()
        .filter_map(|line| match line.split_once(' ')? {
            ("passed", name) => Some((name.to_owned(), true)),
            ("failed", name) => Some((name.to_owned(), false)),
            _ => None,
        })
        .collect();
    assert!(
        !outcomes.is_empty(),
        "the suite told nothing: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    outcomes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tests_of_the_python_client_end_as_on_kubernetes() {
    let Some(python) = beside("python/bin/python") else {
        return;
    };
    let home = tempfile::tempdir().expect("a directory");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/python/dynamic_client.py");
    alike(|kubeconfig| {
        let mut suite = command(&python, home.path());
        suite.env("KUBECONFIG", kubeconfig).arg(&script);
        outcomes(suite)
    })
    .await;
}

/// The tests of kube's client run pods, write to them, read their logs and evict them: they need real processes, and no
/// judge beside the embedded cluster, because they all pass.
#[test]
fn the_tests_of_kubes_client_pass() {
    let Some(suite) = beside("ecosystems/kube-client-tests") else {
        return;
    };
    let parts = ["--parts", "api,controllers,scheduler,nodes", "--ephemeral"];
    let Some(up) = Up::whole(&parts) else { return };
    let output = command(&suite, up.place.path())
        .env("KUBECONFIG", &up.kubeconfig)
        .args(["--ignored", "--test-threads", "4"])
        .output()
        .expect("the suite starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let passed = text.lines().filter(|line| line.ends_with("... ok")).count();
    assert!(output.status.success(), "{text}");
    assert!(passed >= 20, "only {passed} tests ran: {text}");
}
