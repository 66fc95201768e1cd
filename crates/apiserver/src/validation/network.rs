//! What may be wrong with services, endpoints and what routes to them.

use super::check::{Errors, Field};
use std::collections::BTreeSet;
use stead_machinery::names;

const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

pub fn service(service: &Field<'_>, errors: &mut Errors) {
    let spec = service.at("spec");
    let (ports, kind) = (spec.at("ports"), spec.at("type"));
    let headless = spec.at("clusterIP").text() == "None";
    if ports.is_empty() && !headless && kind.text() != "ExternalName" {
        errors.required(&ports, "");
    }
    if kind.text() == "ExternalName" {
        match spec.at("externalName").text() {
            "" => errors.required(&spec.at("externalName"), ""),
            name => errors.complaints(
                &spec.at("externalName"),
                names::dns1123_subdomain(name.trim_end_matches('.')),
            ),
        }
    }
    service_ports(&ports, kind.text(), errors);
    errors.labels(&spec.at("selector"));
    errors.one_of(&spec.at("sessionAffinity"), &["ClientIP", "None"]);
    if kind.text() != "ExternalName" && !headless {
        for ip in spec.at("clusterIPs").items().filter(|ip| ip.text() != "None") {
            errors.ip(&ip);
        }
        // The older field stands for the first of the list until both are filled in.
        if spec.at("clusterIPs").is_empty() && !spec.at("clusterIP").is_empty() {
            errors.ip(&Field {
                value: spec.at("clusterIP").value,
                path: "spec.clusterIPs[0]".to_string(),
            });
        }
    }
    for ip in spec.at("externalIPs").items() {
        errors.ip(&ip);
    }
    errors.one_of(&kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    let policies = &["Cluster", "Local"];
    errors.one_of_if_set(&spec.at("externalTrafficPolicy"), policies);
    errors.one_of_if_set(&spec.at("internalTrafficPolicy"), policies);
}

fn service_ports(ports: &Field<'_>, kind: &str, errors: &mut Errors) {
    let several = ports.items().count() > 1;
    let (mut seen, mut used) = (BTreeSet::new(), BTreeSet::new());
    errors.unique(ports, "name");
    for port in ports.items() {
        let (name, number) = (port.at("name"), port.at("port"));
        match name.text() {
            "" if several => errors.required(&name, ""),
            "" => {}
            text => errors.complaints(&name, names::dns1123_label(text)),
        }
        errors.port_number(&number);
        errors.one_of(&port.at("protocol"), PROTOCOLS);
        errors.port(&port.at("targetPort"));
        let protocol = port.at("protocol").text();
        if !seen.insert((number.number(), protocol)) {
            errors.duplicate(&port);
        }
        let node = port.at("nodePort");
        if node.number().is_some_and(|n| n != 0) {
            if kind == "ClusterIP" {
                errors.forbidden(&node, "may not be used when `type` is 'ClusterIP'");
            } else if !used.insert((node.number(), protocol)) {
                errors.duplicate(&node);
            }
        }
    }
}

pub fn endpoints(endpoints: &Field<'_>, errors: &mut Errors) {
    for subset in endpoints.at("subsets").items() {
        let (ready, waiting) = (subset.at("addresses"), subset.at("notReadyAddresses"));
        if ready.is_empty() && waiting.is_empty() {
            errors.required(&subset, "must specify `addresses` or `notReadyAddresses`");
        }
        for address in ready.items().chain(waiting.items()) {
            errors.ip(&address.at("ip"));
            // The rule about special addresses repeats the complaint in shorter words.
            if address.at("ip").text().parse::<std::net::IpAddr>().is_err() {
                errors.invalid(&address.at("ip"), "must be a valid IP address");
            }
        }
        for port in subset.at("ports").items() {
            errors.port_number(&port.at("port"));
            errors.one_of(&port.at("protocol"), PROTOCOLS);
        }
    }
}

pub fn endpoint_slice(slice: &Field<'_>, errors: &mut Errors) {
    let kind = slice.at("addressType");
    if kind.is_empty() {
        errors.required(&kind, "");
    } else {
        errors.one_of(&kind, &["FQDN", "IPv4", "IPv6"]);
    }
    for port in slice.at("ports").items() {
        errors.named_if_set(&port.at("name"), names::dns1123_label);
        errors.one_of(&port.at("protocol"), PROTOCOLS);
    }
    for endpoint in slice.at("endpoints").items() {
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            errors.required(&addresses, "must contain at least 1 address");
        }
        for address in addresses.items().filter(|_| kind.text().starts_with("IP")) {
            errors.ip(&address);
        }
    }
}

pub fn network_policy(policy: &Field<'_>, errors: &mut Errors) {
    let spec = policy.at("spec");
    errors.selector(&spec.at("podSelector"));
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(rules).items() {
            for port in rule.at("ports").items() {
                errors.one_of_if_set(&port.at("protocol"), &["TCP", "UDP", "SCTP"]);
                if port.at("port").is_set() {
                    errors.port(&port.at("port"));
                }
            }
            for peer in rule.at(peers).items() {
                network_peer(&peer, errors);
            }
        }
    }
    for kind in spec.at("policyTypes").items() {
        errors.one_of(&kind, &["Ingress", "Egress"]);
    }
}

fn network_peer(peer: &Field<'_>, errors: &mut Errors) {
    let (block, pods, namespaces) = (peer.at("ipBlock"), peer.at("podSelector"), peer.at("namespaceSelector"));
    errors.selector(&pods);
    errors.selector(&namespaces);
    if block.is_set() {
        errors.cidr(&block.at("cidr"));
        if pods.is_set() || namespaces.is_set() {
            errors.forbidden(peer, "may not specify both ipBlock and another peer");
        }
    } else if !pods.is_set() && !namespaces.is_set() {
        errors.required(peer, "must specify a peer");
    }
}

pub fn ingress(ingress: &Field<'_>, errors: &mut Errors) {
    let spec = ingress.at("spec");
    if spec.at("rules").is_empty() && !spec.at("defaultBackend").is_set() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid_value(&spec, serde_json::Value::Null, detail);
    }
    for rule in spec.at("rules").items() {
        host(&rule.at("host"), errors);
        for path in rule.at("http").at("paths").items() {
            let (kind, place) = (path.at("pathType"), path.at("path"));
            match kind.text() {
                "Exact" | "Prefix" if !place.text().starts_with('/') => {
                    errors.invalid(&place, "must be an absolute path");
                }
                "Exact" | "Prefix" | "ImplementationSpecific" => {}
                "" => errors.required(&kind, "pathType must be specified"),
                _ => errors.unsupported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
            }
            if kind.is_set() {
                backend(&path.at("backend"), errors);
            }
        }
    }
    if spec.at("defaultBackend").is_set() {
        backend(&spec.at("defaultBackend"), errors);
    }
    for tls in spec.at("tls").items() {
        for name in tls.at("hosts").items() {
            host(&name, errors);
        }
    }
}

fn host(field: &Field<'_>, errors: &mut Errors) {
    match field.text() {
        "" => {}
        name if name.contains('*') => errors.complaints(field, names::wildcard_dns1123_subdomain(name)),
        name => errors.complaints(field, names::dns1123_subdomain(name)),
    }
}

fn backend(backend: &Field<'_>, errors: &mut Errors) {
    let (service, resource) = (backend.at("service"), backend.at("resource"));
    match (service.is_set(), resource.is_set()) {
        (true, true) => errors.invalid(backend, "cannot set both resource and service backends"),
        (true, false) => {
            errors.named(&service.at("name"), names::dns1035_label);
            let port = service.at("port");
            match (port.at("number").number().unwrap_or_default(), port.at("name").text()) {
                (0, "") => errors.required(backend, "port name or number is required"),
                (0, name) => errors.complaints(&port.at("name"), names::port_name(name)),
                _ => errors.port_number(&port.at("number")),
            }
        }
        _ => {}
    }
}
