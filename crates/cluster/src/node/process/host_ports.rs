//! Host ports: a port of a node that leads to one pod.
//!
//! A node's machine is this machine's loopback, where every node has an address of its own: two nodes may both have a
//! pod at port 80. What comes in is passed on as for Services. The proxies end with the agent, and are opened again for
//! pods that it adopts.

use super::Process;
use crate::node::services::Protocol;
use crate::node::services::pass::{self, Passing, Route};
use crate::node::shape::Shape;
use k8s_openapi::api::core::v1::Pod;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::net::{TcpListener, UdpSocket};
use tokio_util::task::AbortOnDropHandle;

/// One port of a node that a pod wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wanted {
    at: SocketAddr,
    protocol: Protocol,
    /// The port of the pod.
    to: u16,
}

impl Wanted {
    /// Whether a program that shares the machine's network is at this port itself. A proxy there would keep it from
    /// listening on all addresses.
    fn is_programs_own(&self) -> bool {
        self.at.port() == self.to
    }
}

/// The proxies of a pod's host ports; they end with it.
pub(super) type Open = Vec<AbortOnDropHandle<()>>;

impl Process {
    /// The address of the node that a pod is bound to.
    pub(super) fn host_of(&self, pod: &Pod) -> IpAddr {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        let found = self.hosts.iter().find(|(name, _)| Some(name.as_str()) == node);
        found
            .or(self.hosts.first())
            .map_or(IpAddr::from([127, 0, 0, 1]), |(_, address)| *address)
    }

    /// Opens the host ports of a pod, all of them or none.
    pub(super) async fn open_host_ports(&self, shape: &Shape<'_>, pod: IpAddr) -> io::Result<()> {
        let mut open = Open::new();
        let mut ports = wanted(shape, self.host_of(shape.pod))?;
        // Programs of pods that share the machine's network listen there themselves.
        if self.network.gateway().is_none() {
            ports.retain(|port| !port.is_programs_own());
        }
        for wanted in ports {
            let route = Route {
                endpoints: vec![SocketAddr::new(pod, wanted.to)],
                affinity: None,
            };
            let passing = Passing {
                network: self.network.clone(),
                room: self.room.clone(),
                targets: Arc::new(move || route.clone()),
            };
            let taken = |error: io::Error| {
                io::Error::new(
                    error.kind(),
                    format!("host port {} ({:?}) cannot be had: {error}", wanted.at, wanted.protocol),
                )
            };
            let task = match wanted.protocol {
                Protocol::Tcp => {
                    let listener = TcpListener::bind(wanted.at).await.map_err(taken)?;
                    tokio::spawn(pass::connections(listener, passing))
                }
                Protocol::Udp => {
                    let socket = UdpSocket::bind(wanted.at).await.map_err(taken)?;
                    tokio::spawn(pass::datagrams(socket, passing))
                }
            };
            open.push(AbortOnDropHandle::new(task));
        }
        if !open.is_empty() {
            self.host_ports.lock().insert(shape.uid().to_owned(), open);
        }
        Ok(())
    }
}

/// The host ports of a pod that has a network of its own; on the machine's network its programs listen themselves.
fn wanted(shape: &Shape<'_>, node: IpAddr) -> io::Result<Vec<Wanted>> {
    if shape.uses_host_network() {
        return Ok(Vec::new());
    }
    let containers = shape.containers().chain(shape.sidecars());
    let ports = containers.flat_map(|container| container.ports.iter().flatten());
    let mut all = Vec::new();
    for port in ports {
        let number = port.host_port.and_then(|number| u16::try_from(number).ok());
        let (Some(number), Ok(to)) = (number.filter(|number| *number > 0), u16::try_from(port.container_port)) else {
            continue;
        };
        let protocol = Protocol::of(port.protocol.as_deref()).ok_or_else(|| {
            let name = port.protocol.as_deref().unwrap_or_default();
            io::Error::other(format!("host port {number}: {name} is not passed on by this node"))
        })?;
        let asked = port.host_ip.as_deref().filter(|address| !address.is_empty());
        let address = match asked.map(|address| (address, address.parse::<IpAddr>())) {
            None => node,
            Some((_, Ok(address))) if address.is_unspecified() => node,
            Some((_, Ok(address))) if address.is_loopback() => address,
            Some((address, _)) => {
                return Err(io::Error::other(format!(
                    "host port {number}: {address} is no address of this node; it has {node} and loopback addresses"
                )));
            }
        };
        all.push(Wanted {
            at: SocketAddr::new(address, number),
            protocol,
            to,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn of(ports: Value, host_network: Value) -> io::Result<Vec<Wanted>> {
        let spec = json!({"containers": [{"name": "c", "ports": ports}], "hostNetwork": host_network});
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        wanted(&Shape::of(&pod), "127.0.0.2".parse().unwrap())
    }

    #[test]
    fn a_host_port_is_at_the_nodes_address_or_at_the_loopback_address_that_it_names() {
        let ports = json!([
            {"containerPort": 80, "hostPort": 8080},
            {"containerPort": 53, "hostPort": 5353, "protocol": "UDP", "hostIP": "127.0.0.1"},
            {"containerPort": 90, "hostPort": 9090, "hostIP": "0.0.0.0"},
            {"containerPort": 70},
        ]);
        let all = of(ports.clone(), Value::Null).unwrap();
        let seen: Vec<_> = all
            .iter()
            .map(|port| (port.at.to_string(), port.protocol, port.to))
            .collect();
        let expected = [
            ("127.0.0.2:8080".to_owned(), Protocol::Tcp, 80),
            ("127.0.0.1:5353".to_owned(), Protocol::Udp, 53),
            ("127.0.0.2:9090".to_owned(), Protocol::Tcp, 90),
        ];
        assert_eq!(seen, expected);
        assert_eq!(of(ports, json!(true)).unwrap(), [], "its programs listen themselves");
        let same = json!([{"containerPort": 80, "hostPort": 80}]);
        assert!(of(same, Value::Null).unwrap()[0].is_programs_own());
        assert!(!all[0].is_programs_own());
    }

    #[test]
    fn what_the_node_cannot_do_is_said() {
        let outside = json!([{"containerPort": 80, "hostPort": 80, "hostIP": "192.0.2.1"}]);
        let error = of(outside, Value::Null).unwrap_err().to_string();
        assert!(error.contains("192.0.2.1 is no address of this node"), "{error}");
        let sctp = json!([{"containerPort": 80, "hostPort": 80, "protocol": "SCTP"}]);
        assert!(of(sctp, Value::Null).unwrap_err().to_string().contains("SCTP"));
    }
}
