//! What outlives the process, and what does not: pods go on while `stead up` is away, and `stead down` ends them all.

use crate::binary::{PATIENCE, Up, command, eventually, kubectl, stead, succeeded};
use crate::demo::processes_of;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::path::Path;

const PODS: &str = "apiVersion: v1
kind: Pod
metadata: {name: lives, labels: {app: survival}}
spec:
  containers: [{name: c, image: stead/hello}]
---
apiVersion: v1
kind: Pod
metadata: {name: dies, labels: {app: survival}}
spec:
  containers: [{name: c, image: stead/hello, env: [{name: PORT, value: '9999'}]}]
";

/// The number of the container's process, as the machine counts, by the name of its pod.
fn programs(place: &Path) -> BTreeMap<String, i32> {
    let marker = place.display().to_string();
    let all = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let found = all.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        // Its parent is the shim, whose command line names the cluster's directory.
        let status = std::fs::read_to_string(entry.path().join("status")).ok()?;
        let parent = status
            .lines()
            .find_map(|line| line.strip_prefix("PPid:"))?
            .trim()
            .to_owned();
        let shim = std::fs::read(format!("/proc/{parent}/cmdline")).ok()?;
        let its = String::from_utf8_lossy(&line).contains("hello") && String::from_utf8_lossy(&shim).contains(&marker);
        let name = environment
            .split(|byte| *byte == 0)
            .find_map(|pair| pair.strip_prefix(b"HOSTNAME="))?;
        its.then(|| (String::from_utf8_lossy(name).into_owned(), pid))
    });
    found.collect()
}

/// Mounts and network interfaces of the machine, as it lists them.
pub fn machine() -> (Vec<String>, Vec<String>) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mounts = mounts
        .lines()
        .filter(|line| line.contains("stead"))
        .map(str::to_owned)
        .collect();
    let links = std::fs::read_dir("/sys/class/net")
        .expect("interfaces")
        .filter_map(Result::ok);
    let mut links: Vec<String> = links
        .map(|link| link.file_name().to_string_lossy().into_owned())
        .collect();
    links.sort();
    (mounts, links)
}

/// Network namespaces of processes, by number.
fn namespaces() -> BTreeMap<i32, String> {
    let all = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let links = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let link = std::fs::read_link(entry.path().join("ns/net")).ok()?;
        Some((pid, link.display().to_string()))
    });
    links.collect()
}

#[test]
fn pods_are_adopted_after_a_crash_and_down_leaves_nothing_behind() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let data = place.path().join("data").display().to_string();
    let arguments = ["--data", data.as_str(), "--nodes", "2"];
    let before = machine();
    let Some(up) = Up::whole_in(place, &arguments) else {
        return;
    };
    up.apply(PODS);
    up.run(&[
        "wait",
        "pod",
        "-l",
        "app=survival",
        "--for=condition=Ready",
        "--timeout=60s",
    ]);
    let status = |up: &Up, pod: &str| {
        let path = "{.metadata.uid} {.status.containerStatuses[0].containerID} {.status.podIP}";
        up.run(&["get", "pod", pod, "-o", &format!("jsonpath={path}")])
    };
    let (lived, died) = (status(&up, "lives"), status(&up, "dies"));
    let first = programs(up.place.path());
    assert_eq!(first.keys().collect::<Vec<_>>(), ["dies", "lives"]);

    let (_, _, place) = up.stop(Signal::SIGKILL);
    assert_eq!(
        programs(place.path()),
        first,
        "pods outlive the process that started them"
    );
    eventually("sandboxes that no pod has end with their agent", PATIENCE, || {
        let lines = processes_of(place.path()).into_iter();
        let holders: Vec<String> = lines.filter(|line| line.contains(" hold ")).collect();
        // Those of the two pods, and that of the bridge.
        (holders.len() <= 3).then_some(()).ok_or(holders.join("\n"))
    });
    kill(Pid::from_raw(first["dies"]), Signal::SIGKILL).expect("it runs");

    let Some(up) = Up::whole_in(place, &arguments) else {
        return;
    };
    let restarts = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1";
    up.run(&["wait", "pod/dies", restarts, "--timeout=60s"]);
    up.run(&[
        "wait",
        "pod",
        "-l",
        "app=survival",
        "--for=condition=Ready",
        "--timeout=60s",
    ]);
    assert_eq!(status(&up, "lives"), lived, "it was adopted, not started again");
    assert_ne!(status(&up, "dies"), died);
    let second = programs(up.place.path());
    assert_eq!(second["lives"], first["lives"]);
    assert_ne!(second["dies"], first["dies"]);
    assert!(up.run(&["logs", "lives"]).contains("listening on"));
    assert_eq!(up.run(&["exec", "lives", "--", "echo", "hi"]), "hi\n");
    up.run(&["delete", "pod", "lives", "--timeout=60s"]);

    let inside = namespaces()[&second["dies"]].clone();
    // The number of a namespace that is gone is given to the next one: only those who are in it now count.
    let mut holders = namespaces();
    holders.retain(|_, space| *space == inside);
    let (_, _, place) = up.stop(Signal::SIGKILL);
    assert!(!processes_of(place.path()).is_empty());
    succeeded(command(&stead().expect("the binary"), place.path()).args(["down", "--data", &data]));
    eventually("every process is gone", PATIENCE, || {
        let left = processes_of(place.path());
        left.is_empty().then_some(()).ok_or(left.join("\n"))
    });
    assert_eq!(machine(), before, "no mount and no interface is left");
    let own = namespaces()[&i32::try_from(std::process::id()).expect("a number")].clone();
    assert!(
        inside == own
            || namespaces()
                .into_iter()
                .all(|held| holders.get(&held.0) != Some(&held.1)),
        "no process holds the pod's network"
    );
}
