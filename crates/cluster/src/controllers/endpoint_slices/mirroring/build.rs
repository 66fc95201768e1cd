//! The slices that an Endpoints object makes. Pure.

use crate::controllers::endpoint_slices::build::{LARGEST_SLICE, has_selector, slice_name};
use crate::controllers::ownership;
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort as OldPort, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};
use kube::core::ObjectMeta;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The most addresses of one subset that are mirrored, as in Kubernetes.
const MOST_OF_A_SUBSET: usize = 1000;

const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";

/// Annotations that say something of the Endpoints object alone.
const OF_THE_ORIGINAL: [&str; 2] = [
    "endpoints.kubernetes.io/last-change-trigger-time",
    "kubectl.kubernetes.io/last-applied-configuration",
];

/// Whether this Endpoints object is somebody's own, and not one that a controller made from pods.
pub fn is_mirrored(endpoints: &Endpoints, service: &Service) -> bool {
    let meta = &endpoints.metadata;
    let skipped = meta
        .labels
        .as_ref()
        .and_then(|labels| labels.get(SKIP))
        .is_some_and(|skip| skip == "true");
    let elects = meta
        .annotations
        .as_ref()
        .is_some_and(|annotations| annotations.contains_key(LEADER));
    meta.deletion_timestamp.is_none() && !skipped && !elects && !has_selector(service)
}

/// One slice for each family and set of ports, or several where there are too many addresses for one.
pub fn slices(endpoints: &Endpoints) -> Vec<EndpointSlice> {
    let mut groups: BTreeMap<(Vec<PortKey>, &str), Vec<Endpoint>> = BTreeMap::new();
    for subset in endpoints.subsets.iter().flatten() {
        let ports: Vec<PortKey> = subset.ports.iter().flatten().map(port_key).collect();
        let ready = subset.addresses.iter().flatten().map(|address| (address, true));
        let unready = subset
            .not_ready_addresses
            .iter()
            .flatten()
            .map(|address| (address, false));
        for (address, ready) in ready.chain(unready).take(MOST_OF_A_SUBSET) {
            let Some((family, mut endpoint)) = endpoint(address) else {
                continue;
            };
            endpoint.conditions = Some(EndpointConditions {
                ready: Some(ready),
                ..EndpointConditions::default()
            });
            groups.entry((ports.clone(), family)).or_default().push(endpoint);
        }
    }
    let mut made = Vec::new();
    for ((ports, family), found) in groups {
        for chunk in found.chunks(LARGEST_SLICE) {
            made.push(EndpointSlice {
                metadata: metadata(endpoints, made.len()),
                address_type: family.to_string(),
                endpoints: Some(chunk.to_vec()),
                ports: Some(ports.iter().cloned().map(port).collect()),
            });
        }
    }
    made
}

/// A port as something to sort by: name, number, protocol, protocol of the application.
type PortKey = (String, i32, String, Option<String>);

fn port_key(port: &OldPort) -> PortKey {
    (
        port.name.clone().unwrap_or_default(),
        port.port,
        port.protocol.clone().unwrap_or_else(|| "TCP".to_string()),
        port.app_protocol.clone(),
    )
}

fn port((name, port, protocol, app_protocol): PortKey) -> EndpointPort {
    EndpointPort {
        name: Some(name),
        port: Some(port),
        protocol: Some(protocol),
        app_protocol,
    }
}

/// The endpoint and its family; `None` for what is no address.
fn endpoint(address: &EndpointAddress) -> Option<(&'static str, Endpoint)> {
    let ip: IpAddr = address.ip.parse().ok()?;
    let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
    let endpoint = Endpoint {
        addresses: vec![ip.to_string()],
        node_name: address.node_name.clone(),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    };
    Some((family, endpoint))
}

fn metadata(endpoints: &Endpoints, index: usize) -> ObjectMeta {
    let meta = &endpoints.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let mut labels = meta.labels.clone().unwrap_or_default();
    labels.insert("kubernetes.io/service-name".to_string(), name.clone());
    labels.insert(
        "endpointslice.kubernetes.io/managed-by".to_string(),
        "endpointslicemirroring-controller.k8s.io".to_string(),
    );
    let mut annotations = meta.annotations.clone().unwrap_or_default();
    annotations.retain(|name, _| !OF_THE_ORIGINAL.contains(&name.as_str()));
    ObjectMeta {
        name: Some(slice_name(&name, meta.uid.as_deref().unwrap_or_default(), index)),
        namespace: meta.namespace.clone(),
        labels: Some(labels),
        annotations: (!annotations.is_empty()).then_some(annotations),
        owner_references: Some(vec![ownership::controller_reference(endpoints)]),
        ..ObjectMeta::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn endpoints(extra: serde_json::Value) -> Endpoints {
        let mut value = json!({
            "metadata": {"name": "db", "namespace": "n", "uid": "u"},
            "subsets": [
                {"addresses": [{"ip": "10.1.2.3"}, {"ip": "fd00::1"}], "ports": [{"port": 80}]},
                {"notReadyAddresses": [{"ip": "10.1.2.4"}], "ports": [{"port": 80}]},
            ],
        });
        if let (Some(value), Some(extra)) = (value["metadata"].as_object_mut(), extra.as_object()) {
            value.extend(extra.clone());
        }
        serde_json::from_value(value).unwrap()
    }

    fn service(selector: serde_json::Value) -> Service {
        serde_json::from_value(json!({"metadata": {"name": "db"}, "spec": {"selector": selector}})).unwrap()
    }

    #[test]
    fn each_family_has_a_slice_of_its_own_with_ready_and_unready_addresses() {
        let made = slices(&endpoints(json!({})));
        let told: Vec<_> = made
            .iter()
            .map(|slice| {
                let endpoints = slice.endpoints.iter().flatten();
                let addresses =
                    endpoints.map(|one| (one.addresses[0].as_str(), one.conditions.as_ref().unwrap().ready));
                (slice.address_type.as_str(), addresses.collect::<Vec<_>>())
            })
            .collect();
        let expected = vec![
            ("IPv4", vec![("10.1.2.3", Some(true)), ("10.1.2.4", Some(false))]),
            ("IPv6", vec![("fd00::1", Some(true))]),
        ];
        assert_eq!(told, expected);
        assert_ne!(made[0].metadata.name, made[1].metadata.name);
    }

    #[test]
    fn only_endpoints_that_somebody_wrote_by_hand_are_mirrored() {
        let by_hand = endpoints(json!({}));
        assert!(is_mirrored(&by_hand, &service(json!(null))));
        assert!(!is_mirrored(&by_hand, &service(json!({"app": "db"}))));
        let skipped = endpoints(json!({"labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}}));
        assert!(!is_mirrored(&skipped, &service(json!(null))));
        let lock = endpoints(json!({"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}}));
        assert!(!is_mirrored(&lock, &service(json!(null))));
    }
}
