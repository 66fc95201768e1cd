//! A cluster inside the test: an API server as a value, and the controllers of Kubernetes if they are wanted.
//!
//! Nothing is downloaded, no port is opened, nothing is left behind. Time, UIDs and resource versions are the
//! test's own, and it can put an earlier state back, as an administrator does after a disaster.

use crate::clock::{Seeded, VirtualClock};
use http::Request;
use kube::Client;
use parking_lot::RwLock;
use serde_json::Value;
use std::sync::Arc;
use stead::Manager;
use stead_apiserver::catalogue::Catalogue;
use stead_apiserver::environment::Environment;
use stead_apiserver::server::{ApiServer, Config};
use stead_apiserver::store::{Draft, History, Key, ListAt, Prefix, Store, StoreError, Window, Write};
use stead_cluster::controllers;
use tokio::task::JoinSet;

/// A cluster in this process. It ends when it is dropped; its API server answers as long as it has clients.
///
/// ```
/// use k8s_openapi::api::core::v1::Namespace;
/// use kube::Api;
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
/// # runtime.block_on(async {
/// let cluster = stead_test::Cluster::start().await.unwrap();
/// let namespaces: Api<Namespace> = Api::all(cluster.client());
/// assert!(namespaces.get_opt("default").await.unwrap().is_some());
/// # });
/// ```
pub struct Cluster {
    environment: Environment,
    clock: Arc<VirtualClock>,
    server: Arc<RwLock<ApiServer>>,
    /// What runs besides the API server.
    _running: JoinSet<()>,
}

/// What a cluster is made of.
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    seed: u64,
    parts: Parts,
}

/// Which parts run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Parts {
    Api,
    Controllers,
}

/// Everything that was stored at one moment; see [`Cluster::snapshot`].
#[derive(Clone)]
pub struct Snapshot {
    /// In the order in which they were written last.
    objects: Vec<(Key, Value)>,
}

impl Builder {
    /// The seed of UIDs and of generated names.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Runs Kubernetes' controllers too: Deployments make pods, namespaces empty when they are deleted, what an
    /// object owns goes with it.
    pub fn controllers(mut self) -> Self {
        self.parts = Parts::Controllers;
        self
    }

    /// Starts the cluster.
    pub async fn start(self) -> Result<Cluster, StoreError> {
        let clock = Arc::new(VirtualClock::new());
        let environment = Environment {
            clock: clock.clone(),
            entropy: Arc::new(Seeded::new(self.seed)),
        };
        let store = Store::in_memory(clock.clone(), History::default());
        let server = ApiServer::new(Config::new(store, environment.clone(), Catalogue::with_usage())).await?;
        let mut cluster = Cluster {
            environment,
            clock,
            server: Arc::new(RwLock::new(server)),
            _running: JoinSet::new(),
        };
        if self.parts == Parts::Controllers {
            cluster.run_controllers(self.seed);
        }
        Ok(cluster)
    }
}

impl Cluster {
    /// An API server alone: what most operators need.
    pub async fn start() -> Result<Cluster, StoreError> {
        Cluster::builder().start().await
    }

    /// A cluster to be set up.
    pub fn builder() -> Builder {
        Builder {
            seed: 0,
            parts: Parts::Api,
        }
    }

    /// An administrator's client. It outlives the cluster value, not the process.
    pub fn client(&self) -> Client {
        let server = self.server.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let mut server = server.read().clone();
            async move { tower::Service::call(&mut server, request).await }
        });
        Client::new(service, "default")
    }

    /// The wall clock of the cluster; give it to the operators too.
    pub fn clock(&self) -> Arc<VirtualClock> {
        self.clock.clone()
    }

    /// Everything that is stored now.
    pub async fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let store = self.server.read().shared().store.clone();
        let mut records = Vec::new();
        for (resource, _) in store.counts() {
            let prefix = Prefix::resource(resource);
            records.extend(store.list(&prefix, ListAt::Latest, Window::default()).await?.records);
        }
        records.sort_by_key(|record| record.revision);
        let objects = records
            .into_iter()
            .map(|record| ((*record.key).clone(), (*record.value()).clone()))
            .collect();
        Ok(Snapshot { objects })
    }

    /// Puts an earlier state back, as from a backup: objects have the UIDs that they had, and the server's revisions
    /// start again below those that clients have seen. Connections of before stay with the server of before, which
    /// nobody writes to any more; a test ends them with [`Faults::cut`](crate::faults::Faults::cut).
    pub async fn restore(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let store = Store::in_memory(self.clock.clone(), History::default());
        for (key, object) in &snapshot.objects {
            let (key, draft) = (key.clone(), Draft::of(object));
            store.write(Write::Create { key, draft }).await?;
        }
        let config = Config::new(store, self.environment.clone(), Catalogue::with_usage());
        let server = ApiServer::new(config).await?;
        *self.server.write() = server;
        Ok(())
    }

    fn run_controllers(&mut self, seed: u64) {
        let manager = Manager::builder(self.client())
            .name("kube-controller-manager")
            .clock(self.clock.clone())
            .seed(seed)
            .build();
        controllers::add_to(&manager, &controllers::Settings::default());
        self._running.spawn(async move {
            if let Err(error) = manager.run(std::future::pending()).await {
                tracing::error!(%error, "the controllers ended");
            }
        });
    }
}
