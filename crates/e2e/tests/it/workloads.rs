//! The real kubectl on three nodes whose pods are processes: what a team does in its first week.

use crate::binary::{PATIENCE, Up, command, eventually, kubectl, stead, succeeded};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::time::Duration;

const WEB: &str = "apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 5
      # Seconds, where Kubernetes waits five minutes: a test has less patience.
      tolerations:
      - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
      containers:
      - name: web
        image: stead/hello
        env: [{name: VERSION, value: one}]
        ports: [{containerPort: 8080}]
        readinessProbe: {httpGet: {path: /healthz, port: 8080}, periodSeconds: 1, failureThreshold: 1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{port: 80, targetPort: 8080}]
";

/// A pod that does nothing but wait for commands.
const CLIENT: &str = "apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: client, image: busybox, command: [sleep, '1000000']}]
";

fn cluster() -> Option<Up> {
    kubectl()?;
    Up::whole(&["--ephemeral", "--nodes", "3"])
}

fn rolled_out(up: &Up) {
    up.run(&["rollout", "status", "deployment/web", "--timeout=120s"]);
}

fn of(up: &Up, what: &str, path: &str) -> String {
    let path = format!("jsonpath={{{path}}}");
    let words: Vec<&str> = ["get"]
        .into_iter()
        .chain(what.split(' '))
        .chain(["-o", &path])
        .collect();
    up.run(&words)
}

/// The names of the pods that this selector finds and that are not being deleted.
fn pods(up: &Up, selector: &str) -> Vec<String> {
    let template =
        "go-template={{range .items}}{{if not .metadata.deletionTimestamp}}{{.metadata.name}}{{\"\\n\"}}{{end}}{{end}}";
    let names = up.run(&["get", "pods", "-l", selector, "-o", template]);
    names.lines().map(str::to_owned).collect()
}

/// The process that a pod's container is, as the machine numbers it.
fn process_of(pod: &str) -> Pid {
    let marker = format!("HOSTNAME={pod}");
    let all = std::fs::read_dir("/proc").expect("/proc").filter_map(Result::ok);
    let mut found = all.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let environment = std::fs::read(entry.path().join("environ")).ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        let its = environment
            .split(|byte| *byte == 0)
            .any(|pair| pair == marker.as_bytes());
        (its && String::from_utf8_lossy(&line).contains("hello")).then_some(Pid::from_raw(pid))
    });
    found.next().expect("the pod has a process")
}

/// What the Service answers to a pod that asks by name, `times` times.
fn asked(up: &Up, url: &str, times: usize) -> BTreeSet<String> {
    let script = format!("for i in $(seq {times}); do curl -s -m 5 {url} || wget -T 5 -qO- {url}; done");
    let answers = up.run(&["exec", "client", "--", "sh", "-c", &script]);
    let hosts = answers.lines().filter_map(|line| line.strip_prefix("host: "));
    hosts.map(str::to_owned).collect()
}

#[test]
fn a_deployment_rolls_out_scales_updates_pauses_and_goes_back() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    rolled_out(&up);
    let nodes = up.run(&[
        "get",
        "pods",
        "-l",
        "app=web",
        "-o",
        "jsonpath={.items[*].spec.nodeName}",
    ]);
    assert_eq!(
        nodes.split_whitespace().collect::<BTreeSet<_>>().len(),
        3,
        "pods are spread: {nodes}"
    );

    up.run(&["scale", "deployment/web", "--replicas=5"]);
    up.run(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.availableReplicas}=5",
        "--timeout=60s",
    ]);
    up.run(&["scale", "deployment/web", "--replicas=3"]);

    let version = || {
        rolled_out(&up);
        let path = "{.items[*].spec.containers[0].env[?(@.name==\"VERSION\")].value}";
        eventually("old pods are gone", PATIENCE, || {
            let seen = up.run(&["get", "pods", "-l", "app=web", "-o", &format!("jsonpath={path}")]);
            let values: BTreeSet<String> = seen.split_whitespace().map(str::to_owned).collect();
            match values.len() {
                1 => Ok(values.into_iter().next().unwrap_or_default()),
                _ => Err(seen),
            }
        })
    };
    up.run(&["set", "env", "deployment/web", "VERSION=two"]);
    assert_eq!(version(), "two");

    up.run(&["rollout", "pause", "deployment/web"]);
    up.run(&["set", "env", "deployment/web", "VERSION=three"]);
    up.run(&["scale", "deployment/web", "--replicas=4"]);
    up.run(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.availableReplicas}=4",
        "--timeout=60s",
    ]);
    assert_eq!(
        up.run(&["get", "rs", "-o", "name"]).lines().count(),
        2,
        "a paused Deployment scales, but does not roll"
    );
    assert!(up.refused(&["rollout", "undo", "deployment/web"]).contains("paused"));
    up.run(&["rollout", "resume", "deployment/web"]);
    assert_eq!(version(), "three");

    let history = up.run(&["rollout", "history", "deployment/web"]);
    for revision in ["1 ", "2 ", "3 "] {
        assert!(history.lines().any(|line| line.starts_with(revision)), "{history}");
    }
    assert!(
        up.run(&["rollout", "history", "deployment/web", "--revision=2"])
            .contains("two")
    );
    up.run(&["rollout", "undo", "deployment/web"]);
    assert_eq!(version(), "two");
    up.run(&["rollout", "undo", "deployment/web", "--to-revision=1"]);
    assert_eq!(version(), "one");

    let before: BTreeSet<String> = pods(&up, "app=web").into_iter().collect();
    up.run(&["rollout", "restart", "deployment/web"]);
    assert_eq!(version(), "one");
    let after: BTreeSet<String> = pods(&up, "app=web").into_iter().collect();
    assert!(before.is_disjoint(&after), "{before:?} {after:?}");
}

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
fn a_service_answers_by_name_and_sends_nothing_to_what_is_not_ready() {
    let Some(up) = cluster() else { return };
    up.apply(WEB);
    up.apply(CLIENT);
    rolled_out(&up);
    up.run(&["wait", "pod/client", "--for=condition=Ready", "--timeout=60s"]);
    let names: BTreeSet<String> = pods(&up, "app=web").into_iter().collect();
    eventually("every pod gets its share", PATIENCE, || {
        let seen = asked(&up, "http://web", 12);
        (seen == names).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    assert!(!asked(&up, "http://web.default.svc.cluster.local:80", 1).is_empty());

    // The API server has no route to pods either, and answers for them all the same.
    for path in [
        "services/web:80".to_owned(),
        format!("pods/{}:8080", pods(&up, "app=web")[0]),
    ] {
        let page = up.run(&["get", "--raw", &format!("/api/v1/namespaces/default/{path}/proxy/")]);
        assert!(page.contains("Hello from Stead"), "{path}: {page}");
    }

    let mut left = names.clone();
    let sick = left.pop_first().expect("three");
    up.run(&[
        "exec",
        &sick,
        "--",
        "sh",
        "-c",
        "curl -s localhost:8080/fail || wget -qO- localhost:8080/fail",
    ]);
    up.run(&[
        "wait",
        &format!("pod/{sick}"),
        "--for=condition=Ready=false",
        "--timeout=60s",
    ]);
    eventually("a pod that is not ready gets nothing", PATIENCE, || {
        let seen = asked(&up, "http://web", 12);
        (seen == left).then_some(()).ok_or_else(|| format!("{seen:?}"))
    });
    up.run(&["scale", "deployment/web", "--replicas=1"]);
    up.run(&[
        "wait",
        "deployment/web",
        "--for=jsonpath={.status.replicas}=1",
        "--timeout=60s",
    ]);
    let one = eventually("one pod is left", PATIENCE, || {
        let names = pods(&up, "app=web");
        (names.len() == 1)
            .then(|| names[0].clone())
            .ok_or_else(|| names.join(" "))
    });
    eventually("dead pods get nothing", PATIENCE, || {
        let seen = asked(&up, "http://web", 12);
        (seen == BTreeSet::from([one.clone()]))
            .then_some(())
            .ok_or_else(|| format!("{seen:?}"))
    });
}

#[test]
fn a_stateful_set_keeps_names_and_data() {
    let Some(up) = cluster() else { return };
    let data = up.place.path().join("data");
    let set = format!(
        "apiVersion: v1
kind: Service
metadata: {{name: db}}
spec: {{clusterIP: None, selector: {{app: db}}, ports: [{{port: 5432}}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {{name: db}}
spec:
  serviceName: db
  replicas: 2
  selector: {{matchLabels: {{app: db}}}}
  template:
    metadata: {{labels: {{app: db}}}}
    spec:
      terminationGracePeriodSeconds: 0
      volumes: [{{name: data, hostPath: {{path: {data}, type: DirectoryOrCreate}}}}]
      containers:
      - name: db
        image: busybox
        env: [{{name: NAME, valueFrom: {{fieldRef: {{fieldPath: metadata.name}}}}}}]
        command: [sh, -c, 'echo $(hostname) $GENERATION >> /data/boots; exec sleep 1000000']
        volumeMounts: [{{name: data, mountPath: /data, subPathExpr: $(NAME)}}]
",
        data = data.display()
    );
    up.apply(&set);
    let rolled = || up.run(&["rollout", "status", "statefulset/db", "--timeout=60s"]);
    rolled();
    let boots = |pod: &str| up.run(&["exec", pod, "--", "cat", "/data/boots"]);
    assert_eq!(boots("db-1"), "db-1\n");
    let first = of(&up, "pod/db-0", ".metadata.uid");
    up.run(&["delete", "pod", "db-0"]);
    rolled();
    up.run(&["wait", "pod/db-0", "--for=condition=Ready", "--timeout=60s"]);
    assert_ne!(of(&up, "pod/db-0", ".metadata.uid"), first);
    assert_eq!(boots("db-0"), "db-0\ndb-0\n");
    let found = up.run(&[
        "exec",
        "db-0",
        "--",
        "getent",
        "hosts",
        "db-1.db.default.svc.cluster.local",
    ]);
    assert!(found.contains(&of(&up, "pod/db-1", ".status.podIP")), "{found}");

    up.run(&["set", "env", "statefulset/db", "GENERATION=new"]);
    rolled();
    assert_eq!(boots("db-1"), "db-1\ndb-1 new\n");
    up.run(&["rollout", "undo", "statefulset/db"]);
    rolled();
    up.run(&["scale", "statefulset/db", "--replicas=1"]);
    up.run(&["wait", "pod/db-1", "--for=delete", "--timeout=60s"]);
    up.run(&["scale", "statefulset/db", "--replicas=2"]);
    rolled();
    assert_eq!(boots("db-1").lines().count(), 4, "{}", boots("db-1"));
}

#[test]
fn jobs_and_cron_jobs_finish() {
    let Some(up) = cluster() else { return };
    up.run(&[
        "create",
        "cronjob",
        "minutely",
        "--image=busybox",
        "--schedule=* * * * *",
        "--",
        "echo",
        "ran",
    ]);
    up.run(&[
        "create",
        "job",
        "work",
        "--image=busybox",
        "--",
        "sh",
        "-c",
        "echo worked",
    ]);
    up.run(&["wait", "job/work", "--for=condition=Complete", "--timeout=60s"]);
    assert_eq!(up.run(&["logs", "job/work"]), "worked\n");
    up.apply(
        "apiVersion: batch/v1
kind: Job
metadata: {name: many}
spec:
  completions: 4
  parallelism: 2
  completionMode: Indexed
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [sh, -c, 'echo index $JOB_COMPLETION_INDEX']}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: broken}
spec:
  backoffLimit: 1
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: busybox, command: [sh, -c, 'exit 3']}]
",
    );
    up.run(&["wait", "job/many", "--for=condition=Complete", "--timeout=60s"]);
    assert_eq!(of(&up, "job/many", ".status.completedIndexes"), "0-3");
    up.run(&["wait", "job/broken", "--for=condition=Failed", "--timeout=90s"]);
    assert_eq!(
        of(&up, "job/broken", ".status.conditions[?(@.type==\"Failed\")].reason"),
        "BackoffLimitExceeded"
    );

    up.run(&["create", "job", "now", "--from=cronjob/minutely"]);
    up.run(&["wait", "job/now", "--for=condition=Complete", "--timeout=60s"]);
    up.run(&[
        "wait",
        "cronjob/minutely",
        "--for=jsonpath={.status.lastScheduleTime}",
        "--timeout=90s",
    ]);
    eventually("a run of the schedule completes", PATIENCE, || {
        let runs = up.run(&["get", "jobs", "--no-headers"]);
        let done = runs
            .lines()
            .any(|row| row.starts_with("minutely-") && row.contains("Complete"));
        done.then_some(()).ok_or(runs)
    });
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

#[test]
fn namespaces_go_with_everything_in_them_and_cascades_do_as_they_are_told() {
    let Some(up) = cluster() else { return };
    up.run(&["create", "namespace", "team"]);
    let file = up.file("team.yaml", WEB);
    up.run(&["apply", "-n", "team", "-f", &file]);
    up.run(&["-n", "team", "rollout", "status", "deployment/web", "--timeout=60s"]);
    up.run(&["-n", "team", "create", "configmap", "settings", "--from-literal=a=b"]);
    up.run(&["delete", "namespace", "team", "--timeout=90s"]);
    assert!(up.refused(&["get", "namespace", "team"]).contains("not found"));
    assert_eq!(up.run(&["get", "pods", "-A", "-l", "app=web", "-o", "name"]), "");

    let children = || {
        let sets = up.run(&["get", "rs", "-l", "app=web", "-o", "name"]).lines().count();
        (sets, pods(&up, "app=web").len())
    };
    let gone = |what: &str| {
        eventually(what, PATIENCE, || {
            (children() == (0, 0))
                .then_some(())
                .ok_or_else(|| format!("{:?}", children()))
        });
    };
    up.apply(WEB);
    rolled_out(&up);
    up.run(&["delete", "deployment/web", "--cascade=foreground", "--timeout=90s"]);
    assert_eq!(children(), (0, 0), "a foreground delete waits for what it takes along");

    up.apply(WEB);
    rolled_out(&up);
    up.run(&["delete", "deployment/web", "--cascade=background"]);
    gone("a background delete takes its children along");

    up.apply(WEB);
    rolled_out(&up);
    let orphans = pods(&up, "app=web");
    up.run(&["delete", "deployment/web", "--cascade=orphan"]);
    assert_eq!((children().0, pods(&up, "app=web")), (1, orphans.clone()));
    let owner = of(&up, "rs -l app=web", ".items[*].metadata.ownerReferences");
    assert_eq!(owner, "", "an orphan has no owner");
    up.apply(WEB);
    rolled_out(&up);
    assert_eq!(pods(&up, "app=web"), orphans, "a new owner adopts them");
    up.run(&["delete", "deployment/web"]);
    gone("and takes them along");
}
