//! The story of a WebApp, told on the real control plane and on the embedded cluster: one story, two clusters.
//!
//! Nodes are hollow on both. The operator, and on the real control plane the nodes too, are the `stead` binary as
//! a user would run it.

use crate::binary::{Up, stead};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::Client;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use stead_apis::WebApp;
use stead_apis::webapp::Phase;
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
const PATIENCE: Duration = Duration::from_secs(90);
/// Longer than the resync, so that at least one falls into it.
const SILENCE: Duration = Duration::from_secs(35);

/// A cluster with the definitions installed, nodes and a running operator.
struct Stage {
    client: Client,
    audit_log: PathBuf,
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
    install_definitions(&client).await;
    let _nodes = [
        run(&["node", "join", "hollow-a", "--runtime", "hollow"]),
        run(&["node", "join", "hollow-b", "--runtime", "hollow"]),
    ];
    let stage = Stage {
        client,
        audit_log: cluster.audit_log(),
    };
    stage.tell().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_webapp_lives_on_the_embedded_cluster() {
    let place = tempfile::tempdir().expect("a directory");
    let audit_log = place.path().join("audit.log");
    let log = audit_log.display().to_string();
    let parts = "controllers,scheduler,nodes,operators";
    let arguments = [
        "--ephemeral",
        "--runtime",
        "hollow",
        "--parts",
        parts,
        "--audit-log",
        &log,
    ];
    let Some(up) = Up::start(&arguments) else { return };
    let client = client_for(&up.kubeconfig).await.expect("a client");
    Stage { client, audit_log }.tell().await;
}

impl Stage {
    /// The story.
    async fn tell(&self) {
        let apps: Api<WebApp> = Api::default_namespaced(self.client.clone());
        let deployments: Api<Deployment> = Api::default_namespaced(self.client.clone());
        let sample: WebApp = serde_saphyr::from_str(SAMPLE).expect("a WebApp");

        create(&apps, &sample).await;
        self.ready("it becomes ready", "nginx:1.25", 3).await;
        let services: Api<Service> = Api::default_namespaced(self.client.clone());
        let service = services.get(NAME).await.expect("its Service");
        assert_eq!(
            service.spec.and_then(|spec| spec.ports?.first().map(|port| port.port)),
            Some(80)
        );

        let first = deployments.get(NAME).await.expect("its Deployment").metadata.uid;
        deployments
            .delete(NAME, &DeleteParams::background())
            .await
            .expect("a deletion");
        until("a deleted Deployment comes back", PATIENCE, || async {
            let found = deployments.get_opt(NAME).await.map_err(|e| e.to_string())?;
            let uid = found.ok_or("there is none")?.metadata.uid;
            (uid != first).then_some(()).ok_or("it is still the old one".to_owned())
        })
        .await
        .expect("healing");
        self.ready("it is ready again", "nginx:1.25", 3).await;

        let by_hand = json!({"spec": {"replicas": 7, "template": {"spec": {"containers": [
            {"name": "app", "image": "httpd:2.4"}]}}}});
        patch(&deployments, &Patch::Strategic(by_hand)).await;
        self.ready("an edit by hand is undone", "nginx:1.25", 3).await;

        patch(&apps, &Patch::Merge(json!({"spec": {"replicas": 5}}))).await;
        self.ready("it scales", "nginx:1.25", 5).await;

        patch(&apps, &Patch::Merge(json!({"spec": {"image": "nginx:1.27"}}))).await;
        self.ready("it runs the new image", "nginx:1.27", 5).await;

        patch(&apps, &Patch::Merge(json!({"spec": {"image": "nginx:1.25"}}))).await;
        self.ready("it goes back to the old one", "nginx:1.25", 5).await;

        self.silence().await;

        apps.delete(NAME, &DeleteParams::default()).await.expect("a deletion");
        until("all of it goes", PATIENCE, || self.nothing_left())
            .await
            .expect("an empty namespace");
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

    /// Nothing changes, so nothing is written, resyncs included.
    async fn silence(&self) {
        let mut before = self.writes();
        // The last status may still be on its way to the log.
        until("the writes end", PATIENCE, || {
            let now = self.writes();
            let quiet = (now.len() == before.len()).then_some(());
            before = now;
            async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                quiet.ok_or("it still writes")
            }
        })
        .await
        .expect("an end of writing");
        let before = self.writes();
        assert!(!before.is_empty(), "the audit log shows the operator's writes");
        let end = tokio::time::Instant::now() + SILENCE;
        while tokio::time::Instant::now() < end {
            let now = self.writes();
            assert_eq!(
                now.len(),
                before.len(),
                "written in silence: {:?}",
                &now[before.len()..]
            );
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Every write of the operator, as the audit log tells it.
    fn writes(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.audit_log).unwrap_or_default();
        let events = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        events
            .filter(|event| {
                let agent = event["userAgent"].as_str().unwrap_or_default();
                let writes = ["create", "update", "patch", "delete", "deletecollection"];
                agent.starts_with("stead-operator/") && writes.iter().any(|verb| event["verb"] == *verb)
            })
            .map(|event| format!("{} {}", event["verb"], event["objectRef"]))
            .collect()
    }

    async fn nothing_left(&self) -> Result<(), String> {
        left::<WebApp>(&self.client, "").await?;
        left::<Deployment>(&self.client, OURS).await?;
        left::<Service>(&self.client, OURS).await?;
        left::<ReplicaSet>(&self.client, OURS).await?;
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

async fn install_definitions(client: &Client) {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in stead_apis::definitions::all() {
        definitions
            .create(&PostParams::default(), &definition)
            .await
            .expect("a definition");
    }
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
