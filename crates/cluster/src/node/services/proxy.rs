//! The Service proxy: listens where Services are and passes on what comes.
//!
//! One task per place to listen. How things are passed on is in `pass`.

use super::pass::{self, Passing, Route};
use super::{Key, Listen, Protocol, Table, dns};
use crate::node::follow::{Followed, Watches};
use crate::node::network::Network;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::core::ObjectMeta;
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use stead::{Change, Watch};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Where Services lead now.
type Routes = Arc<RwLock<BTreeMap<Listen, Route>>>;

/// The pause before a place that could not be served is tried again: another program may have its port for a while.
const RETRY: Duration = Duration::from_secs(1);
/// The longest such pause.
const LONGEST_RETRY: Duration = Duration::from_secs(30);

/// What the proxy of a machine needs.
pub(crate) struct Proxy {
    /// Watches Services and their endpoints.
    pub watches: Watches,
    pub services: Followed<Service>,
    pub network: Arc<dyn Network>,
    /// The addresses of this machine's nodes, where node ports are.
    pub nodes: Vec<IpAddr>,
    pub room: pass::Room,
}

/// Follows Services and their endpoints, and serves them, until `stop`.
pub(crate) async fn run(mut proxy: Proxy, stop: CancellationToken) {
    let table: Arc<RwLock<Table>> = Arc::default();
    let routes: Routes = Arc::default();
    let resolver = {
        let (network, table) = (proxy.network.clone(), table.clone());
        tokio::spawn(async move {
            if let Err(error) = dns::serve(network.as_ref(), table).await {
                tracing::warn!(%error, "the cluster's DNS ended");
            }
        })
    };
    let services = &mut proxy.services;
    let mut slices = proxy
        .watches
        .follow(Watch::<EndpointSlice>::all().transform(|slice| forget(&mut slice.metadata)));
    let mut listening: BTreeMap<Listen, (Key, AbortOnDropHandle<()>)> = BTreeMap::new();
    let mut places: BTreeMap<Key, Vec<Listen>> = BTreeMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(first) = services.changes.recv() => {
                let mut table = table.write();
                for change in at_hand(first, &mut services.changes) {
                    match change {
                        Change::Deleted(service) => table.remove_service(&service),
                        other => table.apply_service(other.object().clone()),
                    }
                }
            }
            Some(first) = slices.changes.recv() => {
                let mut table = table.write();
                for change in at_hand(first, &mut slices.changes) {
                    match change {
                        Change::Deleted(slice) => table.remove_slice(&slice),
                        other => table.apply_slice(other.object().clone()),
                    }
                }
            }
        }
        let changed: Vec<(Key, BTreeMap<Listen, Route>)> = {
            let mut table = table.write();
            let keys = table.take_changed().into_iter();
            keys.map(|key| (key.clone(), table.routes(&key, &proxy.nodes)))
                .collect()
        };
        let wanted: BTreeSet<Listen> = changed.iter().flat_map(|(_, wanted)| wanted.keys().copied()).collect();
        for (key, _) in &changed {
            for place in places.remove(key).unwrap_or_default() {
                if !wanted.contains(&place) && listening.get(&place).is_some_and(|(owner, _)| owner == key) {
                    listening.remove(&place);
                    routes.write().remove(&place);
                }
            }
        }
        for (key, wanted) in changed {
            if !wanted.is_empty() {
                places.insert(key.clone(), wanted.keys().copied().collect());
            }
            for (place, route) in wanted {
                routes.write().insert(place, route);
                let held = listening.entry(place).or_insert_with(|| {
                    let routes = routes.clone();
                    let passing = Passing {
                        network: proxy.network.clone(),
                        room: proxy.room.clone(),
                        targets: Arc::new(move || routes.read().get(&place).cloned().unwrap_or_default()),
                    };
                    let task = tokio::spawn(listen(place, passing));
                    (key.clone(), AbortOnDropHandle::new(task))
                });
                held.0.clone_from(&key);
            }
        }
    }
    resolver.abort();
}

/// Follows all Services: the proxy, and whoever tells containers of them.
pub(crate) fn follow(watches: &Watches) -> Followed<Service> {
    watches.follow(Watch::<Service>::all().transform(|service| forget(&mut service.metadata)))
}

/// Nobody here reads who owns which field.
fn forget(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
}

/// What happened, and all that has happened since: the routes are made once for all of it.
fn at_hand<T>(first: T, changes: &mut mpsc::UnboundedReceiver<T>) -> Vec<T> {
    let mut all = vec![first];
    while let Ok(change) = changes.try_recv() {
        all.push(change);
    }
    all
}

/// Serves a place until the task is ended, and tries again when that fails.
async fn listen(place: Listen, passing: Passing) {
    if matches!(place, Listen::Cluster(..)) && passing.network.gateway().is_none() {
        // The machine's own network does not have the Services' addresses.
        return;
    }
    let mut pause = RETRY;
    while let Err(error) = serve(place, &passing).await {
        tracing::warn!(?place, %error, "a Service is not served; trying again");
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_RETRY);
    }
}

async fn serve(place: Listen, passing: &Passing) -> io::Result<()> {
    match place {
        Listen::NodePort(address, port, protocol) => {
            open(SocketAddr::new(address, port), protocol, passing.clone()).await
        }
        Listen::Cluster(address, port, protocol) => {
            let network = &passing.network;
            network.serve_address(address).await?;
            let opened = open(SocketAddr::from((address, port)), protocol, passing.clone());
            network.inside(Box::pin(opened)).await
        }
    }
}

/// Listens, and passes on for as long as the Service is there.
async fn open(address: SocketAddr, protocol: Protocol, passing: Passing) -> io::Result<()> {
    match protocol {
        Protocol::Tcp => pass::connections(TcpListener::bind(address).await?, passing).await,
        Protocol::Udp => pass::datagrams(UdpSocket::bind(address).await?, passing).await,
    }
    Ok(())
}
