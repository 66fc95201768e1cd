//! Two replicas of the operator as real processes: one is killed, paused, cut off or asked to stop.
//!
//! What happened is read from the API server's audit log, not from what either replica says: once the new leader
//! has written, no write of the old one was accepted. The same stories run on the embedded and on the real API server.

mod audit;
mod proxy;

use crate::binary::{Up, stead};
use audit::{Audit, Event};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, Patch, PatchParams, PostParams};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use proxy::Proxy;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use stead_apis::WebApp;
use stead_test::children::{Process, Program};
use stead_test::kubernetes::{Kubernetes, Parts, StartError, client_for};
use stead_test::skip::skipped;
use stead_test::wait::until;
use tempfile::TempDir;

const APP: &str = "churning";
/// Nothing here takes this long unless it hangs.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a Lease of a dead leader may keep others out, with the usual 15 s, 10 s and 2 s.
const AFTER_A_KILL: Duration = Duration::from_secs(20);
/// How long one that was given back may.
const AFTER_A_GOODBYE: Duration = Duration::from_secs(2);
/// How often the application changes, so that a leader always has something to write.
const CHURN: Duration = Duration::from_millis(150);

/// What happens to the leader.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Blow {
    /// kill -9.
    Kill,
    /// SIGSTOP, and SIGCONT once another leads.
    Pause,
    /// Its connection to the API server is cut, and mended once another leads.
    Cut,
    /// SIGTERM.
    Terminate,
}

/// A cluster, and everything that the replicas need to know of it.
struct Stage {
    client: Client,
    binary: PathBuf,
    audit: Audit,
    kubeconfig: PathBuf,
    server: String,
    place: TempDir,
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_writes_on_the_embedded_api_server() {
    let Some(binary) = stead() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let log = place.path().join("audit.log");
    let Some(up) = Up::start(&["--ephemeral", "--audit-log", &log.display().to_string()]) else {
        return;
    };
    let stage = Stage {
        client: client_for(&up.kubeconfig).await.expect("a client"),
        binary,
        audit: Audit::of(&log),
        kubeconfig: up.kubeconfig.clone(),
        server: up.server.clone(),
        place,
    };
    stage.tell().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_two_replicas_writes_on_the_real_api_server() {
    let Some(binary) = stead() else { return };
    let cluster = match Kubernetes::start(Parts::Api).await {
        Ok(cluster) => cluster,
        Err(StartError::Missing(missing)) => return skipped(missing),
        Err(error) => panic!("{error}"),
    };
    let stage = Stage {
        client: cluster.client().await.expect("a client"),
        binary,
        audit: Audit::of(&cluster.audit_log()),
        kubeconfig: cluster.kubeconfig(),
        server: cluster.server().to_owned(),
        place: tempfile::tempdir().expect("a directory"),
    };
    stage.tell().await;
}

impl Stage {
    /// All four stories at once, each with two replicas and a namespace of its own.
    async fn tell(&self) {
        let definitions: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        for definition in stead_apis::definitions::all() {
            let created = definitions.create(&PostParams::default(), &definition).await;
            created.expect("a definition");
        }
        tokio::join!(
            self.story("killed", Blow::Kill),
            self.story("paused", Blow::Pause),
            self.story("cut-off", Blow::Cut),
            self.story("terminated", Blow::Terminate),
        );
    }

    async fn story(&self, name: &str, blow: Blow) {
        self.create_namespace(name).await;
        let (first, second) = (format!("{name}-a"), format!("{name}-b"));
        let mut link = Proxy::start(&self.server).await;
        let mut old = self.replica(name, &first, &link.address());
        self.expect_holder(name, &first).await;
        let _new = self.replica(name, &second, &self.server);
        self.audit
            .expect(&format!("{second} is warm"), |events| {
                events
                    .iter()
                    .filter(|event| event.is_by(&second) && event.is_about("leases"))
                    .count()
                    >= 2
            })
            .await;
        let churning = tokio::spawn(churn(self.client.clone(), name.to_owned()));
        self.audit
            .expect(&format!("{first} works"), |events| {
                events
                    .iter()
                    .filter(|event| event.is_by(&first) && event.is_work())
                    .count()
                    >= 6
            })
            .await;
        let struck = Instant::now();
        match blow {
            Blow::Kill => old.kill(),
            Blow::Pause => signal(&old, Signal::SIGSTOP),
            Blow::Cut => link.cut(),
            Blow::Terminate => signal(&old, Signal::SIGTERM),
        }
        self.expect_holder(name, &second).await;
        let taken = struck.elapsed();
        self.audit
            .expect(&format!("{second} works"), |events| {
                events
                    .iter()
                    .filter(|event| event.is_by(&second) && event.is_work())
                    .count()
                    >= 6
            })
            .await;
        match blow {
            Blow::Kill | Blow::Terminate => {}
            Blow::Pause => signal(&old, Signal::SIGCONT),
            Blow::Cut => link.mend().await,
        }
        if matches!(blow, Blow::Pause | Blow::Cut) {
            self.expect_standby(&first, &second).await;
        }
        churning.abort();
        self.judge(&first, &second);
        match blow {
            Blow::Kill => assert!(taken <= AFTER_A_KILL, "{taken:?}"),
            Blow::Terminate => {
                let waited = self.audit.between_release_and_acquisition(&first, &second);
                assert!(waited <= AFTER_A_GOODBYE, "{waited:?} after the Lease was given back");
            }
            Blow::Pause | Blow::Cut => {}
        }
    }

    /// The old leader is back, has looked at the Lease a few times, and leaves it to the new one.
    async fn expect_standby(&self, old: &str, new: &str) {
        let since = self.audit.events().len();
        self.audit
            .expect(&format!("{old} looks at the Lease again"), |events| {
                let back = events.iter().skip(since);
                back.filter(|event| event.is_by(old) && event.is_about("leases"))
                    .count()
                    >= 4
            })
            .await;
        let events = self.audit.events();
        let still = events.iter().skip(since);
        let works = still.filter(|event| event.is_by(new) && event.is_work()).count();
        assert!(works > 0, "{new} does not lead any more");
    }

    /// Once the new leader has written, nothing that the old one sent was accepted.
    fn judge(&self, old: &str, new: &str) {
        let events = self.audit.events();
        let first = events
            .iter()
            .filter(|event| event.is_by(new) && event.is_work())
            .map(|event| event.finished)
            .min()
            .expect("the new leader wrote");
        let late: Vec<_> = events
            .iter()
            .filter(|event| event.is_by(old) && event.is_accepted_write() && event.finished > first)
            .map(Event::describe)
            .collect();
        assert!(
            late.is_empty(),
            "written by {old} after {new} had written at {first}: {late:#?}"
        );
    }

    async fn create_namespace(&self, name: &str) {
        let mut namespace = Namespace::default();
        namespace.metadata.name = Some(name.to_owned());
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let created = namespaces.create(&PostParams::default(), &namespace).await;
        created.expect("a namespace");
    }

    /// A replica that works in one namespace, and reaches the API server at an address.
    fn replica(&self, namespace: &str, identity: &str, server: &str) -> Process {
        let kubeconfig = self.place.path().join(format!("{identity}.kubeconfig"));
        let text = std::fs::read_to_string(&self.kubeconfig).expect("a kubeconfig");
        write_private(&kubeconfig, &text.replace(&self.server, server));
        let arguments = [
            "operator",
            "--leader-elect",
            "--leader-election-namespace",
            namespace,
            "--namespaces",
            namespace,
            "--metrics-bind-address=0",
            "--health-probe-bind-address=0",
        ];
        Process::start(Program {
            path: self.binary.clone(),
            arguments: arguments.iter().map(OsString::from).collect(),
            environment: vec![
                ("KUBECONFIG".into(), kubeconfig.into()),
                ("POD_NAME".into(), identity.into()),
            ],
            log: self.place.path().join(format!("{identity}.log")),
        })
        .expect("the binary starts")
    }

    async fn expect_holder(&self, namespace: &str, identity: &str) {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), namespace);
        until(&format!("{identity} leads"), PATIENCE, || async {
            let lease = leases.get("stead-operator").await.map_err(|e| e.to_string())?;
            let holder = lease.spec.and_then(|spec| spec.holder_identity);
            match holder.as_deref() == Some(identity) {
                true => Ok(()),
                false => Err(format!("{holder:?}")),
            }
        })
        .await
        .expect("a leader");
    }
}

/// Changes the application again and again, so that whoever leads has to write.
async fn churn(client: Client, namespace: String) {
    let apps: Api<WebApp> = Api::namespaced(client, &namespace);
    let app = json!({
        "apiVersion": "stead.dev/v1", "kind": "WebApp",
        "metadata": {"name": APP}, "spec": {"image": "nginx:1.25", "replicas": 1},
    });
    let app: WebApp = serde_json::from_value(app).expect("a WebApp");
    until("the application is taken", PATIENCE, || async {
        apps.create(&PostParams::default(), &app).await.map(drop)
    })
    .await
    .expect("an application");
    for round in 0u64.. {
        let change = Patch::Merge(json!({"spec": {"replicas": 1 + round % 7}}));
        // A conflict or a busy server is of no interest here: the next change comes soon.
        let _ = apps.patch(APP, &PatchParams::default(), &change).await;
        tokio::time::sleep(CHURN).await;
    }
}

fn signal(process: &Process, signal: Signal) {
    let pid = Pid::from_raw(process.id().try_into().expect("a process number"));
    kill(pid, signal).expect("the process is there");
}

fn write_private(path: &Path, text: &str) {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let file = std::fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path);
    file.expect("a file").write_all(text.as_bytes()).expect("a file");
}
