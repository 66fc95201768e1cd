//! `stead up` as scripts rely on it: what it prints, how it ends, what it says when it cannot start.

use crate::binary::{Up, command, stead};
use nix::sys::signal::Signal;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Output;

fn fails(arguments: &[&str]) -> Option<(Option<i32>, String)> {
    let place = tempfile::tempdir().expect("a directory");
    let Output { status, stderr, .. } = command(&stead()?, place.path())
        .args(arguments)
        .output()
        .expect("it starts");
    Some((status.code(), String::from_utf8_lossy(&stderr).into_owned()))
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).expect("a file").permissions().mode() & 0o777
}

#[test]
fn an_ephemeral_cluster_ends_cleanly_on_either_signal_and_leaves_nothing() {
    for signal in [Signal::SIGINT, Signal::SIGTERM] {
        let Some(up) = Up::start(&["--ephemeral"]) else { return };
        assert!(up.server.starts_with("https://127.0.0.1:"));
        assert_eq!(mode(&up.kubeconfig), 0o600);
        let directory = up.kubeconfig.parent().expect("a directory").to_path_buf();
        assert!(directory.starts_with(up.place.path()));
        assert_eq!(mode(&directory), 0o700);
        let (code, rest, _place) = up.stop(signal);
        assert_eq!((code, rest), (Some(0), vec![]));
        assert!(!directory.exists(), "the directory is gone");
    }
}

#[test]
fn a_durable_cluster_keeps_its_port_and_credentials_and_belongs_to_one_process() {
    let Some(up) = Up::start(&[]) else { return };
    let (server, kubeconfig) = (up.server.clone(), std::fs::read(&up.kubeconfig).expect("a kubeconfig"));
    assert!(up.kubeconfig.starts_with(up.place.path().join("share/stead")));
    let binary = stead().expect("it runs");
    let second = command(&binary, up.place.path())
        .args(["up", "--parts", "api"])
        .output()
        .expect("it starts");
    let complaint = String::from_utf8_lossy(&second.stderr).into_owned();
    assert_eq!(second.status.code(), Some(1));
    assert!(
        complaint.contains(&format!(
            "error: another stead (process {}) runs the cluster in",
            up.pid()
        )),
        "{complaint}"
    );
    assert!(complaint.contains("hint: "), "{complaint}");
    let (code, _, place) = up.stop(Signal::SIGTERM);
    assert_eq!(code, Some(0));
    let Some(again) = Up::start_in(place, &[]) else { return };
    assert_eq!(again.server, server);
    assert_eq!(std::fs::read(&again.kubeconfig).expect("a kubeconfig"), kubeconfig);
}

#[test]
fn what_cannot_work_is_told_with_a_hint_and_an_exit_code() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let cases: [(&[&str], i32, &str); 5] = [
        (
            &["up", "--ephemeral", "--listen", &address],
            1,
            "cannot listen on 127.0.0.1",
        ),
        (
            &["up", "--data", "/proc/nowhere"],
            1,
            "cannot use the directory /proc/nowhere",
        ),
        (
            &["up", "--listen", "nonsense"],
            2,
            "invalid value 'nonsense' for '--listen <HOST:PORT>'",
        ),
        (&["up", "--ephemeral", "--data", "x"], 2, "cannot be used with"),
        (&["down-the-hole"], 2, "unrecognized subcommand 'down-the-hole'"),
    ];
    for (arguments, expected, what) in cases {
        let Some((code, complaint)) = fails(arguments) else {
            return;
        };
        assert_eq!(code, Some(expected), "{arguments:?}: {complaint}");
        assert!(
            complaint.starts_with("error: ") && complaint.contains(what),
            "{arguments:?}: {complaint}"
        );
        assert!(complaint.contains("\nhint: "), "{arguments:?}: {complaint}");
        assert!(!complaint.contains('\x1b'), "no colours in a pipe");
    }
}

#[test]
fn merging_adds_a_context_to_the_users_file_which_is_untouched_otherwise() {
    let place = tempfile::tempdir().expect("a directory");
    let own = place.path().join(".kube/config");
    std::fs::create_dir(place.path().join(".kube")).expect("a directory");
    let before = "apiVersion: v1\nkind: Config\ncurrent-context: prod\ncontexts:\n- name: prod\n  context: {cluster: prod, user: me}\n";
    std::fs::write(&own, before).expect("a file");
    let Some(up) = Up::start_in(place, &["--ephemeral"]) else {
        return;
    };
    assert_eq!(std::fs::read_to_string(&own).expect("a file"), before);
    let (_, _, place) = up.stop(Signal::SIGTERM);
    let Some(_up) = Up::start_in(place, &["--ephemeral", "--merge-kubeconfig"]) else {
        return;
    };
    let merged = std::fs::read_to_string(&own).expect("a file");
    assert!(
        merged.contains("name: prod") && merged.contains("name: stead"),
        "{merged}"
    );
    assert_eq!(mode(&own), 0o600);
}
