//! Volumes that are made when they are asked for, on nodes whose pods are processes: they outlive pods, and the cluster
//! itself.

use crate::binary::{PATIENCE, Up, command, eventually, kubectl, stead, succeeded};
use nix::sys::signal::Signal;

const SET: &str = "apiVersion: v1
kind: Service
metadata: {name: db}
spec: {clusterIP: None, selector: {app: db}, ports: [{port: 5432}]}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Retain}
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
      - name: db
        image: busybox
        command: [sh, -c, 'echo $(hostname) >> /data/boots; exec sleep 1000000']
        volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
";

fn boots(up: &Up, pod: &str) -> String {
    up.run(&["exec", pod, "--", "cat", "/data/boots"])
}

fn rolled_out(up: &Up) {
    up.run(&["rollout", "status", "statefulset/db", "--timeout=90s"]);
}

#[test]
fn a_stateful_set_finds_its_data_again_after_restarts_of_pods_and_of_the_cluster() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let data = place.path().join("data").display().to_string();
    let arguments = ["--data", data.as_str(), "--nodes", "2"];
    let Some(up) = Up::whole_in(place, &arguments) else {
        return;
    };
    up.apply(SET);
    rolled_out(&up);
    let volume_of = |up: &Up, pod: &str| {
        let claim = format!("pvc/data-{pod}");
        let told = up.run(&["get", &claim, "-o", "jsonpath={.status.phase} {.spec.volumeName}"]);
        let (phase, volume) = told.split_once(' ').expect("phase and volume");
        assert_eq!(phase, "Bound");
        volume.to_owned()
    };
    let (first, second) = (volume_of(&up, "db-0"), volume_of(&up, "db-1"));
    assert_ne!(first, second, "each pod has a volume of its own");
    let node = |up: &Up, pod: &str| up.run(&["get", "pod", pod, "-o", "jsonpath={.spec.nodeName}"]);
    let home = node(&up, "db-0");
    assert_eq!(boots(&up, "db-0"), "db-0\n");

    // A pod that comes back has its name, its node and its data.
    up.run(&["delete", "pod", "db-0", "--timeout=60s"]);
    rolled_out(&up);
    assert_eq!(boots(&up, "db-0"), "db-0\ndb-0\n");
    assert_eq!(node(&up, "db-0"), home, "its volume is on that node");

    // The whole cluster goes away, and its pods with it.
    let (_, _, place) = up.stop(Signal::SIGTERM);
    succeeded(command(&stead().expect("the binary"), place.path()).args(["down", "--data", &data]));
    let Some(up) = Up::whole_in(place, &arguments) else {
        return;
    };
    eventually("the pods run again", PATIENCE, || {
        let mut ask = up.kubectl(&["exec", "db-0", "--", "cat", "/data/boots"]);
        let told = ask.output().map_err(|error| error.to_string())?;
        let told = format!(
            "{}{}",
            String::from_utf8_lossy(&told.stdout),
            String::from_utf8_lossy(&told.stderr)
        );
        (told == "db-0\ndb-0\ndb-0\n").then_some(()).ok_or(told)
    });
    rolled_out(&up);
    assert_eq!(boots(&up, "db-1"), "db-1\ndb-1\n");
    assert_eq!(
        (volume_of(&up, "db-0"), volume_of(&up, "db-1")),
        (first, second.clone())
    );

    // As the retention policy says: a claim goes when its set is scaled down, and its volume with it.
    up.run(&["scale", "statefulset/db", "--replicas=1"]);
    up.run(&["wait", "--for=delete", "pvc/data-db-1", "--timeout=60s"]);
    up.run(&["wait", "--for=delete", &format!("pv/{second}"), "--timeout=60s"]);
    up.run(&["scale", "statefulset/db", "--replicas=2"]);
    rolled_out(&up);
    assert_eq!(boots(&up, "db-1"), "db-1\n", "a new volume is empty");
    // And one stays when the set is deleted.
    up.run(&["delete", "statefulset", "db", "--cascade=foreground", "--timeout=60s"]);
    let left = up.run(&["get", "pvc", "-o", "jsonpath={.items[*].status.phase}"]);
    assert_eq!(left, "Bound Bound");
    up.apply(SET);
    rolled_out(&up);
    assert_eq!(boots(&up, "db-0").lines().count(), 4, "{}", boots(&up, "db-0"));
    let (_, _, place) = up.stop(Signal::SIGTERM);
    succeeded(command(&stead().expect("the binary"), place.path()).args(["down", "--data", &data]));
}

#[test]
fn an_ephemeral_volume_is_a_directory_that_comes_and_goes_with_its_pod() {
    if kubectl().is_none() {
        return;
    }
    let Some(up) = Up::whole(&["--ephemeral"]) else { return };
    up.apply(
        "apiVersion: v1
kind: Pod
metadata: {name: user}
spec:
  terminationGracePeriodSeconds: 0
  containers:
  - name: main
    image: busybox
    command: [sh, -c, 'echo kept > /scratch/file; exec sleep 1000000']
    volumeMounts: [{name: scratch, mountPath: /scratch}]
  volumes:
  - name: scratch
    ephemeral:
      volumeClaimTemplate:
        spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
",
    );
    up.run(&["wait", "--for=condition=Ready", "pod/user", "--timeout=90s"]);
    let volume = up.run(&["get", "pvc/user-scratch", "-o", "jsonpath={.spec.volumeName}"]);
    let place = up.run(&[
        "get",
        "pv",
        &volume,
        "-o",
        "jsonpath={.spec.hostPath.path}{.spec.local.path}",
    ]);
    eventually("the pod has written to its volume", PATIENCE, || {
        let text =
            std::fs::read_to_string(std::path::Path::new(&place).join("file")).map_err(|error| error.to_string())?;
        (text == "kept\n").then_some(()).ok_or(text)
    });
    up.run(&["delete", "pod/user", "--timeout=60s"]);
    up.run(&["wait", "--for=delete", "pvc/user-scratch", "--timeout=60s"]);
    up.run(&["wait", "--for=delete", &format!("pv/{volume}"), "--timeout=60s"]);
    assert!(!std::path::Path::new(&place).exists(), "{place} is gone");
    up.stop(Signal::SIGTERM);
}
