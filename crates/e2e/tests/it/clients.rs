//! Clients that somebody else wrote, in Go, against the embedded API server: client-go and controller-runtime.
//!
//! The programs are ours (`tools/clients`), the libraries are what the field runs on. `cargo xtask test` builds them
//! beside the binary.

use crate::binary::{Up, command, kubectl, succeeded};
use crate::extension::{configuration, judged};
use base64::Engine;
use std::net::TcpListener;
use std::path::PathBuf;
use stead_test::children::{Process, Program};
use stead_test::skip::skipped;

/// One of the Go programs, built beside the tests.
fn client(name: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("this test has a path");
    let target = test.ancestors().nth(3).expect("tests are in target/PROFILE/deps");
    let path = target.join("clients").join(name);
    if !path.exists() {
        skipped(format_args!(
            "no client-go: {name} is not at {}; `cargo xtask test` builds it",
            path.display()
        ));
        return None;
    }
    Some(path)
}

#[test]
fn client_go_lists_watches_applies_and_elects() {
    let Some(informers) = client("informers") else { return };
    let Some(up) = Up::start(&["--ephemeral"]) else { return };
    let told = succeeded(
        command(&informers, up.place.path())
            .arg("--kubeconfig")
            .arg(&up.kubeconfig),
    );
    assert_eq!(
        told.lines().filter(|line| line.starts_with("ok: ")).count(),
        8,
        "{told}"
    );
}

#[test]
fn a_webhook_of_controller_runtime_is_called_over_tls() {
    let Some(webhooks) = client("webhooks") else { return };
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::start(&["--ephemeral"]) else { return };
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
    let certificate = made.cert.pem();
    up.file("tls.crt", &certificate);
    up.file("tls.key", &made.signing_key.serialize_pem());
    // The port is free again once the listener is dropped, and nobody else is given it in the meantime.
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|listener| listener.local_addr())
        .expect("a port")
        .port();
    let mut running = Process::start(Program {
        path: webhooks,
        arguments: vec![
            format!("--port={port}").into(),
            format!("--certificates={}", up.place.path().display()).into(),
        ],
        environment: vec![("KUBECONFIG".into(), up.kubeconfig.clone().into())],
        log: up.place.path().join("webhooks.log"),
    })
    .expect("the program starts");
    let bundle = base64::engine::general_purpose::STANDARD.encode(&certificate);
    let validating = configuration(&format!("https://127.0.0.1:{port}/validate"), &bundle);
    let mutating = configuration(&format!("https://127.0.0.1:{port}/default"), &bundle)
        .replace("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration");
    up.apply(&format!("{mutating}---{validating}"));

    let deadline = std::time::Instant::now() + crate::binary::PATIENCE;
    while !up
        .kubectl(&["create", "configmap", "plain", "--from-literal=colour=red"])
        .output()
        .expect("kubectl starts")
        .status
        .success()
    {
        running.check().expect("the webhooks run");
        assert!(std::time::Instant::now() < deadline, "{}", running.last_words());
    }
    assert_eq!(
        up.run(&["get", "configmap", "plain", "-o", "jsonpath={.data.owner}"]),
        "nobody",
        "the defaulter has filled it in"
    );
    judged(
        &up,
        "puce is no colour for a configuration",
        "darkred",
        "dark colours are hard to read",
    );
    let refusal = up.refused(&[
        "patch",
        "configmap",
        "plain",
        "--type=merge",
        "-p",
        r#"{"data":{"owner":"me"}}"#,
    ]);
    assert!(refusal.contains("the owner stays who it was"), "{refusal}");
}
