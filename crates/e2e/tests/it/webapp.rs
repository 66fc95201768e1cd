//! The WebApp operator on running clusters.
//!
//! The story of a WebApp is told on the real control plane with hollow nodes and on the embedded cluster with real
//! processes: one story, two clusters. The operator, and on the real control plane the nodes too, are the `stead`
//! binary as a user would run it.

mod access;
mod audit;
mod canary;
mod children;
mod commands;
mod crashes;
mod every_property;
mod references;
mod scenarios;
mod stage;
mod without_webhooks;

use crate::binary::{Up, command, stead, succeeded};
use audit::Audit;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_apis::WebApp;
use stead_apis::webapp::Phase;
use stead_machinery::conditions;
use stead_test::children::{Process, Program};
use stead_test::kubernetes::{Kubernetes, Parts, StartError, client_for};
use stead_test::skip::skipped;
use stead_test::wait::until;
use tempfile::TempDir;

/// The sample that the architecture draws.
const SAMPLE: &str = include_str!("../../../../manifests/samples/nginx-app.yaml");
const NAME: &str = "nginx-app";
const OURS: &str = "app.kubernetes.io/instance=nginx-app";
/// Pods of a rolling update come and go one by one, on a machine that has other work too.
const PATIENCE: Duration = Duration::from_secs(120);
/// More than two resyncs.
const SILENCE: Duration = Duration::from_secs(70);

/// What the application runs.
struct Images {
    first: &'static str,
    second: &'static str,
    /// What its pods need besides, whatever they run.
    besides: Value,
    usage: Usage,
}

/// Whether the cluster tells what pods use.
#[derive(PartialEq)]
enum Usage {
    Measured,
    Unknown,
}

/// A cluster with the definitions installed, nodes and a running operator.
struct Stage {
    client: Client,
    audit: Audit,
    kubeconfig: PathBuf,
    binary: PathBuf,
    images: Images,
    place: TempDir,
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webapp_lives_on_the_real_control_plane() {
    let Some(binary) = stead() else { return };
    let cluster = match Kubernetes::start(Parts::All).await {
        Ok(cluster) => cluster,
        Err(StartError::Missing(missing)) => return skipped(missing),
        Err(error) => panic!("{error}"),
    };
    let place = tempfile::tempdir().expect("a directory");
    let run = |arguments: &[&str]| child(&binary, &place, &cluster.kubeconfig(), arguments);
    let client = cluster.client().await.expect("a client");
    let _operator = run(&["operator", "--metrics-bind-address=0", "--health-probe-bind-address=0"]);
    stage::install(&client, &stead_apis::definitions::all()).await;
    let _nodes = [
        run(&["node", "join", "hollow-a", "--runtime", "hollow"]),
        run(&["node", "join", "hollow-b", "--runtime", "hollow"]),
    ];
    let stage = Stage {
        client,
        audit: Audit::new(cluster.audit_log()),
        kubeconfig: cluster.kubeconfig(),
        images: Images {
            first: "nginx:1.25",
            second: "nginx:1.27",
            besides: json!({}),
            usage: Usage::Unknown,
        },
        binary: binary.clone(),
        place: tempfile::tempdir().expect("a directory"),
    };
    stage.tell().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webapp_lives_on_the_embedded_cluster_with_real_processes() {
    let Some(binary) = stead() else { return };
    let place = tempfile::tempdir().expect("a directory");
    let audit_log = place.path().join("audit.log");
    let log = audit_log.display().to_string();
    let parts = "controllers,scheduler,nodes,operators";
    let Some(up) = Up::start(&["--ephemeral", "--parts", parts, "--audit-log", &log]) else {
        return;
    };
    let stage = Stage {
        client: client_for(&up.kubeconfig).await.expect("a client"),
        audit: Audit::new(audit_log),
        kubeconfig: up.kubeconfig.clone(),
        images: Images {
            first: "stead/hello:1",
            second: "stead/hello:2",
            // The drawn sample listens on port 80.
            besides: json!({"env": [{"name": "PORT", "value": "80"}]}),
            usage: Usage::Measured,
        },
        binary,
        place,
    };
    stage.tell().await;
}

impl Stage {
    /// The story.
    async fn tell(&self) {
        let apps: Api<WebApp> = Api::default_namespaced(self.client.clone());
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let (first, second) = (self.images.first, self.images.second);
        let mut sample: Value = serde_saphyr::from_str(SAMPLE).expect("a WebApp");
        sample["spec"]["image"] = first.into();
        for (name, value) in self.images.besides.as_object().expect("an object") {
            sample["spec"][name] = value.clone();
        }
        let sample: WebApp = serde_json::from_value(sample).expect("a WebApp");

        let every = ListParams::default();
        until("the kind is served", PATIENCE, || apps.list(&every))
            .await
            .expect("a list");
        self.plan_says("create", &sample).await;
        create(&apps, &sample).await;
        self.create_bystander(&apps, &sample).await;
        self.ready("it becomes ready", first, 3).await;
        let services: Api<Service> = Api::default_namespaced(self.client.clone());
        let service = services.get(NAME).await.expect("its Service");
        assert_eq!(
            service.spec.and_then(|spec| spec.ports?.first().map(|port| port.port)),
            Some(80)
        );

        let old = deployments.get(NAME).await.expect("its Deployment").metadata.uid;
        deployments
            .delete(NAME, &DeleteParams::background())
            .await
            .expect("a deletion");
        until("a deleted Deployment comes back", PATIENCE, || async {
            let found = deployments.get_opt(NAME).await.map_err(|e| e.to_string())?;
            let uid = found.ok_or("there is none")?.metadata.uid;
            (uid != old).then_some(()).ok_or("it is still the old one".to_owned())
        })
        .await
        .expect("healing");
        self.ready("it is ready again", first, 3).await;

        let by_hand = json!({"spec": {"replicas": 7, "template": {"spec": {"containers": [
            {"name": "app", "image": "httpd:2.4"}]}}}});
        patch(&deployments, &Patch::Strategic(by_hand)).await;
        self.ready("an edit by hand is undone", first, 3).await;

        patch(&apps, &Patch::Merge(json!({"spec": {"replicas": 5}}))).await;
        self.ready("it scales", first, 5).await;

        patch(&apps, &Patch::Merge(json!({"spec": {"image": second}}))).await;
        self.ready("it runs the new image", second, 5).await;

        self.fail_and_go_back(&apps, second).await;
        self.go_back_by_command(first).await;

        apps.delete(NAME, &DeleteParams::default()).await.expect("a deletion");
        until("all of it goes", PATIENCE, || self.nothing_left())
            .await
            .expect("nothing of it");
        if self.images.usage == Usage::Measured {
            until("advice is given", PATIENCE, || async {
                let app = apps.get("bystander").await.map_err(|e| e.to_string())?;
                let advice = app.status.and_then(|status| status.advice);
                advice.ok_or("none yet".to_owned())
            })
            .await
            .expect("advice");
        }
        self.audit.silence(SILENCE).await;
    }

    /// A version that does not come up gives way to the last good one, by itself, and the application says so until the
    /// spec changes.
    async fn fail_and_go_back(&self, apps: &Api<WebApp>, good: &str) {
        // No node can run this: a process node knows no such image, and a hollow one is told to fail.
        let bad = json!({"spec": {"image": "example.com/broken:1",
            "podAnnotations": {"hollow.stead.dev/fail": "image"}, "strategy": {"progressDeadlineSeconds": 3}}});
        patch(apps, &Patch::Merge(bad)).await;
        until("the failed version gives way", PATIENCE, || async {
            let app = apps.get(NAME).await.map_err(|e| e.to_string())?;
            let status = app.status.unwrap_or_default();
            let ready = conditions::get(&status.conditions, "Ready")
                .cloned()
                .ok_or("no condition")?;
            let pods = self.running_pods(good).await?;
            let settled = ready.reason == "RolledBack"
                && ready.status == conditions::Status::False
                && status.available_replicas == 5
                && pods == 5;
            settled.then_some(()).ok_or_else(|| format!("{ready:?}, {pods} pods"))
        })
        .await
        .expect("the last good revision");
        let mended = json!({"spec": {"image": good, "podAnnotations": null, "strategy": null}});
        patch(apps, &Patch::Merge(mended)).await;
        self.ready("the spec changes and it is well again", good, 5).await;
    }

    /// `stead rollback`, `stead status` and `stead plan` on the running application.
    async fn go_back_by_command(&self, image: &str) {
        let said = self.stead(&["rollback", "webapp", NAME]).await;
        assert!(said.contains("goes back to revision"), "{said}");
        self.ready("it goes back by command", image, 5).await;
        let tree = self.stead(&["status", "webapp", NAME]).await;
        assert!(tree.starts_with("WebApp nginx-app  Ready"), "{tree}");
        assert_eq!(tree.matches("Pod nginx-app-").count(), 5, "{tree}");
        let data: Value =
            serde_json::from_str(&self.stead(&["status", "webapp", NAME, "-o", "json"]).await).expect("JSON");
        assert_eq!((&data["kind"], &data["ready"]), (&json!("WebApp"), &json!(true)));
        let data: Value =
            serde_saphyr::from_str(&self.stead(&["status", "webapp", NAME, "-o", "yaml"]).await).expect("YAML");
        assert_eq!(data["children"][0]["replicas"], "5/5");
        let apps: Api<WebApp> = Api::default_namespaced(self.client.clone());
        let app = apps.get(NAME).await.expect("the application");
        self.plan_says("keep", &app).await;
    }

    /// What `stead plan` says of the Deployment.
    async fn plan_says(&self, verb: &str, app: &WebApp) {
        let file = self.place.path().join("app.json");
        std::fs::write(&file, serde_json::to_string(app).expect("JSON")).expect("a file");
        let file = file.display().to_string();
        let plan: Value = serde_json::from_str(&self.stead(&["plan", "-f", &file, "-o", "json"]).await).expect("JSON");
        let steps = plan[0]["steps"].as_array().expect("steps");
        let step = steps
            .iter()
            .find(|step| step["kind"] == "Deployment")
            .expect("a Deployment");
        assert_eq!(step["verb"], verb, "{plan:#}");
        let lines = self.stead(&["plan", "-f", &file]).await;
        assert!(lines.starts_with("WebApp default/nginx-app"), "{lines}");
        assert!(!lines.contains('\x1b'), "no colours into a pipe");
    }

    /// Runs a command of the binary beside the cluster.
    async fn stead(&self, arguments: &[&str]) -> String {
        let mut command = command(&self.binary, self.place.path());
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        tokio::task::spawn_blocking(move || succeeded(&mut command))
            .await
            .expect("an answer")
    }

    /// An application that nobody touches: what is written in silence would be written for it.
    async fn create_bystander(&self, apps: &Api<WebApp>, sample: &WebApp) {
        let mut bystander = sample.clone();
        bystander.metadata.name = Some("bystander".to_string());
        create(apps, &bystander).await;
    }

    /// Waits until app, Deployment and pods all are what the spec wants.
    async fn ready(&self, what: &str, image: &str, replicas: i32) {
        let apps: Api<WebApp> = Api::default_namespaced(self.client.clone());
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let look = || async {
            let app = apps.get(NAME).await.map_err(|e| e.to_string())?;
            let status = app.status.clone().unwrap_or_default();
            let deployment = deployments.get(NAME).await.map_err(|e| e.to_string())?;
            let spec = deployment.spec.unwrap_or_default();
            let containers = spec.template.spec.unwrap_or_default().containers;
            let runs = containers.first().and_then(|container| container.image.clone());
            let pods = self.running_pods(image).await?;
            let settled = status.phase == Some(Phase::Ready)
                && status.observed_generation == app.metadata.generation
                && status.available_replicas == replicas
                && spec.replicas == Some(replicas)
                && runs.as_deref() == Some(image)
                && pods == usize::try_from(replicas).unwrap_or_default();
            settled
                .then_some(())
                .ok_or_else(|| format!("{status:?}, Deployment: {:?} x {runs:?}, pods: {pods}", spec.replicas))
        };
        until(what, PATIENCE, look).await.expect("readiness");
    }

    /// Pods of this image that run, and none of another.
    async fn running_pods(&self, image: &str) -> Result<usize, String> {
        let pods: Api<Pod> = Api::default_namespaced(self.client.clone());
        let found = pods
            .list(&ListParams::default().labels(OURS))
            .await
            .map_err(|e| e.to_string())?;
        let runs = |pod: &Pod| {
            let containers = pod.spec.as_ref().map(|spec| &spec.containers);
            containers.is_some_and(|containers| containers.iter().any(|c| c.image.as_deref() == Some(image)))
                && pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running")
        };
        match found.items.iter().all(runs) {
            true => Ok(found.items.len()),
            false => Err("pods of another image, or that do not run, are there".to_owned()),
        }
    }

    async fn nothing_left(&self) -> Result<(), String> {
        let apps: Api<WebApp> = Api::default_namespaced(self.client.clone());
        let app = apps.get_opt(NAME).await.map_err(|e| e.to_string())?;
        if app.is_some() {
            return Err("the application is still there".to_owned());
        }
        left::<Deployment>(&self.client, OURS).await?;
        left::<Service>(&self.client, OURS).await?;
        left::<ReplicaSet>(&self.client, OURS).await?;
        left::<ControllerRevision>(&self.client, OURS).await?;
        left::<ConfigMap>(&self.client, OURS).await?;
        left::<Pod>(&self.client, OURS).await
    }
}

/// Fails with the names of what is there.
async fn left<K>(client: &Client, labels: &str) -> Result<(), String>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::default_namespaced(client.clone());
    let found = api
        .list(&ListParams::default().labels(labels))
        .await
        .map_err(|e| e.to_string())?;
    let names: Vec<&str> = found
        .items
        .iter()
        .filter_map(|object| object.meta().name.as_deref())
        .collect();
    match names.is_empty() {
        true => Ok(()),
        false => Err(format!("{}: {}", K::kind(&()), names.join(", "))),
    }
}

/// The API server learns of a new definition a moment after it took it.
async fn create(apps: &Api<WebApp>, sample: &WebApp) {
    until("the sample is taken", PATIENCE, || async {
        apps.create(&PostParams::default(), sample).await.map(drop)
    })
    .await
    .expect("a WebApp");
}

async fn patch<K>(api: &Api<K>, change: &Patch<Value>)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(NAME, &PatchParams::default(), change).await.expect("a patch");
}

/// The binary with these arguments on a cluster, beside the test.
fn child(binary: &Path, place: &TempDir, kubeconfig: &Path, arguments: &[&str]) -> Process {
    let log = place
        .path()
        .join(format!("{}.log", arguments[..arguments.len().min(3)].join("-")));
    Process::start(Program {
        path: binary.to_path_buf(),
        arguments: arguments.iter().map(OsString::from).collect(),
        environment: vec![("KUBECONFIG".into(), kubeconfig.into())],
        log,
    })
    .expect("the binary starts")
}
