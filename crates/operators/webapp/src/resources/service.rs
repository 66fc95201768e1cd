//! The Service: one address for all pods, stable and canary.

use super::{metadata, ports, protocol};
use crate::names;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_apis::WebApp;
use stead_apis::webapp::Port;

/// The Service of an application, for its pods and for those of another version beside them.
pub fn build(app: &WebApp, beside: Option<&WebApp>) -> Service {
    let ports = ports(app);
    let others = beside.map(super::ports);
    let offered = ports.iter().enumerate().map(|(index, port)| ServicePort {
        name: Some(port.name.clone()),
        port: port.offered_as(index),
        target_port: Some(target(port, others.as_deref().unwrap_or_default())),
        protocol: Some(protocol(port)),
        ..ServicePort::default()
    });
    Service {
        metadata: metadata(app, names::child(app)),
        spec: Some(ServiceSpec {
            selector: Some(names::selector(app)),
            ports: Some(offered.collect()),
            ..ServiceSpec::default()
        }),
        status: None,
    }
}

/// Where a port leads: by name, so that pods may listen elsewhere from version to version. Pods of another version that
/// know only the number are reached by that; by a name that they do not have they would not be reached at all.
fn target(port: &Port, others: &[Port]) -> IntOrString {
    let renamed = others.iter().all(|other| other.name != port.name)
        && others
            .iter()
            .any(|other| other.container_port == port.container_port && other.protocol == port.protocol);
    match renamed {
        true => IntOrString::Int(port.container_port),
        false => IntOrString::String(port.name.clone()),
    }
}
