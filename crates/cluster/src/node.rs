//! The node agent: registers a node, renews its lease, and drives the pods that are bound to it.
//!
//! It is an ordinary client of the API, of the embedded server or of any other Kubernetes. What a pod needs next
//! is decided by a pure function (`plan`); a runtime carries it out: real processes, or nothing at all (hollow).

pub mod agent;
pub mod api;
pub mod events;
pub mod fault;
pub mod hollow;
pub mod plan;
pub mod registration;
pub mod runtime;
pub mod seen;
pub mod shape;
pub mod status;
pub mod timers;

#[cfg(test)]
mod plan_tests;

use crate::clock::Clock;
use registration::{Capacity, Isolation, NodeConfig, Role};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

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
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        port: None,
        capacity,
        isolation: Isolation::default(),
    }
}

/// Runs hollow nodes until `stop`: one loop and one watch for all of them.
pub async fn run_hollow(client: kube::Client, clock: Arc<dyn Clock>, nodes: Vec<NodeConfig>, stop: CancellationToken) {
    let (sender, notices) = tokio::sync::mpsc::unbounded_channel();
    let runtime = Arc::new(hollow::Hollow::new(clock.clone(), sender));
    let events = events::Recorder::new(client.clone(), events::Kinds::WarningsOnly);
    let agent = agent::Agent {
        client,
        clock,
        runtime,
        nodes,
        notices,
        events,
    };
    agent.run(stop).await;
}
