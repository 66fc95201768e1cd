//! The operator inside the cluster that it works on: three pods of it from `stead manifests`, one of which leads.

use crate::binary::{PATIENCE, Up, command, kubectl, stead, succeeded};
use std::time::{Duration, Instant};

/// A leader that is killed says nothing; the others wait for its Lease to run out.
const TAKE_OVER: Duration = Duration::from_secs(60);

const APP: &str = "
apiVersion: stead.dev/v1
kind: WebApp
metadata:
  name: hello
spec:
  image: stead/hello
  replicas: 2
  ports:
  - name: http
    containerPort: 8080
";

/// A mistake that no schema can see: only the webhook refuses it at the door.
const TWICE: &str = "
apiVersion: stead.dev/v1
kind: WebApp
metadata:
  name: twice
spec:
  image: stead/hello:1
  sidecars:
  - name: app
    image: stead/hello:1
";

/// Tries until it gives something; says what was last seen otherwise.
#[track_caller]
fn until<T>(what: &str, patience: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let end = Instant::now() + patience;
    loop {
        match look() {
            Ok(found) => return found,
            Err(why) if Instant::now() > end => panic!("{what}: {why}"),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn leader(up: &Up) -> Result<String, String> {
    let path = "jsonpath={.spec.holderIdentity}";
    let output = up
        .kubectl(&["get", "lease", "stead-operator", "-n", "stead-system", "-o", path])
        .output()
        .expect("kubectl starts");
    let name = String::from_utf8_lossy(&output.stdout).trim().to_string();
    match name.is_empty() {
        false => Ok(name),
        true => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

#[test]
fn three_operator_pods_elect_one_leader_and_another_takes_over_when_its_pod_is_killed() {
    let (Some(binary), Some(_)) = (stead(), kubectl()) else {
        return;
    };
    let Some(up) = Up::start(&["--ephemeral", "--parts", "controllers,scheduler,nodes"]) else {
        return;
    };
    let manifests = succeeded(command(&binary, up.place.path()).arg("manifests"));
    up.apply(&manifests);
    up.run(&[
        "rollout",
        "status",
        "deployment/stead-operator",
        "-n",
        "stead-system",
        "--timeout=120s",
    ]);
    let pods = up.run(&["get", "pods", "-n", "stead-system", "-o", "name"]);
    assert_eq!(pods.lines().count(), 3, "{pods}");
    let first = until("a leader", TAKE_OVER, || leader(&up));
    assert!(pods.contains(&first), "{first} is one of {pods}");

    // The webhooks answer through their Service, in pods that only the nodes' network leads to.
    let twice = up.file("twice.yaml", TWICE);
    let refusal = until("the webhooks are asked", PATIENCE, || {
        let output = up.kubectl(&["create", "--dry-run=server", "-f", &twice]).output();
        let output = output.expect("kubectl starts");
        match output.status.success() {
            true => Err("it was accepted".to_string()),
            false => Ok(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    });
    assert!(
        refusal.contains("admission webhook \"webapps.stead.dev\" denied the request: spec.sidecars[0].name"),
        "{refusal}"
    );
    let app = up.file("app.yaml", APP);
    let applied = up.kubectl(&["apply", "-f", &app]).output().expect("kubectl starts");
    let warned = String::from_utf8_lossy(&applied.stderr).into_owned();
    assert!(applied.status.success(), "{warned}");
    assert!(warned.contains("may be another program tomorrow"), "{warned}");
    let label = "jsonpath={.metadata.labels.app\\.kubernetes\\.io/instance}";
    assert_eq!(up.run(&["get", "webapp", "hello", "-o", label]), "hello");
    up.run(&["wait", "webapp/hello", "--for=condition=Ready", "--timeout=120s"]);
    // It tells those on its own machine only: the question has to come from within its pod.
    let mut explain = command(&binary, up.place.path());
    explain
        .env("KUBECONFIG", &up.kubeconfig)
        .args(["explain", "webapp", "hello"]);
    let explained = explain.output().expect("the binary starts");
    let [told, notes] = [explained.stdout, explained.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(told.starts_with("default/hello (controller webapp)"), "{told}{notes}");
    assert_eq!(notes, "", "nobody else was asked");

    up.run(&[
        "delete",
        "pod",
        &first,
        "-n",
        "stead-system",
        "--force",
        "--grace-period=0",
    ]);
    let second = until("another leader", TAKE_OVER, || match leader(&up)? {
        same if same == first => Err(format!("{same} still leads")),
        other => Ok(other),
    });
    assert_ne!(second, first);
    up.run(&["scale", "webapp", "hello", "--replicas", "3"]);
    up.run(&[
        "wait",
        "webapp/hello",
        "--for=jsonpath={.status.availableReplicas}=3",
        "--timeout=120s",
    ]);
}
