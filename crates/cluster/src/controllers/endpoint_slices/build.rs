//! The EndpointSlices and Endpoints that a Service and its pods make. Pure.

use super::arrange::{Arranged, arrange};
use crate::controllers::{ownership, pods};
use k8s_openapi::api::core::v1::{EndpointAddress, EndpointPort as OldPort, EndpointSubset, Endpoints};
use k8s_openapi::api::core::v1::{ObjectReference, Pod, Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointHints, EndpointPort, EndpointSlice};
use k8s_openapi::api::discovery::v1::{ForNode, ForZone};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::ObjectMeta;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Endpoints in one slice.
pub const LARGEST_SLICE: usize = 100;

/// The most addresses that an Endpoints object has, as in Kubernetes.
const MOST_ADDRESSES: usize = 1000;
/// Says of an Endpoints object that it does not have all addresses.
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";

/// A port as something to sort by: name, number, protocol, protocol of the application.
type PortKey = (Option<String>, Option<i32>, Option<String>, Option<String>);

/// The zone of a node, if it says one.
pub type ZoneOf<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Whether a Service chooses pods at all.
pub fn has_selector(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let external = spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName");
    !external
        && spec
            .and_then(|spec| spec.selector.as_ref())
            .is_some_and(|selector| !selector.is_empty())
}

/// Whether a Service chooses this pod.
pub fn selects(service: &Service, pod: &Pod) -> bool {
    let Some(selector) = service.spec.as_ref().and_then(|spec| spec.selector.as_ref()) else {
        return false;
    };
    let labels = pod.metadata.labels.as_ref();
    !selector.is_empty()
        && selector
            .iter()
            .all(|(key, value)| labels.and_then(|all| all.get(key)) == Some(value))
}

/// The slices: pods with the same ports together, so many at a time, and each in the slice where it was before.
pub fn slices(
    service: &Service,
    pods: &[Arc<Pod>],
    zone_of: ZoneOf<'_>,
    have: &[Arc<EndpointSlice>],
) -> Vec<EndpointSlice> {
    let mut groups: BTreeMap<Vec<PortKey>, Vec<Endpoint>> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| has_address(pod) && !pods::has_ended(pod)) {
        let ports = ports(service, pod)
            .into_iter()
            .map(|port| (port.name, port.port, port.protocol, port.app_protocol))
            .collect();
        groups.entry(ports).or_default().push(endpoint(service, pod, zone_of));
    }
    if groups.is_empty() {
        groups.insert(Vec::new(), Vec::new());
    }
    let mut made = Vec::new();
    for (ports, endpoints) in groups {
        let ports: Vec<EndpointPort> = ports
            .into_iter()
            .map(|(name, port, protocol, app_protocol)| EndpointPort {
                name: name.or(Some(String::new())),
                port,
                protocol,
                app_protocol,
            })
            .collect();
        let same_ports = |slice: &&EndpointSlice| slice.ports.as_deref().unwrap_or_default() == ports;
        let known: Vec<&EndpointSlice> = have.iter().map(AsRef::as_ref).filter(same_ports).collect();
        let mut arranged = arrange(endpoints, &known);
        if arranged.is_empty() {
            // A Service without pods has one slice, which says so.
            let name = known.first().and_then(|slice| slice.metadata.name.clone());
            arranged.push(Arranged::empty(name));
        }
        made.extend(arranged.into_iter().map(|slice| (slice, ports.clone())));
    }
    let taken: BTreeSet<String> = made.iter().filter_map(|(slice, _)| slice.name.clone()).collect();
    // A new slice takes the name of one that is not needed any more: that is a change, and no end and beginning.
    let spare = have.iter().filter_map(|slice| slice.metadata.name.clone());
    let fresh = (0..).map(|index| slice_name_of(service, index));
    let mut names = spare.chain(fresh).filter(|name| !taken.contains(name));
    let mut used = BTreeSet::new();
    let mut finish = |(slice, ports): (Arranged, Vec<EndpointPort>)| {
        let name = slice.name.or_else(|| names.find(|name| used.insert(name.clone())));
        EndpointSlice {
            metadata: slice_metadata(service, name),
            address_type: "IPv4".to_string(),
            endpoints: (!slice.endpoints.is_empty()).then_some(slice.endpoints),
            ports: Some(ports),
        }
    };
    made.into_iter().map(&mut finish).collect()
}

/// The older form of the same.
pub fn endpoints(service: &Service, pods: &[Arc<Pod>]) -> Endpoints {
    let publish = publishes_unready(service);
    let mut subsets: Vec<EndpointSubset> = Vec::new();
    // Who publishes pods that are not ready publishes those on their way out too.
    let told = |pod: &&Arc<Pod>| {
        has_address(pod)
            && if publish {
                !pods::has_ended(pod)
            } else {
                pods::is_active(pod)
            }
    };
    let mut told: Vec<&Arc<Pod>> = pods.iter().filter(told).collect();
    let truncated = told.len() > MOST_ADDRESSES;
    if truncated {
        // Those that serve are worth more than those that do not.
        told.sort_by_key(|pod| !pods::is_ready(pod));
        told.truncate(MOST_ADDRESSES);
        told.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    }
    for pod in told {
        let ports: Vec<OldPort> = ports(service, pod)
            .into_iter()
            .map(|port| OldPort {
                name: port.name.filter(|name| !name.is_empty()),
                port: port.port.unwrap_or(0),
                protocol: port.protocol,
                app_protocol: port.app_protocol,
            })
            .collect();
        let address = EndpointAddress {
            ip: address(pod).unwrap_or_default().to_string(),
            node_name: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()),
            target_ref: Some(reference(pod)),
            hostname: hostname(service, pod),
        };
        let position = subsets.iter().position(|subset| subset.ports.as_ref() == Some(&ports));
        let position = position.unwrap_or_else(|| {
            subsets.push(EndpointSubset {
                ports: Some(ports),
                ..EndpointSubset::default()
            });
            subsets.len() - 1
        });
        let subset = &mut subsets[position];
        let list = if publish || pods::is_ready(pod) {
            &mut subset.addresses
        } else {
            &mut subset.not_ready_addresses
        };
        list.get_or_insert_default().push(address);
    }
    let meta = &service.metadata;
    let mut labels = meta.labels.clone().unwrap_or_default();
    labels.insert(
        "endpoints.kubernetes.io/managed-by".to_string(),
        "endpoint-controller".to_string(),
    );
    if is_headless(service) {
        labels.insert("service.kubernetes.io/headless".to_string(), String::new());
    }
    Endpoints {
        metadata: ObjectMeta {
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: truncated.then(|| BTreeMap::from([(OVER_CAPACITY.to_string(), "truncated".to_string())])),
            ..ObjectMeta::default()
        },
        subsets: (!subsets.is_empty()).then_some(subsets),
    }
}

/// Whether a slice is already as wanted.
pub fn same_slice(have: &EndpointSlice, wanted: &EndpointSlice) -> bool {
    have.endpoints.as_deref().unwrap_or_default() == wanted.endpoints.as_deref().unwrap_or_default()
        && have.ports.as_deref().unwrap_or_default() == wanted.ports.as_deref().unwrap_or_default()
        && have.metadata.labels == wanted.metadata.labels
        && have.metadata.owner_references == wanted.metadata.owner_references
}

/// Whether endpoints are already as wanted.
pub fn same_endpoints(have: &Endpoints, wanted: &Endpoints) -> bool {
    have.subsets.as_deref().unwrap_or_default() == wanted.subsets.as_deref().unwrap_or_default()
        && have.metadata.labels == wanted.metadata.labels
        && over_capacity(have) == over_capacity(wanted)
}

fn over_capacity(endpoints: &Endpoints) -> Option<&String> {
    endpoints.metadata.annotations.as_ref()?.get(OVER_CAPACITY)
}

/// The name of a new slice is fixed by the Service and a number, so that a repeated create finds the first one's work.
fn slice_name_of(service: &Service, index: usize) -> String {
    let meta = &service.metadata;
    let uid = meta.uid.as_deref().unwrap_or_default();
    slice_name(meta.name.as_deref().unwrap_or_default(), uid, index)
}

fn slice_metadata(service: &Service, slice: Option<String>) -> ObjectMeta {
    let meta = &service.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let mut labels = meta.labels.clone().unwrap_or_default();
    labels.insert("kubernetes.io/service-name".to_string(), name);
    labels.insert(
        "endpointslice.kubernetes.io/managed-by".to_string(),
        "endpointslice-controller.k8s.io".to_string(),
    );
    if is_headless(service) {
        labels.insert("service.kubernetes.io/headless".to_string(), String::new());
    }
    ObjectMeta {
        name: slice,
        namespace: meta.namespace.clone(),
        labels: Some(labels),
        owner_references: Some(vec![ownership::controller_reference(service)]),
        ..ObjectMeta::default()
    }
}

/// A name that the owner of a slice and its position fix.
pub fn slice_name(service: &str, owner_uid: &str, index: usize) -> String {
    let hash = pods::hash(&format!("{owner_uid}/{index}"));
    format!("{service}-{}", hash.get(..5).unwrap_or(&hash))
}

fn endpoint(service: &Service, pod: &Pod, zone_of: ZoneOf<'_>) -> Endpoint {
    let terminating = pod.metadata.deletion_timestamp.is_some();
    let serving = pods::is_ready(pod);
    let ready = publishes_unready(service) || (serving && !terminating);
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let zone = node.as_deref().and_then(zone_of);
    Endpoint {
        hints: hints(service, zone.as_deref(), node.as_deref()).filter(|_| ready),
        zone,
        addresses: address(pod).map(str::to_string).into_iter().collect(),
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            serving: Some(serving),
            terminating: Some(terminating),
        }),
        node_name: node,
        target_ref: Some(reference(pod)),
        hostname: hostname(service, pod),
        ..Endpoint::default()
    }
}

/// Whom an endpoint is for, where the Service wants its clients to stay near.
fn hints(service: &Service, zone: Option<&str>, node: Option<&str>) -> Option<EndpointHints> {
    let wish = service.spec.as_ref()?.traffic_distribution.as_deref()?;
    if !matches!(wish, "PreferClose" | "PreferSameZone" | "PreferSameNode") {
        return None;
    }
    let for_zones = zone.map(|zone| vec![ForZone { name: zone.to_string() }]);
    let node = node.filter(|_| wish == "PreferSameNode");
    let for_nodes = node.map(|node| vec![ForNode { name: node.to_string() }]);
    let any = for_zones.is_some() || for_nodes.is_some();
    any.then_some(EndpointHints { for_nodes, for_zones })
}

fn ports(service: &Service, pod: &Pod) -> Vec<EndpointPort> {
    let ports = service.spec.iter().flat_map(|spec| spec.ports.iter().flatten());
    ports
        .filter_map(|port| {
            Some(EndpointPort {
                name: Some(port.name.clone().unwrap_or_default()),
                port: Some(target_port(port, pod)?),
                protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".to_string())),
                app_protocol: port.app_protocol.clone(),
            })
        })
        .collect()
}

/// The number of a port: given, or the number of the pod's port of that name.
fn target_port(port: &ServicePort, pod: &Pod) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(0)) => Some(port.port),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(name)) => {
            let spec = pod.spec.as_ref()?;
            let sidecars = spec
                .init_containers
                .iter()
                .flatten()
                .filter(|c| c.restart_policy.as_deref() == Some("Always"));
            let mut named = spec
                .containers
                .iter()
                .chain(sidecars)
                .flat_map(|c| c.ports.iter().flatten());
            named
                .find(|found| found.name.as_deref() == Some(name))
                .map(|found| found.container_port)
        }
    }
}

fn reference(pod: &Pod) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".to_string()),
        name: pod.metadata.name.clone(),
        namespace: pod.metadata.namespace.clone(),
        uid: pod.metadata.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Pods of a StatefulSet have names of their own behind its Service.
fn hostname(service: &Service, pod: &Pod) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let subdomain = spec.subdomain.as_deref()?;
    (service.metadata.name.as_deref() == Some(subdomain)).then(|| spec.hostname.clone())?
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status
        .as_ref()?
        .pod_ip
        .as_deref()
        .filter(|address| !address.is_empty())
}

fn has_address(pod: &Pod) -> bool {
    address(pod).is_some()
}

fn publishes_unready(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.publish_not_ready_addresses) == Some(true)
}

fn is_headless(service: &Service) -> bool {
    service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn more_addresses_than_endpoints_can_have_are_left_out_and_that_is_told() {
        let service: Service =
            serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})).unwrap();
        let pod = |index: usize| -> Arc<Pod> {
            let ready = if index < 100 { "False" } else { "True" };
            let status = json!({"podIP": format!("10.0.{}.{}", index / 250, index % 250), "phase": "Running",
                "conditions": [{"type": "Ready", "status": ready}]});
            let pod = json!({"metadata": {"name": format!("p{index:04}")}, "status": status});
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let size = |endpoints: &Endpoints| {
            let subset = &endpoints.subsets.as_ref().unwrap()[0];
            let count = |list: &Option<Vec<EndpointAddress>>| list.as_ref().map_or(0, Vec::len);
            (count(&subset.addresses), count(&subset.not_ready_addresses))
        };
        let pods: Vec<_> = (0..1050).map(pod).collect();
        let large = endpoints(&service, &pods);
        assert_eq!(size(&large), (950, 50), "those that serve are all there");
        assert_eq!(over_capacity(&large).map(String::as_str), Some("truncated"));
        let small = endpoints(&service, &pods[..1000]);
        assert_eq!((size(&small), over_capacity(&small)), ((900, 100), None));
        assert!(!same_endpoints(&large, &small));
    }
}
