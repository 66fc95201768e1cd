//! What an image's name leads to: an entry of the user's, a program of the machine, an archive that was loaded.

use crate::binary::{PATIENCE, Up, command, eventually, kubectl, stead, succeeded};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

fn digest(bytes: &[u8]) -> String {
    let hex: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

fn pod(name: &str, image: &str, rest: &str) -> String {
    format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: {name}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
  - name: c
    image: {image}
    {rest}
"
    )
}

fn ended(up: &Up, pod: &str, phase: &str) {
    let phase = format!("--for=jsonpath={{.status.phase}}={phase}");
    up.run(&["wait", &format!("pod/{pod}"), &phase, "--timeout=60s"]);
}

#[test]
fn names_lead_to_programs_and_unknown_ones_say_what_to_do() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let entries = place.path().join("own.yaml");
    std::fs::write(
        &entries,
        "images:\n  example.com/team/greeter: {command: [echo], args: [from, the, catalogue]}\n",
    )
    .expect("a file");
    let entries = entries.display().to_string();
    let Some(up) = Up::whole_in(place, &["--ephemeral", "--images", &entries]) else {
        return;
    };
    up.apply(&pod("own", "'example.com/team/greeter:7'", ""));
    ended(&up, "own", "Succeeded");
    assert_eq!(up.run(&["logs", "own"]), "from the catalogue\n");
    eventually("an event says that the tag is ignored", PATIENCE, || {
        let events = up.run(&["events", "--for", "pod/own"]);
        events.contains("the tag \"7\" is ignored").then_some(()).ok_or(events)
    });
    // A registry where nobody listens.
    up.apply(&pod("unknown", "'127.0.0.1:1/nothing'", ""));
    eventually("an unknown image says what to do", PATIENCE, || {
        let shown = up.run(&["describe", "pod", "unknown"]);
        let told = shown.contains("ErrImagePull")
            && shown.contains("127.0.0.1 cannot be reached")
            && shown.contains("stead image load");
        told.then_some(()).ok_or(shown)
    });
    eventually("and is tried less and less often", PATIENCE, || {
        let shown = up.run(&["get", "pod", "unknown", "--no-headers"]);
        shown.contains("ImagePullBackOff").then_some(()).ok_or(shown)
    });
}

#[test]
fn limits_and_last_words_are_in_the_status() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    let why = "{.status.containerStatuses[0].state.terminated.reason}: {.status.containerStatuses[0].state.terminated.message}";
    let why = |pod: &str| up.run(&["get", "pod", pod, "-o", &format!("jsonpath={why}")]);
    up.apply(&pod(
        "words",
        "busybox",
        "command: [sh, -c, 'echo no disk > /dev/termination-log; exit 1']",
    ));
    ended(&up, "words", "Failed");
    assert_eq!(why("words"), "Error: no disk\n");
    let fallback = "terminationMessagePolicy: FallbackToLogsOnError\n    command: [sh, -c, 'echo it broke; exit 1']";
    up.apply(&pod("silent", "busybox", fallback));
    ended(&up, "silent", "Failed");
    assert_eq!(why("silent"), "Error: it broke\n");
    let node = up.run(&[
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[0].status.conditions[?(@.type==\"Ready\")].message}",
    ]);
    if node.contains("of memory") && !node.contains("not enforced") {
        // Doubles a word until it does not fit.
        let greedy = "resources: {limits: {memory: 32Mi}}\n    command: [sh, -c, 'a=x; while true; do a=$a$a; done']";
        up.apply(&pod("greedy", "busybox", greedy));
        ended(&up, "greedy", "Failed");
        assert!(why("greedy").starts_with("OOMKilled"), "{}", why("greedy"));
    }
}

#[test]
fn configuration_changes_while_a_pod_runs() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    up.run(&["create", "configmap", "settings", "--from-literal=colour=red"]);
    let mounted = "command: [sh, -c, 'chmod 700 /own; sleep 1000000']
    volumeMounts: [{name: o, mountPath: /own}, {name: s, mountPath: /settings}]
  volumes: [{name: o, emptyDir: {}}, {name: s, configMap: {name: settings}}]";
    up.apply(&pod("reader", "busybox", mounted));
    up.run(&["wait", "pod/reader", "--for=condition=Ready", "--timeout=60s"]);
    assert_eq!(up.run(&["exec", "reader", "--", "cat", "/settings/colour"]), "red");
    up.run(&["patch", "configmap", "settings", "-p", r#"{"data":{"colour":"blue"}}"#]);
    eventually("a mounted config map follows its object", PATIENCE, || {
        let seen = up.run(&["exec", "reader", "--", "cat", "/settings/colour"]);
        (seen == "blue").then_some(()).ok_or(seen)
    });
    // The same look once opened every empty directory again, and a database refuses to start in one that others can write to.
    assert_eq!(up.run(&["exec", "reader", "--", "stat", "-c", "%a", "/own"]), "700\n");
}

/// An archive as `docker save` writes it, of this machine's shell and the libraries that it needs.
fn archive(folder: &Path) -> String {
    let root = folder.join("root");
    let libraries = succeeded(Command::new("ldd").arg("/bin/sh"));
    let libraries = libraries.split_whitespace().filter(|word| word.starts_with('/'));
    for file in libraries.chain(["/bin/sh"]) {
        let target = root.join(file.trim_start_matches('/'));
        std::fs::create_dir_all(target.parent().expect("a folder")).expect("a folder");
        std::fs::copy(file, target).expect("a copy");
    }
    std::fs::create_dir_all(root.join("srv")).expect("a folder");
    std::fs::write(root.join("srv/greeting"), "hello from the image\n").expect("a file");
    let layer = folder.join("layer.tar");
    succeeded(Command::new("tar").arg("-C").arg(&root).arg("-cf").arg(&layer).arg("."));
    let content = std::fs::read(&layer).expect("the layer");
    let config = serde_json::json!({
        "config": {"Entrypoint": ["/bin/sh", "-c"], "Cmd": ["read x < greeting; echo $x; echo $FLAVOUR; echo /*"],
            "Env": ["FLAVOUR=plain", "PATH=/bin"], "WorkingDir": "/srv"},
        "rootfs": {"type": "layers", "diff_ids": [digest(&content)]},
    });
    std::fs::write(folder.join("config.json"), config.to_string()).expect("a file");
    let manifest = r#"[{"Config": "config.json", "RepoTags": ["example.com/team/shell:1"], "Layers": ["layer.tar"]}]"#;
    std::fs::write(folder.join("manifest.json"), manifest).expect("a file");
    let archive = folder.join("image.tar");
    let parts = ["manifest.json", "config.json", "layer.tar"];
    succeeded(
        Command::new("tar")
            .arg("-C")
            .arg(folder)
            .arg("-cf")
            .arg(&archive)
            .args(parts),
    );
    archive.display().to_string()
}

#[test]
fn a_loaded_image_runs_in_a_root_of_its_own() {
    let (Some(binary), Some(_)) = (stead(), kubectl()) else {
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        return stead_test::skip::skipped("a root of its own takes the rights of root");
    }
    let place = tempfile::tempdir().expect("a directory");
    let made = tempfile::tempdir().expect("a directory");
    let told = succeeded(command(&binary, place.path()).args(["image", "load", &archive(made.path())]));
    assert_eq!(told, "loaded example.com/team/shell:1\n");
    let listed = succeeded(command(&binary, place.path()).args(["image", "list", "-o", "json"]));
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON for programs");
    assert_eq!(listed[0]["name"], "example.com/team/shell:1");
    assert!(
        listed[0]["digest"]
            .as_str()
            .is_some_and(|digest| digest.starts_with("sha256:"))
    );
    let Some(up) = Up::whole_in(place, &["--ephemeral"]) else {
        return;
    };
    up.apply(&pod("shell", "'example.com/team/shell:1'", ""));
    ended(&up, "shell", "Succeeded");
    let log = up.run(&["logs", "shell"]);
    assert!(log.starts_with("hello from the image\nplain\n"), "{log}");
    assert!(!log.contains("/home"), "nothing of the machine is there: {log}");
}

/// A registry on this machine that has one image, the archive's, under `team/shell:1`.
fn registry(folder: &Path) -> String {
    archive(folder);
    let read = |name: &str| std::fs::read(folder.join(name)).expect("a part of the archive");
    let (config, layer) = (read("config.json"), read("layer.tar"));
    let describe = |bytes: &[u8]| serde_json::json!({"digest": digest(bytes), "size": bytes.len()});
    let manifest = serde_json::json!({"config": describe(&config), "layers": [describe(&layer)]}).to_string();
    let things = [
        ("/v2/team/shell/manifests/1".to_owned(), manifest.into_bytes()),
        (format!("/v2/team/shell/blobs/{}", digest(&config)), config),
        (format!("/v2/team/shell/blobs/{}", digest(&layer)), layer),
    ];
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut lines = BufReader::new(stream.try_clone().expect("a copy")).lines();
            let asked = lines.next().and_then(Result::ok).unwrap_or_default();
            while lines.next().and_then(Result::ok).is_some_and(|line| !line.is_empty()) {}
            let found = things.iter().find(|(path, _)| asked.contains(&format!(" {path} ")));
            let (status, body) = found.map_or(("404 Not Found", &[][..]), |(_, bytes)| ("200 OK", bytes));
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
    address.to_string()
}

#[test]
fn an_image_is_pulled_from_its_registry_and_one_that_is_not_there_says_why() {
    let (Some(binary), Some(_)) = (stead(), kubectl()) else {
        return;
    };
    if !nix::unistd::geteuid().is_root() {
        return stead_test::skip::skipped("a root of its own takes the rights of root");
    }
    let made = tempfile::tempdir().expect("a directory");
    let host = registry(made.path());
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    up.apply(&pod("pulled", &format!("'{host}/team/shell:1'"), ""));
    ended(&up, "pulled", "Succeeded");
    let log = up.run(&["logs", "pulled"]);
    assert!(log.starts_with("hello from the image\nplain\n"), "{log}");
    let id = up.run(&[
        "get",
        "pod",
        "pulled",
        "-o",
        "jsonpath={.status.containerStatuses[0].imageID}",
    ]);
    assert!(id.starts_with(&format!("{host}/team/shell@sha256:")), "{id}");
    eventually("events tell of the pull", PATIENCE, || {
        let events = up.run(&["events", "--for", "pod/pulled"]);
        events.contains("Successfully pulled image").then_some(()).ok_or(events)
    });
    up.apply(&pod("missing", &format!("'{host}/team/shell:2'"), ""));
    eventually("a missing image says why", PATIENCE, || {
        let shown = up.run(&["describe", "pod", "missing"]);
        let told = shown.contains("ErrImagePull") && shown.contains("404 Not Found");
        told.then_some(()).ok_or(shown)
    });
    eventually("and is tried less and less often", PATIENCE, || {
        let shown = up.run(&["get", "pod", "missing", "--no-headers"]);
        shown.contains("ImagePullBackOff").then_some(()).ok_or(shown)
    });
    let own = tempfile::tempdir().expect("a directory");
    let told = succeeded(command(&binary, own.path()).args(["image", "pull", &format!("{host}/team/shell:1")]));
    assert_eq!(told, format!("pulled {host}/team/shell:1\n"));
}

#[test]
fn containers_see_each_others_processes_where_a_pod_says_so() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    let two = "command: [sleep, '1111111']\n  - {name: d, image: busybox, command: [sleep, '2222222']}";
    let alone = pod("alone", "busybox", two);
    up.apply(&alone);
    up.apply(
        &alone
            .replace("name: alone", "name: shared")
            .replace("spec:\n", "spec:\n  shareProcessNamespace: true\n"),
    );
    up.run(&[
        "wait",
        "pod/alone",
        "pod/shared",
        "--for=condition=Ready",
        "--timeout=60s",
    ]);
    let seen = |pod: &str| {
        up.run(&[
            "exec",
            pod,
            "-c",
            "c",
            "--",
            "sh",
            "-c",
            "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
        ])
    };
    let node = up.run(&[
        "get",
        "nodes",
        "-o",
        "jsonpath={.items[0].status.conditions[?(@.type==\"Ready\")].message}",
    ]);
    if node.contains("share the machine's network") {
        return stead_test::skip::skipped("containers have no processes of their own without the rights of root");
    }
    assert!(!seen("alone").contains("2222222"), "{}", seen("alone"));
    assert!(
        seen("shared").contains("1111111") && seen("shared").contains("2222222"),
        "{}",
        seen("shared")
    );
}

#[test]
fn a_pod_may_be_on_the_machines_network_and_a_root_may_be_read_only() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    let outside = pod("outside", "stead/hello", "env: [{name: PORT, value: '0'}]");
    up.apply(&outside.replace("spec:\n", "spec:\n  hostNetwork: true\n"));
    up.run(&["wait", "pod/outside", "--for=condition=Ready", "--timeout=60s"]);
    let own = std::fs::read_link("/proc/self/ns/net")
        .expect("a namespace")
        .display()
        .to_string();
    assert_eq!(
        up.run(&["exec", "outside", "--", "readlink", "/proc/self/ns/net"])
            .trim(),
        own
    );
    assert_eq!(
        up.run(&["get", "pod", "outside", "-o", "jsonpath={.status.podIP}"]),
        "127.0.0.1"
    );

    let script = "command: [sh, -c, 'touch /x /tmp/x 2>&1 && echo written || echo refused']";
    up.apply(&pod("free", "busybox", script));
    up.apply(&pod(
        "strict",
        "busybox",
        &format!("securityContext: {{readOnlyRootFilesystem: true}}\n    {script}"),
    ));
    for (name, said) in [("free", "written"), ("strict", "refused")] {
        ended(&up, name, "Succeeded");
        assert!(
            up.run(&["logs", name]).ends_with(&format!("{said}\n")),
            "{name}: {}",
            up.run(&["logs", name])
        );
    }
    up.apply(&pod("never", "busybox", "securityContext: {runAsNonRoot: true}"));
    eventually(
        "a container that must not be root is not started as root",
        PATIENCE,
        || {
            let shown = up.run(&["describe", "pod", "never"]);
            shown.contains("image will run as root").then_some(()).ok_or(shown)
        },
    );
}
