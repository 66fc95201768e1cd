//! One pure builder for each kind of child.
//!
//! A builder says everything that Stead wants of the child and nothing else, so that what others set stays theirs.

pub mod autoscaler;
pub mod deployment;
pub mod disruption_budget;
pub mod files;
pub mod ingress;
pub mod monitor;
pub mod network_policy;
pub mod revision;
pub mod route;
pub mod service;
pub mod template;

use crate::names;
use kube::core::ObjectMeta;
use stead_apis::WebApp;
use stead_apis::webapp::container::{DEFAULT_PORT, Port, Protocol};

/// Name, namespace and labels of a child.
fn metadata(app: &WebApp, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: app.metadata.namespace.clone(),
        labels: Some(names::labels(app)),
        ..ObjectMeta::default()
    }
}

/// The ports of the application: at least one.
pub fn ports(app: &WebApp) -> Vec<Port> {
    if app.spec.ports.is_empty() {
        let name = "http".to_string();
        return vec![Port {
            name,
            container_port: DEFAULT_PORT,
            service_port: None,
            protocol: Protocol::TCP,
        }];
    }
    app.spec.ports.clone()
}

/// Where the application's own metrics are: a port of its container, and a path.
pub fn metrics(app: &WebApp) -> Option<(u16, String)> {
    let wanted = app.spec.monitoring.as_ref();
    let named = wanted.and_then(|monitoring| monitoring.port.as_deref());
    let port = ports(app)
        .into_iter()
        .find(|port| named.is_none_or(|name| port.name == name))?;
    let path = wanted.map_or_else(stead_apis::webapp::defaults::metrics_path, |monitoring| {
        monitoring.path.clone()
    });
    Some((u16::try_from(port.container_port).ok()?, path))
}

fn protocol(port: &Port) -> String {
    match port.protocol {
        Protocol::TCP => "TCP".to_string(),
        Protocol::UDP => "UDP".to_string(),
        Protocol::SCTP => "SCTP".to_string(),
    }
}
