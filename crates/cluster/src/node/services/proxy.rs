//! The Service proxy: listens where Services are and passes connections on.
//!
//! One task per place to listen. The endpoints are read when a connection arrives, so that one that is no longer
//! ready gets none; one that does not answer is skipped.

use super::{Key, Listen, Table, dns, key};
use crate::node::network::Network;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use parking_lot::RwLock;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::AbortHandle;
use tokio_util::sync::CancellationToken;

/// How long an endpoint may take to accept a connection before the next one is tried.
const CONNECT_PATIENCE: Duration = Duration::from_secs(2);

/// Connections that are passed on at once, over all Services; more wait to be accepted.
const MOST_CONNECTIONS: usize = 4096;
/// The pause after a connection could not be accepted: out of file descriptors, for one, until others have ended.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Where Services send connections now.
type Routes = Arc<RwLock<BTreeMap<Listen, Vec<SocketAddr>>>>;

/// Follows Services and their endpoints, and serves them, until `stop`.
pub async fn run(client: Client, network: Arc<Network>, stop: CancellationToken) {
    let table: Arc<RwLock<Table>> = Arc::default();
    let routes: Routes = Arc::default();
    let resolver = {
        let (network, table) = (network.clone(), table.clone());
        tokio::spawn(async move {
            if let Err(error) = dns::serve(&network, table).await {
                tracing::warn!(%error, "the cluster's DNS ended");
            }
        })
    };
    let services = watcher(Api::<Service>::all(client.clone()), watcher::Config::default());
    let mut services = kube::runtime::WatchStreamExt::default_backoff(services).boxed();
    let slices = watcher(Api::<EndpointSlice>::all(client), watcher::Config::default());
    let mut slices = kube::runtime::WatchStreamExt::default_backoff(slices).boxed();
    let (mut listed_services, mut listed_slices) = (BTreeSet::<Key>::new(), BTreeSet::<Key>::new());
    let mut listening: BTreeMap<Listen, AbortHandle> = BTreeMap::new();
    let room = Arc::new(Semaphore::new(MOST_CONNECTIONS));
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
        let wanted = table.read().routes();
        listening.retain(|place, task| {
            let keep = wanted.contains_key(place) && !task.is_finished();
            if !keep {
                task.abort();
            }
            keep
        });
        for place in wanted.keys().copied() {
            listening.entry(place).or_insert_with(|| {
                let shared = Shared {
                    network: network.clone(),
                    routes: routes.clone(),
                    room: room.clone(),
                };
                tokio::spawn(listen(place, shared)).abort_handle()
            });
        }
        *routes.write() = wanted;
    }
    resolver.abort();
    for task in listening.into_values() {
        task.abort();
    }
}

/// What all places to listen have in common.
#[derive(Clone)]
struct Shared {
    network: Arc<Network>,
    routes: Routes,
    /// A permit for each connection.
    room: Arc<Semaphore>,
}

async fn listen(place: Listen, shared: Shared) {
    let result = match place {
        Listen::NodePort(port) => accept(Ipv4Addr::LOCALHOST, port, place, shared).await,
        Listen::Cluster(address, port) => {
            let network = shared.network.clone();
            if matches!(network.as_ref(), Network::Loopback(_)) {
                // The machine's own network does not have the Services' addresses.
                return std::future::pending().await;
            }
            if let Err(error) = network.serve_range(address, 32).await {
                tracing::warn!(%address, %error, "a Service's address could not be made reachable");
                return;
            }
            let accepting = async move { accept(address, port, place, shared).await };
            network.inside(accepting).await.and_then(|result| result)
        }
    };
    if let Err(error) = result {
        tracing::warn!(?place, %error, "a Service is not served");
    }
}

/// Passes connections on for as long as the Service is there: nothing but that ends it once it listens.
async fn accept(address: Ipv4Addr, port: u16, place: Listen, shared: Shared) -> std::io::Result<()> {
    let listener = TcpListener::bind((address, port)).await?;
    let turn = AtomicUsize::new(0);
    loop {
        let mut client = match listener.accept().await {
            Ok((client, _)) => client,
            Err(error) => {
                tracing::warn!(?place, %error, "a connection to a Service could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        // The semaphore is never closed; without a permit the connection is merely not counted.
        let permit = shared.room.clone().acquire_owned().await.ok();
        let endpoints = shared.routes.read().get(&place).cloned().unwrap_or_default();
        let first = turn.fetch_add(1, Ordering::Relaxed);
        let network = shared.network.clone();
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(mut server) = reach(&network, &endpoints, first).await {
                // Either side may end; that is how connections go.
                let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            }
        });
    }
}

/// Connects to the endpoint whose turn it is, or to the next one that answers.
async fn reach(network: &Network, endpoints: &[SocketAddr], first: usize) -> Option<TcpStream> {
    for step in 0..endpoints.len() {
        let endpoint = endpoints[(first + step) % endpoints.len()];
        if let Ok(Ok(stream)) = tokio::time::timeout(CONNECT_PATIENCE, network.connect(endpoint)).await {
            return Some(stream);
        }
    }
    None
}
