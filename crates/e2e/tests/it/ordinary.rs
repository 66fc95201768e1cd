//! A cluster of an ordinary user: pods in namespaces where the kernel lets users make them, and the truth where it does
//! not. Run by root, the stories become somebody who has no rights at all.

mod strange;

use crate::binary::{PATIENCE, Up, command, eventually, http, kubectl, stead, succeeded};
use crate::demo::processes_of;
use crate::survival::machine;
use nix::sys::signal::Signal;
use nix::unistd::{Uid, geteuid};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use stead_test::skip::skipped;
use tempfile::TempDir;

/// The number of `nobody`, who needs no account.
const NOBODY: u32 = 65534;

const PODS: &str = "apiVersion: v1
kind: Pod
metadata: {name: one, labels: {app: eighty}}
spec: {containers: [{name: c, image: stead/hello, env: [{name: PORT, value: '80'}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: two, labels: {app: eighty}}
spec: {containers: [{name: c, image: stead/hello, env: [{name: PORT, value: '80'}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: eighty}
spec: {selector: {app: eighty}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other}
spec:
  securityContext: {runAsUser: 999, runAsGroup: 998, runAsNonRoot: true}
  containers:
  - name: c
    image: busybox
    command: [sh, -c, 'id -u; mkdir /var/lib/volume/closed && chmod 0 /var/lib/volume/closed && echo written; sleep 1000']
    securityContext: {allowPrivilegeEscalation: false, seccompProfile: {type: RuntimeDefault}}
    resources: {limits: {memory: 64Mi}}
    volumeMounts: [{name: v, mountPath: /var/lib/volume}]
  volumes: [{name: v, emptyDir: {}}]
";

/// Somebody without rights, and a copy of the program that he can reach.
struct User {
    program: PathBuf,
}

impl User {
    fn in_place(place: &Path) -> Option<User> {
        let program = place.join("program");
        std::fs::copy(stead()?, &program).expect("a copy");
        std::fs::set_permissions(place, std::fs::Permissions::from_mode(0o755)).expect("an open directory");
        if geteuid().is_root() {
            chown(place, Some(NOBODY), Some(NOBODY)).expect("a directory of his own");
        }
        Some(User { program })
    }

    /// A program that this user runs.
    fn runs(&self, program: &Path, place: &Path) -> Command {
        let mut command = command(program, place);
        if geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY);
        }
        command
    }

    fn runs_stead(&self, place: &Path) -> Command {
        self.runs(&self.program, place)
    }

    /// Whether the kernel lets him make namespaces, asked of another program than ours.
    fn may_make_namespaces(&self, place: &Path) -> bool {
        let mut unshare = self.runs(Path::new("unshare"), place);
        let made = unshare
            .args([
                "--user",
                "--map-root-user",
                "--net",
                "--pid",
                "--fork",
                "--mount-proc",
                "true",
            ])
            .output();
        made.is_ok_and(|made| made.status.success())
    }
}

fn wait_for_pods(up: &Up) {
    up.run(&["wait", "pod", "--all", "--for=condition=Ready", "--timeout=60s"]);
}

/// What a pod says of where it runs: status, reason and message.
fn isolated(up: &Up, pod: &str) -> String {
    let of = r#"{.status.conditions[?(@.type=="stead.dev/Isolated")]"#;
    let path = format!("jsonpath={of}.status}} {of}.reason}} {of}.message}}");
    up.run(&["get", "pod", pod, "-o", &path])
}

fn strangers_files(place: &Path, owner: Uid) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![place.to_path_buf()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let data = entry.metadata().expect("it is there");
            if data.uid() != owner.as_raw() {
                found.push(entry.path());
            }
            if data.is_dir() {
                left.push(entry.path());
            }
        }
    }
    found
}

#[test]
fn an_ordinary_user_has_pods_in_namespaces_and_down_leaves_nothing_behind() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let Some(user) = User::in_place(place.path()) else {
        return;
    };
    if !user.may_make_namespaces(place.path()) {
        return skipped("pods of an ordinary user in namespaces: this kernel lets no user make them");
    }
    let before = machine();
    let data = place.path().join("data").display().to_string();
    let start = |place: TempDir| Up::whole_by(user.runs_stead(place.path()), place, &["--data", &data]);
    let up = start(place);
    up.apply(PODS);
    wait_for_pods(&up);
    eventually("a name leads to both pods, which have the same port", PATIENCE, || {
        let ask = "curl -s http://eighty || wget -qO- http://eighty";
        let answers: BTreeSet<String> = (0..6)
            .map(|_| up.run(&["exec", "one", "--", "sh", "-c", ask]))
            .collect();
        let both = ["host: one", "host: two"].map(|host| answers.iter().any(|answer| answer.contains(host)));
        (both == [true; 2]).then_some(()).ok_or(format!("{answers:?}"))
    });
    assert!(forwarded(&up, "pod/two").contains("host: two"));
    assert_eq!(up.run(&["logs", "other"]), "999\nwritten\n");
    assert_eq!(up.run(&["exec", "other", "--", "id", "-u"]), "999\n");
    let seen = up.run(&[
        "exec",
        "other",
        "--",
        "sh",
        "-c",
        "readlink /proc/1/ns/user /proc/self/ns/user",
    ]);
    assert_eq!(
        seen.lines().collect::<BTreeSet<_>>().len(),
        1,
        "they are in one namespace: {seen}"
    );
    assert!(
        isolated(&up, "one").starts_with("True UserNamespace "),
        "{}",
        isolated(&up, "one")
    );
    let lacks = isolated(&up, "other");
    assert!(
        lacks.starts_with("False UserNamespace ") && lacks.contains("its limit of memory"),
        "{lacks}"
    );
    let owner = match geteuid().is_root() {
        true => Uid::from_raw(NOBODY),
        false => geteuid(),
    };
    assert_eq!(strangers_files(Path::new(&data), owner), Vec::<PathBuf>::new());

    let identity = |up: &Up| {
        up.run(&[
            "get",
            "pod",
            "two",
            "-o",
            "jsonpath={.status.containerStatuses[0].containerID}",
        ])
    };
    let first = identity(&up);
    let (_, _, place) = up.stop(Signal::SIGKILL);
    let up = start(place);
    wait_for_pods(&up);
    assert_eq!(identity(&up), first, "it was adopted, not started again");
    assert_eq!(up.run(&["exec", "two", "--", "echo", "hi"]), "hi\n");
    up.apply(&PODS.replace("name: one", "name: three"));
    wait_for_pods(&up);
    up.run(&["delete", "pod", "two", "--timeout=60s"]);

    let (_, _, place) = up.stop(Signal::SIGKILL);
    assert!(!processes_of(place.path()).is_empty());
    succeeded(user.runs_stead(place.path()).args(["down", "--data", &data]));
    eventually("every process is gone", PATIENCE, || {
        let left = processes_of(place.path());
        left.is_empty().then_some(()).ok_or(left.join("\n"))
    });
    assert_eq!(machine(), before, "no mount and no interface is left");
    let pods = std::fs::read_dir(Path::new(&data).join("nodes/pods")).expect("the folder");
    assert_eq!(pods.count(), 0, "not even what its owner cannot look into is left");
}

/// What a pod answers at port 80 through `kubectl port-forward`.
fn forwarded(up: &Up, target: &str) -> String {
    let mut kubectl = up.kubectl(&["port-forward", target, ":80"]);
    let mut forward = Ended(kubectl.stdout(Stdio::piped()).spawn().expect("kubectl starts"));
    let mut line = String::new();
    let mut lines = BufReader::new(forward.0.stdout.take().expect("a pipe"));
    lines.read_line(&mut line).expect("a line");
    let port = line.split_once("127.0.0.1:").and_then(|(_, rest)| rest.split_once(' '));
    http(&format!("127.0.0.1:{}", port.expect("a local port").0), "/")
}

/// A process that ends with its story.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A user namespace in which nobody may make another, as on machines whose administrator has turned them off.
fn walled() -> Option<Ended> {
    let mut holder = Command::new("unshare");
    holder.args(["--user", "sleep", "1000"]).stdin(Stdio::null());
    let holder = Ended(holder.spawn().ok()?);
    let of = |name: &str| PathBuf::from(format!("/proc/{}/{name}", holder.0.id()));
    let own = std::fs::read_link("/proc/self/ns/user").ok()?;
    eventually("it has a namespace of its own", PATIENCE, || {
        match std::fs::read_link(of("ns/user")) {
            Ok(space) if space != own => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let map = format!("0 0 1\n{NOBODY} {NOBODY} 1\n");
    std::fs::write(of("uid_map"), &map).ok()?;
    std::fs::write(of("gid_map"), &map).ok()?;
    Some(holder)
}

#[test]
fn where_users_may_make_no_namespaces_pods_say_what_they_lack() {
    if kubectl().is_none() {
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let Some(user) = User::in_place(place.path()) else {
        return;
    };
    let may = user.may_make_namespaces(place.path());
    let wall = match (may, geteuid().is_root()) {
        (false, _) => None,
        (true, true) => walled(),
        (true, false) => return skipped("a machine without user namespaces: only root can make one for this story"),
    };
    let program = match &wall {
        None if may => return skipped("a machine without user namespaces: `unshare` is not here to make one"),
        None => user.runs_stead(place.path()),
        Some(holder) => {
            let mut program = command(Path::new("nsenter"), place.path());
            let script = format!(
                "echo 0 > /proc/sys/user/max_user_namespaces && exec setpriv --reuid={NOBODY} --regid={NOBODY} --clear-groups \"$@\""
            );
            program.args([
                "--target",
                &holder.0.id().to_string(),
                "--user",
                "sh",
                "-c",
                &script,
                "sh",
            ]);
            program.arg(&user.program);
            program
        }
    };
    let up = Up::whole_by(program, place, &["--ephemeral"]);
    up.apply(
        "apiVersion: v1
kind: Pod
metadata: {name: plain}
spec: {containers: [{name: c, image: stead/hello}]}
---
apiVersion: v1
kind: Pod
metadata: {name: other}
spec: {containers: [{name: c, image: stead/hello, securityContext: {runAsUser: 999}}]}
",
    );
    up.run(&["wait", "pod/plain", "--for=condition=Ready", "--timeout=60s"]);
    let said = isolated(&up, "plain");
    assert!(
        said.starts_with("False SharesTheMachine Pods share the machine's network"),
        "{said}"
    );
    eventually("it is also an event, which `kubectl describe` shows", PATIENCE, || {
        let shown = up.run(&["describe", "pod", "plain"]);
        shown.contains("NotIsolated").then_some(()).ok_or(shown)
    });
    let waiting = |pod: &str, words: &[&str]| {
        eventually("it says why it does not run", PATIENCE, || {
            let path = "jsonpath={.status.containerStatuses[0].state.waiting}";
            let said = up.run(&["get", "pod", pod, "-o", path]);
            words.iter().all(|word| said.contains(word)).then_some(()).ok_or(said)
        });
    };
    waiting("other", &["CreateContainerConfigError", "runAsUser 999 cannot be had"]);
    // Another program of the machine, which has its port everywhere.
    let taken = std::net::TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = taken.local_addr().expect("an address").port();
    up.apply(&format!(
        "apiVersion: v1
kind: Pod
metadata: {{name: late}}
spec:
  containers: [{{name: c, image: stead/hello, env: [{{name: PORT, value: '{port}'}}], ports: [{{containerPort: {port}}}]}}]
"
    ));
    waiting("late", &["CreateContainerError", &format!("port {port} is taken")]);
    drop(taken);
    up.run(&["wait", "pod/late", "--for=condition=Ready", "--timeout=60s"]);
    let (code, _, _place) = up.stop(Signal::SIGTERM);
    assert_eq!(code, Some(0));
}
