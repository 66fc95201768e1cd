//! Services on a machine: a proxy for cluster addresses and node ports, and the cluster's DNS.
//!
//! Both read one table, which follows Services and EndpointSlices. The proxy is our own, because most machines let
//! no ordinary program write packet filters; it sends each connection to a ready endpoint, and to the next one if
//! that does not answer.

pub mod dns;
mod proxy;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

pub use proxy::run;

/// A namespaced name.
pub type Key = (String, String);

/// What the proxy and the DNS know.
#[derive(Clone, Debug, Default)]
pub struct Table {
    services: BTreeMap<Key, Service>,
    /// By the slice's own key.
    slices: BTreeMap<Key, EndpointSlice>,
}

/// One place where the proxy listens, and where it sends connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    pub listen: Listen,
    pub endpoints: Vec<SocketAddr>,
}

/// Where the proxy listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listen {
    /// On a Service's own address, where pods are.
    Cluster(Ipv4Addr, u16),
    /// On the machine's loopback address.
    NodePort(u16),
}

/// One ready endpoint of a Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    pub address: IpAddr,
    pub hostname: Option<String>,
}

impl Table {
    pub fn apply_service(&mut self, service: Service) {
        if let Some(key) = key(&service.metadata) {
            self.services.insert(key, service);
        }
    }

    pub fn apply_slice(&mut self, slice: EndpointSlice) {
        if let Some(key) = key(&slice.metadata) {
            self.slices.insert(key, slice);
        }
    }

    pub fn remove_service(&mut self, service: &Service) {
        self.services
            .retain(|known, _| Some(known) != key(&service.metadata).as_ref());
    }

    pub fn remove_slice(&mut self, slice: &EndpointSlice) {
        self.slices
            .retain(|known, _| Some(known) != key(&slice.metadata).as_ref());
    }

    pub fn keep_services(&mut self, listed: &BTreeSet<Key>) {
        self.services.retain(|key, _| listed.contains(key));
    }

    pub fn keep_slices(&mut self, listed: &BTreeSet<Key>) {
        self.slices.retain(|key, _| listed.contains(key));
    }

    pub fn service(&self, namespace: &str, name: &str) -> Option<&Service> {
        self.services.get(&(namespace.to_owned(), name.to_owned()))
    }

    fn slices_of<'a>(&'a self, namespace: &'a str, service: &'a str) -> impl Iterator<Item = &'a EndpointSlice> {
        self.slices
            .iter()
            .filter(move |((own, _), slice)| {
                let labels = slice.metadata.labels.as_ref();
                own == namespace
                    && labels
                        .and_then(|labels| labels.get("kubernetes.io/service-name"))
                        .is_some_and(|name| name == service)
            })
            .map(|(_, slice)| slice)
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

    /// Where connections to one port of a Service go.
    fn targets(&self, namespace: &str, service: &str, port: Option<&str>) -> Vec<SocketAddr> {
        let mut targets = BTreeSet::new();
        for slice in self.slices_of(namespace, service) {
            let ports = slice.ports.iter().flatten();
            let number = ports
                .filter(|candidate| candidate.name.as_deref().unwrap_or_default() == port.unwrap_or_default())
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

    /// Every place where the proxy should listen.
    pub fn routes(&self) -> BTreeMap<Listen, Vec<SocketAddr>> {
        let mut routes = BTreeMap::new();
        for ((namespace, name), service) in &self.services {
            let Some(spec) = &service.spec else { continue };
            let cluster: Option<Ipv4Addr> = spec.cluster_ip.as_deref().and_then(|address| address.parse().ok());
            for port in spec.ports.iter().flatten() {
                if port.protocol.as_deref().unwrap_or("TCP") != "TCP" {
                    continue;
                }
                let targets = self.targets(namespace, name, port.name.as_deref());
                if let Some((address, number)) = cluster.zip(u16::try_from(port.port).ok()) {
                    routes.insert(Listen::Cluster(address, number), targets.clone());
                }
                if let Some(number) = port
                    .node_port
                    .and_then(|number| u16::try_from(number).ok())
                    .filter(|number| *number > 0)
                {
                    routes.insert(Listen::NodePort(number), targets);
                }
            }
        }
        routes
    }
}

/// The key of an object that has a namespace and a name.
pub fn key(metadata: &k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta) -> Option<Key> {
    Some((metadata.namespace.clone()?, metadata.name.clone()?))
}

#[cfg(test)]
mod tests;
