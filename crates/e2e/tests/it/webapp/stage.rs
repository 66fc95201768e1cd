//! A whole cluster in this process: API server, controllers, scheduler, hollow nodes, and the WebApp operator behind
//! faults. Hundreds of milliseconds to start, nothing to clean up.

use crate::binary::Up;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::core::{DynamicObject, NamespaceResourceScope};
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use stead::metrics::Metrics;
use stead::{CacheSettings, Manager};
use stead_apis::WebApp;
use stead_apis::webapp::Phase;
use stead_cluster::clock::MachineClock;
use stead_cluster::node::registration::Capacity;
use stead_cluster::node::voices::Voices;
use stead_cluster::{controllers, node, scheduler};
use stead_machinery::conditions;
use stead_test::embedded;
use stead_test::faults::Faults;
use stead_test::kubernetes::{Kubernetes, Parts, StartError};
use stead_test::skip::skipped;
use stead_test::wait::until;
use stead_webapp::WebAppOperator;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

pub const PATIENCE: Duration = Duration::from_secs(60);
/// The application that most scenarios are about.
pub const NAME: &str = "shop";

/// A cluster, and an operator that may be killed.
pub struct Stage {
    /// An administrator's.
    pub client: Client,
    /// Between the operator and the API server.
    pub faults: Faults,
    operator: Option<JoinHandle<()>>,
    /// Of the operator.
    pub metrics: Metrics,
    stop: CancellationToken,
    parts: JoinSet<()>,
    _ends_with_it: Option<Kubernetes>,
}

impl Stage {
    /// A cluster with the definitions and a running operator.
    pub async fn start() -> Stage {
        let mut stage = Stage::without_operator().await;
        stage.start_operator();
        stage
    }

    /// An API server with the definitions, and nothing else.
    pub async fn only_api() -> Stage {
        Stage::only_api_with(&stead_apis::definitions::all()).await
    }

    async fn only_api_with(definitions: &[CustomResourceDefinition]) -> Stage {
        Stage::on(embedded::client().await.expect("an API server"), None, definitions).await
    }

    /// The same with these definitions, on the real API server where `STEAD_E2E_ON` asks for it. `None` where there is
    /// none.
    pub async fn either_api(definitions: &[CustomResourceDefinition]) -> Option<Stage> {
        if !Up::asks_for_kubernetes() {
            return Some(Stage::only_api_with(definitions).await);
        }
        let real = match Kubernetes::start(Parts::Api).await {
            Ok(real) => real,
            Err(StartError::Missing(missing)) => {
                skipped(missing);
                return None;
            }
            Err(error) => panic!("{error}"),
        };
        let client = real.client().await.expect("a client");
        let stage = Stage::on(client, Some(real), definitions).await;
        until("the kind is served", PATIENCE, || async {
            stage.apps().list(&ListParams::default()).await.map(drop)
        })
        .await
        .expect("a list");
        Some(stage)
    }

    async fn on(client: Client, real: Option<Kubernetes>, definitions: &[CustomResourceDefinition]) -> Stage {
        install(&client, definitions).await;
        Stage {
            client,
            faults: Faults::default(),
            operator: None,
            metrics: Metrics::default(),
            stop: CancellationToken::new(),
            parts: JoinSet::new(),
            _ends_with_it: real,
        }
    }

    pub async fn without_operator() -> Stage {
        let mut stage = Stage::only_api().await;
        let (client, stop) = (stage.client.clone(), stage.stop.clone());
        let parts = &mut stage.parts;
        let manager = Manager::builder(client.clone()).name("kube-controller-manager").build();
        controllers::add_to(&manager, &controllers::Settings::default());
        run(parts, manager, &stop);
        let manager = Manager::builder(client.clone()).name("kube-scheduler").build();
        scheduler::add_to(&manager);
        run(parts, manager, &stop);
        let nodes = (0..2)
            .map(|index| node::describe(index, 2, format!("hollow-{index}"), Capacity::hollow()))
            .collect();
        parts.spawn(node::run_hollow(
            Voices::one(client.clone()),
            Arc::new(MachineClock),
            nodes,
            None,
            stop.clone(),
        ));
        stage
    }

    /// Starts the operator, or another one after the first was killed.
    pub fn start_operator(&mut self) {
        let settings = CacheSettings {
            longest_retry: Duration::from_millis(500),
            ..CacheSettings::default()
        };
        let manager = Manager::builder(self.faults.wrap(self.client.clone()))
            .name("stead-operator")
            .cache(settings)
            .build();
        WebAppOperator::add_to(&manager);
        self.metrics = manager.metrics().clone();
        let stop = self.stop.clone();
        self.operator = Some(tokio::spawn(async move {
            manager
                .run(async move { stop.cancelled().await })
                .await
                .expect("an operator");
        }));
    }

    /// Ends the operator between two steps, without a word to anybody.
    pub async fn kill_operator(&mut self) {
        if let Some(task) = self.operator.take() {
            task.abort();
            let _ = task.await;
        }
    }

    pub fn apps(&self) -> Api<WebApp> {
        Api::default_namespaced(self.client.clone())
    }

    pub fn deployments(&self) -> Api<Deployment> {
        Api::default_namespaced(self.client.clone())
    }

    /// Creates the application.
    pub async fn create(&self, spec: Value) {
        self.create_named(NAME, spec).await;
    }

    pub async fn create_named(&self, name: &str, spec: Value) {
        let app = serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": name}, "spec": spec}))
        .expect("a WebApp");
        self.apps()
            .create(&PostParams::default(), &app)
            .await
            .expect("an application");
    }

    /// Changes the application as `kubectl patch` would.
    pub async fn edit(&self, change: Value) {
        let patch = Patch::Merge(json!({"spec": change}));
        self.apps()
            .patch(NAME, &PatchParams::default(), &patch)
            .await
            .expect("an accepted change");
    }

    /// Waits until the application is Ready, at the generation that it has now.
    pub async fn ready(&self, what: &str) -> WebApp {
        self.ready_named(NAME, what).await
    }

    pub async fn ready_named(&self, name: &str, what: &str) -> WebApp {
        until(what, PATIENCE, || async {
            let app = self.apps().get(name).await.map_err(|error| error.to_string())?;
            let status = app.status.clone().unwrap_or_default();
            let settled = status.phase == Some(Phase::Ready) && status.observed_generation == app.metadata.generation;
            settled.then_some(app).ok_or_else(|| format!("{status:?}"))
        })
        .await
        .expect("readiness")
    }

    /// Waits until the Ready condition has a reason, and gives its message.
    pub async fn reason(&self, reason: &str) -> String {
        until(reason, PATIENCE, || async {
            let app = self.apps().get(NAME).await.map_err(|error| error.to_string())?;
            let status = app.status.clone().unwrap_or_default();
            let ready = conditions::get(&status.conditions, "Ready").cloned();
            let current = status.observed_generation == app.metadata.generation;
            match ready.filter(|ready| ready.reason == reason && current) {
                Some(ready) => Ok(ready.message),
                None => Err(format!("{status:?}")),
            }
        })
        .await
        .expect("the condition")
    }

    /// The names of all objects of a kind that carry the application's label, but those that are on their way out.
    pub async fn names<K>(&self) -> Vec<String>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = Api::default_namespaced(self.client.clone());
        let chosen = ListParams::default().labels(&format!("app.kubernetes.io/instance={NAME}"));
        let found = api.list(&chosen).await.expect("a list");
        let staying = found
            .items
            .iter()
            .filter(|object| object.meta().deletion_timestamp.is_none());
        let mut names: Vec<String> = staying.filter_map(|object| object.meta().name.clone()).collect();
        names.sort();
        names
    }

    /// The convergence rule: once it has settled, the operator writes nothing more.
    pub async fn quiet(&self) {
        let mut writes = self.faults.effective_writes().len();
        let mut since = Timestamp::now();
        until("the operator is quiet", PATIENCE, || {
            let now = self.faults.effective_writes().len();
            if now != writes {
                writes = now;
                since = Timestamp::now();
            }
            let quiet = Timestamp::now().duration_since(since).as_millis() > 700;
            async move { quiet.then_some(()).ok_or_else(|| format!("{now} writes")) }
        })
        .await
        .expect("silence");
    }

    /// One object of any kind, as the API server has it.
    pub async fn object(&self, kind: &stead::Kind, name: &str) -> Option<Value> {
        let api: Api<DynamicObject> = Api::default_namespaced_with(self.client.clone(), &kind.api_resource());
        let found = api.get_opt(name).await.expect("an answer");
        found.map(|object| serde_json::to_value(object).expect("JSON"))
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Installs definitions and waits until they are served.
pub async fn install(client: &Client, definitions: &[CustomResourceDefinition]) {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for definition in definitions {
        api.create(&PostParams::default(), definition)
            .await
            .expect("a definition");
    }
}

/// Definitions of the kinds of other projects that an application may have as children.
pub fn foreign() -> [CustomResourceDefinition; 3] {
    [
        minimal("gateway.networking.k8s.io", "HTTPRoute", "httproutes"),
        minimal("monitoring.coreos.com", "ServiceMonitor", "servicemonitors"),
        minimal("monitoring.coreos.com", "PrometheusRule", "prometheusrules"),
    ]
}

/// A definition of a foreign kind that takes anything.
fn minimal(group: &str, kind: &str, plural: &str) -> CustomResourceDefinition {
    let mut definition = json!({
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"kind": kind, "plural": plural, "singular": kind.to_lowercase(), "listKind": format!("{kind}List")},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema":
                {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]},
    });
    if group.ends_with("k8s.io") {
        // The group is protected: it wants to be told who allowed it.
        definition["metadata"]["annotations"] = json!({"api-approved.kubernetes.io": "unapproved, for tests"});
    }
    serde_json::from_value(definition).expect("a definition")
}

fn run(parts: &mut JoinSet<()>, manager: Manager, stop: &CancellationToken) {
    let stop = stop.clone();
    parts.spawn(async move {
        manager
            .run(stop.cancelled_owned())
            .await
            .expect("a part of the cluster");
    });
}
