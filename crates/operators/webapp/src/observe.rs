//! Reads what planning needs, from the cache.

use crate::address;
use crate::foreign::{Foreign, HttpRoute, PrometheusRule, ServiceMonitor};
use crate::gauges;
use crate::names::{self, Track};
use crate::plan;
use crate::references::{self, Digested};
use crate::requests::{self, Reach, Told};
use crate::resources;
use crate::resources::revision::{Revision, Verdict, wanted_hash};
use crate::rollout;
use crate::seen::{OptionalKinds, Seen, Usage};
use crate::usage::Looks;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, Deployment};
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod, Secret, Service};
use k8s_openapi::api::networking::v1::{Ingress, NetworkPolicy};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Resource;
use std::sync::Arc;
use stead::{
    Context, Controller, Error, Index, Key, Kind, Manager, Namespaces, Operator, Plan, Rule, Source, Store, Watch,
};
use stead_apis::WebApp;
use stead_apis::webapp::Advice;

/// Chooses the pods of all WebApps: no other pod is ever kept in memory.
const PODS: &str = "app.kubernetes.io/name=webapp";
/// Chooses our own ConfigMaps: the others are known by a digest only.
const OURS: &str = "app.kubernetes.io/managed-by=stead-operator";

/// The operator, with the parts of the cache that it reads.
pub struct WebAppOperator {
    apps: Store<WebApp>,
    by_place: Index<WebApp>,
    deployments: Store<Deployment>,
    services: Store<Service>,
    revisions: Store<ControllerRevision>,
    pods: Store<Pod>,
    by_app: Index<Pod>,
    config_maps: Store<Digested<ConfigMap>>,
    secrets: Store<Digested<Secret>>,
    /// Only where the whole cluster is watched: who is confined to some namespaces has no right to see nodes.
    nodes: Option<Store<Node>>,
    /// Kinds of other projects, which not every cluster has.
    routes: Store<Foreign<HttpRoute>>,
    monitors: Store<Foreign<ServiceMonitor>>,
    rules: Store<Foreign<PrometheusRule>>,
    namespaces: Namespaces,
    usage: Looks,
    reach: Reach,
}

/// Every kind of which a WebApp owns objects.
pub fn owned_kinds() -> Vec<Kind> {
    vec![
        Kind::of::<Deployment>(),
        Kind::of::<Service>(),
        Kind::of::<ConfigMap>(),
        Kind::of::<ControllerRevision>(),
        Kind::of::<HorizontalPodAutoscaler>(),
        Kind::of::<PodDisruptionBudget>(),
        Kind::of::<Ingress>(),
        Kind::of::<NetworkPolicy>(),
        Kind::of::<Foreign<HttpRoute>>(),
        Kind::of::<Foreign<ServiceMonitor>>(),
        Kind::of::<Foreign<PrometheusRule>>(),
    ]
}

impl WebAppOperator {
    /// The name of its controller, in logs and metrics.
    pub const NAME: &'static str = "webapp";

    /// Adds the operator's controller to a manager.
    pub fn add_to(manager: &Manager) {
        Self::add_with(manager, Reach::directly(None));
    }

    /// The same where the operator reaches pods in another way, or is one itself.
    pub fn add_with(manager: &Manager, reach: Reach) {
        let cache = manager.cache();
        let pods = cache.watch(Watch::all().labels(PODS));
        let apps: Store<WebApp> = cache.store();
        let operator = WebAppOperator {
            by_place: apps.index(|app: &WebApp| address::place(app).into_iter().collect()),
            apps: apps.clone(),
            deployments: cache.store(),
            services: cache.store(),
            revisions: cache.store(),
            by_app: pods.index(|pod: &Pod| instance(pod).into_iter().collect()),
            pods,
            config_maps: cache.store(),
            secrets: cache.store(),
            nodes: (*cache.namespaces() == Namespaces::All).then(|| cache.store()),
            routes: cache.watch(Watch::all().optional()),
            monitors: cache.watch(Watch::all().optional()),
            rules: cache.watch(Watch::all().optional()),
            namespaces: cache.namespaces().clone(),
            usage: Looks::default(),
            reach,
        };
        gauges::show(manager.metrics(), &apps);
        manager.add(operator.controller(&apps));
    }

    fn controller(self, apps: &Store<WebApp>) -> Controller {
        let by_config_map = users(apps, references::config_maps);
        let by_secret = users(apps, references::secrets);
        let by_pod = users(apps, |app| {
            vec![format!("{}/{}", namespace(&app.metadata.namespace), names::child(app))]
        });
        let nodes = self.nodes.is_some().then(Rule::cache::<Node>);
        let controller = Controller::operator(Self::NAME, self)
            .owns::<Deployment>()
            // Every application has its Service; it has no other life than the application's own.
            .owns_source(Source::<Service>::all().permanent())
            .owns::<ControllerRevision>()
            .owns::<HorizontalPodAutoscaler>()
            .owns::<PodDisruptionBudget>()
            .owns::<Ingress>()
            .owns::<NetworkPolicy>()
            .owns_source(Source::<Foreign<HttpRoute>>::all().optional())
            .owns_source(Source::<Foreign<ServiceMonitor>>::all().optional())
            .owns_source(Source::<Foreign<PrometheusRule>>::all().optional())
            .owns_source(Source::<ConfigMap>::from(Watch::all().labels(OURS)))
            .watches_source(Source::<Pod>::from(Watch::all().labels(PODS)), move |pod| {
                instance(pod).map(|app| by_pod(&app)).unwrap_or_default()
            })
            .watches::<Digested<ConfigMap>>(move |found| by_config_map(&qualified(found)))
            .watches::<Digested<Secret>>(move |found| by_secret(&qualified(found)))
            .may(Rule::prune::<Pod>())
            .may(Rule::new("metrics.k8s.io", &["pods"], &["list"]))
            .resync(plan::RESYNC);
        nodes.into_iter().fold(controller, Controller::may)
    }
}

impl Operator for WebAppOperator {
    type Root = WebApp;
    type Seen = Seen;

    async fn observe(&self, context: &Context, app: &Arc<WebApp>) -> Result<Seen, Error> {
        let in_namespace = app.metadata.namespace.as_deref();
        let uid = app.metadata.uid.as_deref().unwrap_or_default();
        let instance = format!("{}/{}", namespace(&app.metadata.namespace), names::child(app));
        let owned = |track: Track| {
            let found = self.deployments.named(in_namespace, &track.deployment(app))?;
            owns(uid, &found.metadata).then_some(found)
        };
        let mut pods = self.pods.by_index(&self.by_app, &instance);
        pods.retain(|pod| is_of(app, pod));
        let canary = owned(Track::Canary);
        let stored = self.revisions.owned_by(uid);
        let revisions: Vec<Revision> = stored.iter().filter_map(|stored| Revision::read(stored)).collect();
        Ok(Seen {
            stable: owned(Track::Stable),
            requests: match &canary {
                Some(_) if !has_failed(app, &revisions) => self.requests(app, &pods).await,
                _ => None,
            },
            taken_by: self.taken_by(app),
            home: self.reach.home.clone(),
            canary,
            usage: self.usage(context, app, &pods).await,
            optional: OptionalKinds {
                gateway: self.routes.is_served(),
                monitoring: self.monitors.is_served() && self.rules.is_served(),
            },
            service: self.services.named(in_namespace, &names::child(app)),
            digests: references::look(app, &revisions, &self.config_maps, &self.secrets),
            revisions,
            pods,
            bad_nodes: self.bad_nodes(app),
        })
    }

    fn plan(&self, app: &WebApp, seen: &Seen, now: Timestamp) -> Plan {
        plan::webapp(app, seen, now)
    }
}

impl WebAppOperator {
    /// What the pods use, asked for only where advice is wanted.
    async fn usage(&self, context: &Context, app: &WebApp, pods: &[Arc<Pod>]) -> Vec<Usage> {
        match app.spec.advice {
            Advice::Off => Vec::new(),
            Advice::Report | Advice::Apply => self.usage.of(&context.client(), &self.namespaces, pods).await,
        }
    }

    /// What canary pods tell of the requests to them, where the spec names the metric that counts them.
    async fn requests(&self, app: &WebApp, pods: &[Arc<Pod>]) -> Option<Told> {
        let rate = app.spec.strategy.canary.as_ref()?.error_rate.as_ref()?;
        let (port, path) = resources::metrics(app)?;
        let wanted = wanted_hash(app);
        let on_trial = |pod: &&Pod| rollout::is_on_trial(pod, &wanted);
        let trial: Vec<&Pod> = pods.iter().map(AsRef::as_ref).filter(on_trial).collect();
        Some(requests::ask(&self.reach.dial, &trial, port, &path, rate).await)
    }

    /// The older application that has the same place, as far as this operator sees.
    fn taken_by(&self, app: &WebApp) -> Option<String> {
        let there = self.apps.by_index(&self.by_place, &address::place(app)?);
        address::taken_by(app, there.iter().map(AsRef::as_ref))
    }

    /// Nodes that pods should leave, looked for only where the spec wants that.
    fn bad_nodes(&self, app: &WebApp) -> Vec<String> {
        let (Some(_), Some(nodes)) = (&app.spec.recovery, &self.nodes) else {
            return Vec::new();
        };
        let mut bad = Vec::new();
        nodes.for_each(|key, node| {
            if is_unwell(node) {
                bad.push(key.name().to_string());
            }
        });
        bad.sort();
        bad
    }
}

/// Whether a node is not ready, or under pressure.
pub fn is_unwell(node: &Node) -> bool {
    let mut conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.any(|condition| match condition.type_.as_str() {
        "Ready" => condition.status != "True",
        // Of the others those of Kubernetes say by True that something is wrong; foreign ones may mean anything.
        "MemoryPressure" | "DiskPressure" | "PIDPressure" | "NetworkUnavailable" => condition.status == "True",
        _ => false,
    })
}

/// Whether the version that is wanted was judged already, and nobody needs to know more of it.
fn has_failed(app: &WebApp, revisions: &[Revision]) -> bool {
    let wanted = wanted_hash(app);
    let mut failed = revisions.iter().filter(|revision| revision.verdict == Verdict::Failed);
    failed.any(|revision| revision.hash == wanted)
}

/// Finds the apps that an index value concerns.
fn users(
    apps: &Store<WebApp>,
    values: impl Fn(&WebApp) -> Vec<String> + Send + Sync + 'static,
) -> impl Fn(&str) -> Vec<Key> + Send + Sync + 'static {
    let index = apps.index(values);
    let apps = apps.clone();
    move |value| apps.by_index(&index, value).iter().map(|app| Key::of(&**app)).collect()
}

/// `namespace/instance`, from the labels that every pod of ours has.
fn instance(pod: &Pod) -> Option<String> {
    let instance = pod.metadata.labels.as_ref()?.get("app.kubernetes.io/instance")?;
    Some(format!("{}/{instance}", namespace(&pod.metadata.namespace)))
}

/// Whether a pod was made for a Deployment of the application. Anyone may give a pod our labels; it must not be counted,
/// and never be ended, for that.
fn is_of(app: &WebApp, pod: &Pod) -> bool {
    let owners = pod.metadata.owner_references.iter().flatten();
    let maker = owners
        .filter(|owner| owner.controller == Some(true) && owner.kind == "ReplicaSet")
        .find_map(|owner| owner.name.rsplit_once('-'));
    maker.is_some_and(|(deployment, _)| {
        [Track::Stable, Track::Canary]
            .iter()
            .any(|track| track.deployment(app) == deployment)
    })
}

fn qualified<K: Resource>(object: &K) -> String {
    let meta = object.meta();
    format!(
        "{}/{}",
        namespace(&meta.namespace),
        meta.name.as_deref().unwrap_or_default()
    )
}

fn namespace(namespace: &Option<String>) -> &str {
    namespace.as_deref().unwrap_or_default()
}

fn owns(uid: &str, child: &kube::core::ObjectMeta) -> bool {
    child.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn app() -> WebApp {
        serde_json::from_value(json!({"apiVersion": "stead.dev/v1", "kind": "WebApp",
            "metadata": {"name": "shop"}, "spec": {"image": "nginx:1.25"}}))
        .expect("a WebApp")
    }

    fn pod(owners: serde_json::Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "shop-1", "ownerReferences": owners}})).expect("a Pod")
    }

    #[test]
    fn pods_of_both_tracks_are_the_applications_and_those_with_its_labels_alone_are_not() {
        let made_by = |kind: &str, name: &str| {
            pod(json!([{"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u", "controller": true}]))
        };
        assert!(is_of(&app(), &made_by("ReplicaSet", "shop-5d4f")));
        assert!(is_of(&app(), &made_by("ReplicaSet", "shop-canary-5d4f")));
        assert!(!is_of(&app(), &made_by("ReplicaSet", "shop-other-5d4f")));
        assert!(!is_of(&app(), &made_by("Job", "shop-5d4f")));
        assert!(!is_of(&app(), &pod(json!([]))));
    }
}
