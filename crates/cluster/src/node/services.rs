//! Services on a machine: a proxy for cluster addresses and node ports, and the cluster's DNS.
//!
//! Both read one table, which follows Services and EndpointSlices. The proxy is our own, because most machines let
//! no ordinary program write packet filters; it sends each connection to a ready endpoint, and to the next one if
//! that does not answer.

pub mod dns;
pub mod pass;
mod proxy;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use pass::Route;
pub(crate) use proxy::{Proxy, follow, run};

/// A namespaced name.
pub type Key = (String, String);

/// What the proxy and the DNS know.
#[derive(Clone, Debug, Default)]
pub struct Table {
    services: BTreeMap<Key, Arc<Service>>,
    /// By the Service's key, and the slice's name.
    slices: BTreeMap<Key, BTreeMap<String, Arc<EndpointSlice>>>,
    /// The Service that each slice was of when it was last seen: its label may change.
    of: BTreeMap<Key, Key>,
    /// Services of which something changed since somebody took them.
    changed: BTreeSet<Key>,
}

/// Where the proxy listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listen {
    /// On a Service's own address, where pods are.
    Cluster(Ipv4Addr, u16, Protocol),
    /// On a node's address.
    NodePort(IpAddr, u16, Protocol),
}

/// How the two ends of a port speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    Tcp,
    Udp,
}

impl Protocol {
    /// What a port's protocol is called in the API; nothing for what cannot be passed on.
    pub fn of(name: Option<&str>) -> Option<Protocol> {
        match name.unwrap_or("TCP") {
            "TCP" => Some(Protocol::Tcp),
            "UDP" => Some(Protocol::Udp),
            _ => None,
        }
    }
}

/// One ready endpoint of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: IpAddr,
    pub hostname: Option<String>,
}

impl Table {
    pub fn apply_service(&mut self, service: Arc<Service>) {
        if let Some(key) = key(&service.metadata) {
            self.changed.insert(key.clone());
            self.services.insert(key, service);
        }
    }

    pub fn apply_slice(&mut self, slice: Arc<EndpointSlice>) {
        self.remove_slice(&slice);
        let Some(own) = key(&slice.metadata) else { return };
        let labels = slice.metadata.labels.as_ref();
        let Some(service) = labels.and_then(|labels| labels.get("kubernetes.io/service-name")) else {
            return;
        };
        let service = (own.0.clone(), service.clone());
        self.changed.insert(service.clone());
        self.of.insert(own.clone(), service.clone());
        self.slices.entry(service).or_default().insert(own.1, slice);
    }

    pub fn remove_service(&mut self, service: &Service) {
        if let Some(key) = key(&service.metadata) {
            self.services.remove(&key);
            self.changed.insert(key);
        }
    }

    pub fn remove_slice(&mut self, slice: &EndpointSlice) {
        let Some(own) = key(&slice.metadata) else { return };
        let Some(service) = self.of.remove(&own) else { return };
        if let Some(slices) = self.slices.get_mut(&service) {
            slices.remove(&own.1);
            if slices.is_empty() {
                self.slices.remove(&service);
            }
        }
        self.changed.insert(service);
    }

    /// The Services of which something changed since this was last asked.
    pub fn take_changed(&mut self) -> BTreeSet<Key> {
        std::mem::take(&mut self.changed)
    }

    pub fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.services
            .get(&(namespace.to_owned(), name.to_owned()))
            .map(Arc::as_ref)
    }

    fn slices_of(&self, namespace: &str, service: &str) -> impl Iterator<Item = &EndpointSlice> {
        let slices = self.slices.get(&(namespace.to_owned(), service.to_owned()));
        slices.into_iter().flat_map(BTreeMap::values).map(Arc::as_ref)
    }

    /// The endpoints of a Service that may get traffic; for DNS of a headless one, all that it publishes.
    pub fn endpoints(&self, namespace: &str, service: &str) -> BTreeSet<Endpoint> {
        let unready = self
            .service(namespace, service)
            .and_then(|service| service.spec.as_ref()?.publish_not_ready_addresses)
            .unwrap_or(false);
        let mut found = BTreeSet::new();
        for endpoint in self
            .slices_of(namespace, service)
            .flat_map(|slice| slice.endpoints.iter().flatten())
        {
            let ready = endpoint
                .conditions
                .as_ref()
                .and_then(|conditions| conditions.ready)
                .unwrap_or(true);
            if !ready && !unready {
                continue;
            }
            for address in endpoint.addresses.iter().filter_map(|address| address.parse().ok()) {
                found.insert(Endpoint {
                    address,
                    hostname: endpoint.hostname.clone(),
                });
            }
        }
        found
    }

    /// Where one port of a Service leads.
    fn targets(&self, namespace: &str, service: &str, port: Option<&str>, protocol: Protocol) -> Vec<SocketAddr> {
        let mut targets = BTreeSet::new();
        for slice in self.slices_of(namespace, service) {
            let ports = slice.ports.iter().flatten();
            let number = ports
                .filter(|candidate| candidate.name.as_deref().unwrap_or_default() == port.unwrap_or_default())
                .filter(|candidate| Protocol::of(candidate.protocol.as_deref()) == Some(protocol))
                .find_map(|candidate| u16::try_from(candidate.port?).ok());
            let Some(number) = number else { continue };
            for endpoint in slice.endpoints.iter().flatten() {
                let ready = endpoint
                    .conditions
                    .as_ref()
                    .and_then(|conditions| conditions.ready)
                    .unwrap_or(true);
                if ready {
                    let addresses = endpoint.addresses.iter().filter_map(|address| address.parse().ok());
                    targets.extend(addresses.map(|address: IpAddr| SocketAddr::new(address, number)));
                }
            }
        }
        targets.into_iter().collect()
    }

    /// Every place where the proxy should listen for a Service, with node ports on these addresses.
    pub fn routes(&self, (namespace, name): &Key, nodes: &[IpAddr]) -> BTreeMap<Listen, Route> {
        let mut routes = BTreeMap::new();
        let Some(spec) = self.service(namespace, name).and_then(|service| service.spec.as_ref()) else {
            return routes;
        };
        let cluster: Option<Ipv4Addr> = spec.cluster_ip.as_deref().and_then(|address| address.parse().ok());
        for port in spec.ports.iter().flatten() {
            let Some(protocol) = Protocol::of(port.protocol.as_deref()) else {
                continue;
            };
            let route = Route {
                endpoints: self.targets(namespace, name, port.name.as_deref(), protocol),
                affinity: affinity(spec),
            };
            if let Some((address, number)) = cluster.zip(u16::try_from(port.port).ok()) {
                routes.insert(Listen::Cluster(address, number, protocol), route.clone());
            }
            let number = port.node_port.and_then(|number| u16::try_from(number).ok());
            if let Some(number) = number.filter(|number| *number > 0) {
                for node in nodes {
                    routes.insert(Listen::NodePort(*node, number, protocol), route.clone());
                }
            }
        }
        routes
    }
}

/// How long clients of a Service keep their endpoint; three hours where it does not say.
fn affinity(spec: &ServiceSpec) -> Option<Duration> {
    const USUAL: u64 = 10_800;
    if spec.session_affinity.as_deref() != Some("ClientIP") {
        return None;
    }
    let told = spec.session_affinity_config.as_ref();
    let seconds = told.and_then(|config| config.client_ip.as_ref()?.timeout_seconds);
    Some(Duration::from_secs(
        seconds.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(USUAL),
    ))
}

/// The key of an object that has a namespace and a name.
pub fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<Key> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

#[cfg(test)]
mod tests;
