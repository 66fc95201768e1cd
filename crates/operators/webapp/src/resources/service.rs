//! The Service: one address for all pods, stable and canary.

use super::{metadata, ports, protocol};
use crate::names;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_apis::WebApp;

/// The Service of an application.
pub fn build(app: &WebApp) -> Service {
    let ports = ports(app);
    let offered = ports.iter().enumerate().map(|(index, port)| ServicePort {
        name: Some(port.name.clone()),
        port: port.offered_as(index),
        target_port: Some(IntOrString::String(port.name.clone())),
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
