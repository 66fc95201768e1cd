//! EndpointSlices and Endpoints: which pods stand behind a Service.

mod arrange;
mod build;
pub mod mirroring;

use k8s_openapi::api::core::v1::{Endpoints, Node, Pod, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use serde::Serialize;
use std::sync::Arc;
use stead::Watch;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Propagation, Reconciler, Rule, Source, Store, Typed};

/// Where a node says in which zone it is.
const ZONE: &str = "topology.kubernetes.io/zone";
/// Our own slices: others manage theirs.
const OURS: &str = "endpointslice.kubernetes.io/managed-by=endpointslice-controller.k8s.io";

/// Adds the controller of endpoints.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let services = cache.store::<Service>();
    let reconciler = Slices {
        services: services.clone(),
        pods: cache.store(),
        slices: cache.watch(Watch::all().labels(OURS)),
        endpoints: cache.store(),
        nodes: cache.store(),
    };
    let controller = Controller::new("endpointslice", reconciler)
        .for_::<Service>()
        .watches_source(Source::<EndpointSlice>::from(Watch::all().labels(OURS)), |slice| {
            service_of(slice).into_iter().collect()
        })
        .watches::<Pod>(move |pod| {
            let candidates = services.in_namespace(pod.metadata.namespace.as_deref().unwrap_or_default());
            let chosen = candidates.iter().filter(|service| build::selects(service, pod));
            chosen.map(|service| Key::of(&**service)).collect()
        })
        .may(Rule::read::<Endpoints>())
        .may(Rule::read::<Node>())
        .may(Rule::new(
            "discovery.k8s.io",
            &["endpointslices"],
            &["create", "update", "delete"],
        ))
        .may(Rule::new("", &["endpoints"], &["create", "update", "delete"]))
        .without_resync()
        .concurrency(8);
    manager.add(controller);
}

struct Slices {
    services: Store<Service>,
    pods: Store<Pod>,
    slices: Store<EndpointSlice>,
    endpoints: Store<Endpoints>,
    nodes: Store<Node>,
}

impl Reconciler for Slices {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let namespace = key.namespace().unwrap_or_default();
        let have = slices_of(&self.slices, key);
        let service = self.services.get(key);
        if service.is_none() {
            // Slices go with their owner; Endpoints have none, in Kubernetes too, and go with the name.
            if let Some(endpoints) = self.endpoints.get(key) {
                context.writer().delete(&*endpoints, Propagation::Background).await?;
            }
        }
        let service = service.filter(|service| service.metadata.deletion_timestamp.is_none());
        let Some(service) = service.filter(|service| build::has_selector(service)) else {
            // Without its Service a slice is garbage, and the collector has its owner reference; without a selector
            // slices are somebody else's.
            return Ok(Outcome::Settled);
        };
        let mut pods = self.pods.in_namespace(namespace);
        pods.retain(|pod| build::selects(&service, pod));
        pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
        // A node has its zone before it has pods, and keeps it: no change of a node has to be waited for.
        let zone_of = |node: &str| {
            let node = self.nodes.named(None, node)?;
            node.metadata.labels.as_ref()?.get(ZONE).cloned()
        };
        let wanted = build::slices(&service, &pods, &zone_of, &have);
        put_slices(context, &wanted, &have).await?;
        let endpoints = build::endpoints(&service, &pods);
        put(
            context,
            &endpoints,
            self.endpoints.get(key).as_deref(),
            build::same_endpoints,
        )
        .await?;
        Ok(Outcome::Settled)
    }
}

/// The Service that a slice belongs to.
fn service_of(slice: &EndpointSlice) -> Option<Key> {
    let name = slice.metadata.labels.as_ref()?.get("kubernetes.io/service-name")?;
    Some(Key::new(slice.metadata.namespace.as_deref(), name))
}

/// The slices in this store that belong to a Service.
fn slices_of(slices: &Store<EndpointSlice>, service: &Key) -> Vec<Arc<EndpointSlice>> {
    let mut slices = slices.in_namespace(service.namespace().unwrap_or_default());
    slices.retain(|slice| service_of(slice).as_ref() == Some(service));
    slices
}

/// Makes the slices of a Service those that are wanted: no more, and no fewer.
async fn put_slices(context: &Context, wanted: &[EndpointSlice], have: &[Arc<EndpointSlice>]) -> Result<(), Error> {
    for slice in wanted {
        let old = have.iter().find(|old| old.metadata.name == slice.metadata.name);
        put(context, slice, old.map(AsRef::as_ref), build::same_slice).await?;
    }
    for old in have
        .iter()
        .filter(|old| !wanted.iter().any(|slice| slice.metadata.name == old.metadata.name))
    {
        context.writer().delete(&**old, Propagation::Background).await?;
    }
    Ok(())
}

/// Creates or replaces an object, unless it is already so.
async fn put<K: Typed + Serialize + Clone>(
    context: &Context,
    wanted: &K,
    have: Option<&K>,
    same: impl Fn(&K, &K) -> bool,
) -> Result<(), Error> {
    match have {
        None => super::created(context.writer().create(wanted).await),
        Some(have) if same(have, wanted) => Ok(()),
        Some(have) => {
            let mut next = wanted.clone();
            next.meta_mut().resource_version = have.meta().resource_version.clone();
            next.meta_mut().uid = have.meta().uid.clone();
            context.writer().update(&next).await.map(drop)
        }
    }
}
