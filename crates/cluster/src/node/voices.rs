//! In whose name nodes speak to the API.
//!
//! Each node writes as itself, `system:node:NAME` of the group `system:nodes`, so that the API server can keep it
//! from everything that is another node's. One process may run many nodes; what it reads for all of them together it
//! reads in one name of its own, and what no node may say of itself (its role) somebody else says.

use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use std::sync::Arc;

/// The clients of the nodes of a process.
#[derive(Clone)]
pub struct Voices {
    /// Watches the pods and the objects of all nodes.
    pub reader: Client,
    /// Watches Services and their endpoints.
    pub proxy: Client,
    /// Says what a node is for: a node that could would draw others' pods to itself.
    pub registrar: Client,
    of_node: Arc<dyn Fn(&str) -> Client + Send + Sync>,
}

impl Voices {
    /// Clients of their own for the reader, the proxy and the registrar, and one for each node by its name.
    pub fn new(
        [reader, proxy, registrar]: [Client; 3],
        of_node: impl Fn(&str) -> Client + Send + Sync + 'static,
    ) -> Voices {
        Voices {
            reader,
            proxy,
            registrar,
            of_node: Arc::new(of_node),
        }
    }

    /// One client for everything, where nobody asks who speaks.
    pub fn one(client: Client) -> Voices {
        let clients = [client.clone(), client.clone(), client.clone()];
        Voices::new(clients, move |_| client.clone())
    }

    /// The client of a node.
    pub fn node(&self, name: &str) -> Client {
        (self.of_node)(name)
    }

    /// The client of the node that a pod is bound to.
    pub fn of(&self, pod: &Pod) -> Client {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
        self.node(node.unwrap_or_default())
    }
}
