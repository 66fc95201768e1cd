//! The node agent: registers a node, renews its lease, and drives the pods that are bound to it.
//!
//! It is an ordinary client of the API, of the embedded server or of any other Kubernetes. What a pod needs next
//! is decided by a pure function (`plan`); a runtime carries it out: real processes, or nothing at all (hollow).

pub mod agent;
pub mod api;
pub mod events;
pub mod fault;
mod follow;
pub mod hollow;
pub mod lacks;
pub mod network;
pub mod plan;
pub mod process;
pub mod registration;
pub mod runtime;
pub mod seen;
pub mod server;
pub mod services;
pub mod shape;
pub mod status;
mod stock;
pub mod timers;
pub mod voices;
pub mod volumes;

#[cfg(test)]
mod plan_tests;

use crate::clock::Clock;
use registration::{Capacity, Isolation, NodeConfig, Role};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, OnceLock};
use stead::Cache;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use voices::Voices;

/// The names of the zones that nodes are spread over.
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];

/// The description of node number `index` of `total`.
pub fn describe(index: usize, total: usize, name: String, capacity: Capacity) -> NodeConfig {
    let role = match (index, total) {
        (_, 1) => Role::Only,
        (0, _) => Role::ControlPlane,
        _ => Role::Worker,
    };
    NodeConfig {
        name,
        role,
        zone: ZONES[index % ZONES.len()].to_owned(),
        address: loopback(index),
        port: None,
        capacity,
        pod_range: None,
        isolation: Isolation::default(),
    }
}

/// The address of node number `index`: the loopback network has room for all, and the first has the usual one.
pub fn loopback(index: usize) -> IpAddr {
    let number = u32::try_from(index).unwrap_or(0) % 0xff_fffe;
    IpAddr::V4(Ipv4Addr::from_bits(Ipv4Addr::LOCALHOST.to_bits() + number))
}

/// Runs hollow nodes until `stop`: one loop and one watch for all of them. The watch is that of the controllers where
/// their cache is `known`: a second copy of every pod would be a quarter of the memory that pods take.
pub async fn run_hollow(
    voices: Voices,
    clock: Arc<dyn Clock>,
    nodes: Vec<NodeConfig>,
    known: Option<Cache>,
    stop: CancellationToken,
) {
    let (sender, notices) = tokio::sync::mpsc::unbounded_channel();
    let runtime = Arc::new(hollow::Hollow::new(clock.clone(), sender));
    let events = events::Recorder::new(voices.clone(), events::Kinds::WarningsOnly);
    let agent = agent::Agent {
        voices,
        clock,
        runtime,
        nodes,
        known,
        notices,
        events,
    };
    agent.run(stop).await;
}

/// What nodes that run processes need from their surroundings.
pub struct ProcessNodes {
    pub voices: Voices,
    pub clock: Arc<dyn Clock>,
    pub nodes: Vec<NodeConfig>,
    /// Where pods, their logs and their records are kept.
    pub folder: std::path::PathBuf,
    /// Directories and files of the machine that no container finds in its root: the cluster's keys are there.
    pub hidden: Vec<std::path::PathBuf>,
    /// This binary, which must lead `run-container` to [`process::entry::main`].
    pub own: std::path::PathBuf,
    /// Which addresses pods get.
    pub range: network::range::Range,
    /// Filled with the pods' network, for others of this process who want to reach it.
    pub network: Arc<OnceLock<Arc<dyn network::Network>>>,
    /// Where the user's own images are looked up.
    pub images: process::images::Places,
    /// Where the agent's own server listens; without it there are no logs, exec or port-forward.
    pub serving: Option<server::Serving>,
}

/// Runs nodes whose containers are processes, until `stop`. Their pods go on running afterwards: the next call
/// with the same folder adopts them, and [`process::end_all`] ends them.
pub async fn run_processes(settings: ProcessNodes, stop: CancellationToken) -> std::io::Result<()> {
    let ProcessNodes {
        voices,
        clock,
        mut nodes,
        folder,
        hidden,
        own,
        range,
        network: shared,
        images,
        serving,
    } = settings;
    std::fs::create_dir_all(folder.join("pods"))?;
    let network = network::open(&own, &folder, range).await;
    // Whoever set it before keeps it: there is one network in a process.
    let _ = shared.set(network.clone());
    let cgroups = process::cgroups::Cgroups::find();
    let mut doors = Vec::new();
    for node in &mut nodes {
        node.pod_range = network.pod_range();
        node.isolation.ground = network.ground(process::users::standing());
        node.isolation.known = process::users::Known::here();
        node.isolation.unlimited = cgroups.unlimited();
        node.isolation.network = format!("{}{}", node.isolation.ground.describe(), network.note());
        node.isolation.limits = cgroups.describe().to_owned();
        if let Some(serving) = &serving {
            let first = serving.listener.local_addr()?;
            node.port = Some(first.port());
            if node.address != first.ip() {
                match TcpListener::bind((node.address, first.port())).await {
                    Ok(listener) => doors.push(listener),
                    // The machine has no such address, or the port is taken there: the nodes share one.
                    Err(_) => node.address = first.ip(),
                }
            }
        }
    }
    let room = services::pass::room();
    let hosts: Vec<(String, IpAddr)> = nodes.iter().map(|node| (node.name.clone(), node.address)).collect();
    let watches = follow::Watches::new(voices.proxy.clone());
    let followed = services::follow(&watches);
    let known_services = followed.store.clone();
    let proxy = services::Proxy {
        watches,
        services: followed,
        network: network.clone(),
        nodes: hosts.iter().map(|(_, address)| *address).collect(),
        room: room.clone(),
    };
    let proxy = tokio::spawn(services::run(proxy, stop.clone()));
    let (sender, notices) = tokio::sync::mpsc::unbounded_channel();
    let events = events::Recorder::new(voices.clone(), events::Kinds::All);
    let first = nodes.first();
    let runtime = process::Process::new(process::Settings {
        voices: voices.clone(),
        clock: clock.clone(),
        notices: sender,
        events: events.clone(),
        network: network.clone(),
        volumes: volumes::of_machine(voices.clone(), clock.clone()),
        catalogue: process::images::Catalogue::new(own, images),
        capacity: first.map_or_else(Capacity::hollow, |node| node.capacity.clone()),
        cgroups,
        hosts,
        services: known_services,
        room,
        folder,
        hidden,
    });
    if let Some(serving) = serving {
        for listener in doors {
            let (tls, guard) = (serving.tls.clone(), serving.guard.clone());
            let door = server::Serving { listener, tls, guard };
            tokio::spawn(server::serve(door, runtime.clone(), stop.clone()));
        }
        tokio::spawn(server::serve(serving, runtime.clone(), stop.clone()));
    }
    let sparing = tokio::spawn({
        let stop = stop.clone();
        let runtime = runtime.clone();
        async move { tokio::join!(network.keep_ready(&stop), runtime.keep_shims(&stop)) }
    });
    let looking = tokio::spawn({
        let runtime = runtime.clone();
        async move { runtime.watch_usage().await }
    });
    let agent = agent::Agent {
        voices,
        clock,
        runtime,
        nodes,
        known: None,
        notices,
        events,
    };
    agent.run(stop).await;
    looking.abort();
    sparing.await.map_err(std::io::Error::other)?;
    proxy.await.map_err(std::io::Error::other)
}
