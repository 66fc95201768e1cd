//! The Service proxy: listens where Services are and passes on what comes.
//!
//! One task per place to listen. How things are passed on is in `pass`.

use super::pass::{self, Passing, Route};
use super::{Key, Listen, Protocol, Table, dns, key};
use crate::node::network::Network;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// Where Services lead now.
type Routes = Arc<RwLock<BTreeMap<Listen, Route>>>;

/// What the proxy of a machine needs.
pub struct Proxy {
    /// Watches Services and their endpoints.
    pub client: Client,
    pub network: Arc<Network>,
    /// The addresses of this machine's nodes, where node ports are.
    pub nodes: Vec<IpAddr>,
    /// A permit for each connection.
    pub room: Arc<Semaphore>,
}

/// Follows Services and their endpoints, and serves them, until `stop`.
pub async fn run(proxy: Proxy, stop: CancellationToken) {
    let table: Arc<RwLock<Table>> = Arc::default();
    let routes: Routes = Arc::default();
    let resolver = {
        let (network, table) = (proxy.network.clone(), table.clone());
        tokio::spawn(async move {
            if let Err(error) = dns::serve(&network, table).await {
                tracing::warn!(%error, "the cluster's DNS ended");
            }
        })
    };
    let services = watcher(Api::<Service>::all(proxy.client.clone()), watcher::Config::default());
    let mut services = kube::runtime::WatchStreamExt::default_backoff(services).boxed();
    let slices = watcher(
        Api::<EndpointSlice>::all(proxy.client.clone()),
        watcher::Config::default(),
    );
    let mut slices = kube::runtime::WatchStreamExt::default_backoff(slices).boxed();
    let (mut listed_services, mut listed_slices) = (BTreeSet::<Key>::new(), BTreeSet::<Key>::new());
    let mut listening: BTreeMap<Listen, AbortHandle> = BTreeMap::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            Some(event) = services.next() => {
                let mut table = table.write();
                match event {
                    Ok(Event::Init) => listed_services.clear(),
                    Ok(Event::InitApply(service)) => {
                        listed_services.extend(key(&service.metadata));
                        table.apply_service(service);
                    }
                    Ok(Event::InitDone) => table.keep_services(&listed_services),
                    Ok(Event::Apply(service)) => table.apply_service(service),
                    Ok(Event::Delete(service)) => table.remove_service(&service),
                    Err(error) => tracing::debug!(%error, "the watch of services broke; it starts anew"),
                }
            }
            Some(event) = slices.next() => {
                let mut table = table.write();
                match event {
                    Ok(Event::Init) => listed_slices.clear(),
                    Ok(Event::InitApply(slice)) => {
                        listed_slices.extend(key(&slice.metadata));
                        table.apply_slice(slice);
                    }
                    Ok(Event::InitDone) => table.keep_slices(&listed_slices),
                    Ok(Event::Apply(slice)) => table.apply_slice(slice),
                    Ok(Event::Delete(slice)) => table.remove_slice(&slice),
                    Err(error) => tracing::debug!(%error, "the watch of endpoints broke; it starts anew"),
                }
            }
        }
        let wanted = table.read().routes(&proxy.nodes);
        listening.retain(|place, task| {
            let keep = wanted.contains_key(place) && !task.is_finished();
            if !keep {
                task.abort();
            }
            keep
        });
        for place in wanted.keys().copied() {
            listening.entry(place).or_insert_with(|| {
                let routes = routes.clone();
                let passing = Passing {
                    network: proxy.network.clone(),
                    room: proxy.room.clone(),
                    targets: Arc::new(move || routes.read().get(&place).cloned().unwrap_or_default()),
                };
                tokio::spawn(listen(place, passing)).abort_handle()
            });
        }
        *routes.write() = wanted;
    }
    resolver.abort();
    for task in listening.into_values() {
        task.abort();
    }
}

async fn listen(place: Listen, passing: Passing) {
    let result = match place {
        Listen::NodePort(address, port, protocol) => open(SocketAddr::new(address, port), protocol, passing).await,
        Listen::Cluster(address, port, protocol) => {
            let network = passing.network.clone();
            if matches!(network.as_ref(), Network::Loopback(_)) {
                // The machine's own network does not have the Services' addresses.
                return std::future::pending().await;
            }
            if let Err(error) = network.serve_range(address, 32).await {
                tracing::warn!(%address, %error, "a Service's address could not be made reachable");
                return;
            }
            let opened = open(SocketAddr::from((address, port)), protocol, passing);
            network.inside(opened).await.and_then(|result| result)
        }
    };
    if let Err(error) = result {
        tracing::warn!(?place, %error, "a Service is not served");
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
