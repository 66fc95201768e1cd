//! A whole embedded cluster in a test: API server, controllers, scheduler and hollow nodes, in one process.
//!
//! All its parts take their time from tokio's clock. In a test with `start_paused = true` that clock jumps to the
//! next thing that is due as soon as nobody has anything to do: five minutes of waiting for a lost node, or a day of
//! CronJobs, pass in milliseconds.

use crate::clock::{Seeded, VirtualClock};
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use stead::Manager;
use stead_apiserver::catalogue::Catalogue;
use stead_apiserver::environment::Environment;
use stead_apiserver::server::{ApiServer, Config};
use stead_apiserver::store::{History, Store, StoreError};
use stead_cluster::node::registration::Capacity;
use stead_cluster::node::voices::Voices;
use stead_cluster::{controllers, node, scheduler};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The kinds that stories speak of: plural, apiVersion, kind, and whether they live in namespaces.
const KINDS: &[(&str, &str, &str, Place)] = &[
    (
        "certificatesigningrequests",
        "certificates.k8s.io/v1",
        "CertificateSigningRequest",
        Place::Cluster,
    ),
    (
        "clusterroles",
        "rbac.authorization.k8s.io/v1",
        "ClusterRole",
        Place::Cluster,
    ),
    ("configmaps", "v1", "ConfigMap", Place::Namespace),
    ("controllerrevisions", "apps/v1", "ControllerRevision", Place::Namespace),
    ("cronjobs", "batch/v1", "CronJob", Place::Namespace),
    ("daemonsets", "apps/v1", "DaemonSet", Place::Namespace),
    ("deployments", "apps/v1", "Deployment", Place::Namespace),
    (
        "endpointslices",
        "discovery.k8s.io/v1",
        "EndpointSlice",
        Place::Namespace,
    ),
    ("events", "events.k8s.io/v1", "Event", Place::Namespace),
    (
        "horizontalpodautoscalers",
        "autoscaling/v2",
        "HorizontalPodAutoscaler",
        Place::Namespace,
    ),
    ("ipaddresses", "networking.k8s.io/v1", "IPAddress", Place::Cluster),
    ("jobs", "batch/v1", "Job", Place::Namespace),
    ("namespaces", "v1", "Namespace", Place::Cluster),
    ("nodes", "v1", "Node", Place::Cluster),
    (
        "persistentvolumeclaims",
        "v1",
        "PersistentVolumeClaim",
        Place::Namespace,
    ),
    ("persistentvolumes", "v1", "PersistentVolume", Place::Cluster),
    (
        "poddisruptionbudgets",
        "policy/v1",
        "PodDisruptionBudget",
        Place::Namespace,
    ),
    ("pods", "v1", "Pod", Place::Namespace),
    (
        "priorityclasses",
        "scheduling.k8s.io/v1",
        "PriorityClass",
        Place::Cluster,
    ),
    ("replicasets", "apps/v1", "ReplicaSet", Place::Namespace),
    (
        "replicationcontrollers",
        "v1",
        "ReplicationController",
        Place::Namespace,
    ),
    ("resourcequotas", "v1", "ResourceQuota", Place::Namespace),
    ("secrets", "v1", "Secret", Place::Namespace),
    ("serviceaccounts", "v1", "ServiceAccount", Place::Namespace),
    ("servicecidrs", "networking.k8s.io/v1", "ServiceCIDR", Place::Cluster),
    ("services", "v1", "Service", Place::Namespace),
    ("statefulsets", "apps/v1", "StatefulSet", Place::Namespace),
    ("storageclasses", "storage.k8s.io/v1", "StorageClass", Place::Cluster),
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Cluster,
    Namespace,
}

/// A running cluster. It ends with the value.
pub struct HollowCluster {
    client: Client,
    stop: CancellationToken,
    _parts: JoinSet<()>,
    /// Where volumes are provisioned.
    _volumes: tempfile::TempDir,
}

/// Why a cluster did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The API server did not start.
    #[error("cannot start the API server")]
    Server(#[from] StoreError),
    /// There is no authority to sign certificates.
    #[error("cannot make an authority")]
    Authority(#[from] rcgen::Error),
    /// There is no place for volumes.
    #[error("cannot make a directory for volumes")]
    Volumes(#[from] std::io::Error),
}

/// An answer of the API server that is not a success.
#[derive(Debug, thiserror::Error)]
#[error("{method} {path}: {code}: {message}")]
pub struct Refused {
    /// What was sent.
    pub method: &'static str,
    /// Where to.
    pub path: String,
    /// The status code; 0 where there was no answer.
    pub code: u16,
    /// Why, in the server's words.
    pub message: String,
}

impl HollowCluster {
    /// A cluster with so many hollow nodes, `node-0`, `node-1` and so on.
    pub async fn start(nodes: usize) -> Result<HollowCluster, StartError> {
        let clock = Arc::new(VirtualClock::new());
        let environment = Environment {
            clock: clock.clone(),
            entropy: Arc::new(Seeded::new(1)),
        };
        let store = Store::in_memory(environment.clock.clone(), History::default());
        let server = ApiServer::new(Config::new(store, environment, Catalogue::with_usage())).await?;
        let client = Client::new(server, "default");
        let directory = tempfile::tempdir()?;
        let volumes = directory.path().join("volumes");
        let stop = CancellationToken::new();
        let mut parts = JoinSet::new();
        let settings = controllers::Settings {
            root_certificates: Some("none".to_string()),
            authority: Some(authority()?),
            volumes: Some(controllers::volumes::Directories::new(volumes)),
        };
        let manager = |name: &str| {
            let builder = Manager::builder(client.clone()).name(name).seed(1);
            builder.clock(clock.clone()).build()
        };
        let controllers = manager("kube-controller-manager");
        controllers::add_to(&controllers, &settings);
        let scheduler = manager("kube-scheduler");
        scheduler::add_to(&scheduler);
        for part in [controllers, scheduler] {
            let stop = stop.clone();
            parts.spawn(async move {
                // It only ends when it is told to.
                let _ = part.run(stop.cancelled_owned()).await;
            });
        }
        let described = (0..nodes).map(|index| {
            let name = format!("node-{index}");
            node::describe(index, nodes, name, Capacity::hollow())
        });
        parts.spawn(node::run_hollow(
            Voices::one(client.clone()),
            clock,
            described.collect(),
            None,
            stop.clone(),
        ));
        Ok(HollowCluster {
            client,
            stop,
            _parts: parts,
            _volumes: directory,
        })
    }

    /// Sends a request; the answer as JSON.
    pub async fn request(&self, method: &'static str, path: &str, body: Value) -> Result<Value, Refused> {
        let media = match method {
            "PATCH" => "application/merge-patch+json",
            _ => "application/json",
        };
        let refused = |code, message| Refused {
            method,
            path: path.to_string(),
            code,
            message,
        };
        let bytes = if body.is_null() {
            Vec::new()
        } else {
            body.to_string().into_bytes()
        };
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("Content-Type", media)
            .body(bytes)
            .map_err(|error| refused(0, error.to_string()))?;
        match self.client.request::<Value>(request).await {
            Ok(value) => Ok(value),
            Err(kube::Error::Api(status)) => Err(refused(status.code, status.message.clone())),
            Err(error) => Err(refused(0, error.to_string())),
        }
    }

    /// Creates an object of the namespace `default`, or of the cluster: `("jobs", {metadata, spec})`.
    pub async fn create(&self, plural: &str, mut object: Value) -> Result<Value, Refused> {
        let (_, version, kind, _) = known(plural);
        object["apiVersion"] = json!(version);
        object["kind"] = json!(kind);
        self.request("POST", &path(plural), object).await
    }

    /// Reads an object, as `deployments/web`, a subresource, or a list, as `pods?labelSelector=app=web`.
    pub async fn get(&self, what: &str) -> Result<Value, Refused> {
        self.request("GET", &path(what), Value::Null).await
    }

    /// The items of a list.
    pub async fn list(&self, what: &str) -> Result<Vec<Value>, Refused> {
        let list = self.get(what).await?;
        Ok(list["items"].as_array().cloned().unwrap_or_default())
    }

    /// Changes an object by a merge patch.
    pub async fn patch(&self, what: &str, patch: Value) -> Result<Value, Refused> {
        self.request("PATCH", &path(what), patch).await
    }

    /// Deletes an object; the policy as the API names it.
    pub async fn delete(&self, what: &str, policy: &str) -> Result<Value, Refused> {
        let options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": policy});
        self.request("DELETE", &path(what), options).await
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

impl Drop for HollowCluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// What signs certificates in the cluster.
fn authority() -> Result<controllers::certificates::Authority, rcgen::Error> {
    let mut params = rcgen::CertificateParams::default();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.pem();
    Ok(controllers::certificates::Authority::new(
        certificate,
        key.serialize_pem(),
    ))
}

fn known(plural: &str) -> (&'static str, &'static str, &'static str, Place) {
    let found = KINDS.iter().find(|kind| kind.0 == plural);
    *found.unwrap_or_else(|| panic!("add {plural} to the kinds that stories speak of"))
}

/// The path of `plural`, `plural/name`, `plural/name/subresource`, each with a query or without.
fn path(what: &str) -> String {
    let plural = what.split(['/', '?']).next().unwrap_or_default();
    let (_, version, _, place) = known(plural);
    let root = if version.contains('/') { "/apis" } else { "/api" };
    match place {
        Place::Cluster => format!("{root}/{version}/{what}"),
        Place::Namespace => format!("{root}/{version}/namespaces/default/{what}"),
    }
}
