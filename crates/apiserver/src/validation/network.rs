//! What may be wrong with endpoints, and with what routes or refuses traffic.

use super::check::{Errors, Field};
use stead_machinery::names;

pub const PROTOCOLS: &[&str] = &["SCTP", "TCP", "UDP"];

pub fn ingress_status(ingress: &Field<'_>, errors: &mut Errors) {
    load_balancer(&ingress.at("status").at("loadBalancer").at("ingress"), errors);
}

/// Where a balancer outside can be reached.
pub fn load_balancer(entries: &Field<'_>, errors: &mut Errors) {
    for entry in entries.items() {
        let (ip, host) = (entry.at("ip"), entry.at("hostname"));
        if !ip.is_empty() {
            errors.ip(&ip);
        }
        errors.named_if_set(&host, names::dns1123_subdomain);
        if host.text().parse::<std::net::IpAddr>().is_ok() {
            errors.invalid(&host, "must be a DNS name, not an IP address");
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
    errors.unique(&slice.at("ports"), "name");
    for port in slice.at("ports").items() {
        errors.named_if_set(&port.at("name"), names::dns1123_label);
        errors.one_of(&port.at("protocol"), PROTOCOLS);
        if port.at("appProtocol").is_set() {
            errors.label_name(&port.at("appProtocol"));
        }
    }
    for endpoint in slice.at("endpoints").items() {
        place(&endpoint, errors);
        let addresses = endpoint.at("addresses");
        if addresses.is_empty() {
            errors.required(&addresses, "must contain at least 1 address");
        }
        for address in addresses.items() {
            match kind.text() {
                "FQDN" => domain(&address, errors),
                kind if kind.starts_with("IP") => errors.ip(&address),
                _ => {}
            }
        }
    }
}

/// Where an endpoint is, and for whom it should be taken.
fn place(endpoint: &Field<'_>, errors: &mut Errors) {
    let (host, node) = (endpoint.at("hostname"), endpoint.at("nodeName"));
    if host.is_set() {
        errors.complaints(&host, names::dns1123_label(host.text()));
    }
    if node.is_set() {
        errors.complaints(&node, names::dns1123_subdomain(node.text()));
    }
    for zone in endpoint.at("hints").at("forZones").items() {
        errors.complaints(&zone.at("name"), names::label_value(zone.at("name").text()));
    }
    for node in endpoint.at("hints").at("forNodes").items() {
        for complaint in names::dns1123_subdomain(node.at("name").text()) {
            errors.invalid_value(&node.at("name"), node.at("name").text(), complaint);
        }
    }
}

/// A name with at least one dot.
fn domain(address: &Field<'_>, errors: &mut Errors) {
    let name = address.text();
    let whole = name.strip_suffix('.').unwrap_or(name);
    let complaints = names::dns1123_subdomain(whole);
    if name.is_empty() {
        errors.required(address, "");
    } else if !complaints.is_empty() {
        errors.invalid(address, complaints.join(","));
    } else if !whole.contains('.') {
        errors.invalid(
            address,
            "should be a domain with at least two segments separated by dots",
        );
    }
}

pub fn network_policy(policy: &Field<'_>, errors: &mut Errors) {
    let spec = policy.at("spec");
    errors.selector(&spec.at("podSelector"));
    for (rules, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.at(rules).items() {
            for port in rule.at("ports").items() {
                errors.one_of_if_set(&port.at("protocol"), &["TCP", "UDP", "SCTP"]);
                let (number, end) = (port.at("port"), port.at("endPort"));
                if number.is_set() {
                    errors.port(&number);
                }
                let detail = match (number.value.is_string(), number.number(), end.number()) {
                    (_, _, None) => continue,
                    (true, _, _) => "may not be specified when `port` is non-numeric",
                    (_, None, _) => "may not be specified when `port` is not specified",
                    (_, Some(first), Some(last)) if last < first => {
                        // Kubernetes shows the other end of the range.
                        errors.invalid_value(&end, first, "must be greater than or equal to `port`");
                        continue;
                    }
                    _ => continue,
                };
                errors.invalid(&end, detail);
            }
            for peer in rule.at(peers).items() {
                network_peer(&peer, errors);
            }
        }
    }
    let types = spec.at("policyTypes");
    if types.items().count() > 2 {
        errors.invalid(&types, "may not specify more than two policyTypes");
        return;
    }
    for kind in types.items() {
        errors.one_of(&kind, &["Ingress", "Egress"]);
    }
}

fn network_peer(peer: &Field<'_>, errors: &mut Errors) {
    let (block, pods, namespaces) = (peer.at("ipBlock"), peer.at("podSelector"), peer.at("namespaceSelector"));
    errors.selector(&pods);
    errors.selector(&namespaces);
    if block.is_set() {
        ip_block(&block, errors);
        if pods.is_set() || namespaces.is_set() {
            errors.forbidden(peer, "may not specify both ipBlock and another peer");
        }
    } else if !pods.is_set() && !namespaces.is_set() {
        errors.required(peer, "must specify a peer");
    }
}

fn ip_block(block: &Field<'_>, errors: &mut Errors) {
    let range = block.at("cidr");
    if range.is_empty() {
        errors.required(&range, "");
        return;
    }
    errors.cidr(&range);
    let Some(outer) = parse_range(range.text()) else { return };
    for except in block.at("except").items() {
        errors.cidr(&except);
        let Some(inner) = parse_range(except.text()) else {
            continue;
        };
        if !inner.is_strictly_in(&outer) {
            errors.invalid(&except, "must be a strict subset of `cidr`");
        }
    }
}

/// A range of addresses of one family.
struct Range {
    /// How many bits an address of the family has.
    bits: u32,
    first: u128,
    /// How many of them all addresses of the range have in common.
    length: u32,
}

impl Range {
    fn is_strictly_in(&self, outer: &Range) -> bool {
        // The widest range has no bit in common, and a shift by all of them is none that the language has.
        let prefix = |range: &Range| range.first.checked_shr(outer.bits - outer.length).unwrap_or(0);
        self.bits == outer.bits && self.length > outer.length && prefix(self) == prefix(outer)
    }
}

fn parse_range(text: &str) -> Option<Range> {
    let (ip, length) = text.split_once('/')?;
    let (bits, first) = match ip.parse().ok()? {
        std::net::IpAddr::V4(ip) => (32, u128::from(ip.to_bits())),
        std::net::IpAddr::V6(ip) => (128, ip.to_bits()),
    };
    let length = length.parse().ok().filter(|length| *length <= bits)?;
    Some(Range { bits, first, length })
}

pub fn ingress_class(class: &Field<'_>, errors: &mut Errors) {
    let spec = class.at("spec");
    let controller = spec.at("controller");
    match controller.is_empty() {
        true => errors.required(&controller, ""),
        false => errors.domain_path(&controller),
    }
    let parameters = spec.at("parameters");
    if !parameters.is_set() {
        return;
    }
    errors.named(&parameters.at("kind"), names::path_segment);
    errors.named(&parameters.at("name"), names::path_segment);
    let (scope, namespace) = (parameters.at("scope"), parameters.at("namespace"));
    match scope.text() {
        "Namespace" if !namespace.is_set() => {
            errors.required(&namespace, "`parameters.scope` is set to 'Namespace'");
        }
        "Namespace" => errors.complaints(&namespace, names::dns1123_label(namespace.text())),
        "Cluster" if namespace.is_set() => {
            errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
        }
        "Cluster" => {}
        _ => errors.unsupported(&scope, &["Cluster", "Namespace"]),
    }
}

pub fn ingress(ingress: &Field<'_>, errors: &mut Errors) {
    let spec = ingress.at("spec");
    if spec.at("rules").is_empty() && !spec.at("defaultBackend").is_set() {
        let detail = "either `defaultBackend` or `rules` must be specified";
        errors.invalid_value(&spec, serde_json::Value::Null, detail);
    }
    errors.named_if_set(&spec.at("ingressClassName"), names::dns1123_subdomain);
    for rule in spec.at("rules").items() {
        host(&rule.at("host"), errors);
        if rule.at("http").is_set() && rule.at("http").at("paths").is_empty() {
            errors.required(&rule.at("http").at("paths"), "");
        }
        for path in rule.at("http").at("paths").items() {
            let (kind, place) = (path.at("pathType"), path.at("path"));
            match kind.text() {
                "Exact" | "Prefix" => strict_path(&place, errors),
                "ImplementationSpecific" if !place.is_empty() && !place.text().starts_with('/') => {
                    errors.invalid(&place, "must be an absolute path");
                }
                "ImplementationSpecific" => {}
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
            match name.is_empty() {
                true => errors.complaints(&name, names::dns1123_subdomain("")),
                false => host(&name, errors),
            }
        }
        errors.named_if_set(&tls.at("secretName"), names::dns1123_subdomain);
    }
}

fn strict_path(place: &Field<'_>, errors: &mut Errors) {
    let path = place.text();
    if !path.starts_with('/') {
        errors.invalid_value(place, path, "must be an absolute path");
    }
    for part in ["//", "/./", "/../", "%2f", "%2F"] {
        if path.contains(part) {
            errors.invalid(place, format!("must not contain '{part}'"));
        }
    }
    for end in ["/..", "/."] {
        if path.ends_with(end) {
            errors.invalid(place, format!("cannot end with '{end}'"));
        }
    }
}

fn host(field: &Field<'_>, errors: &mut Errors) {
    if field.text().parse::<std::net::IpAddr>().is_ok() {
        errors.invalid(field, "must be a DNS name, not an IP address");
    }
    match field.text() {
        "" => {}
        name if name.contains('*') => errors.complaints(field, names::wildcard_dns1123_subdomain(name)),
        name => errors.complaints(field, names::dns1123_subdomain(name)),
    }
}

fn backend(backend: &Field<'_>, errors: &mut Errors) {
    let (service, resource) = (backend.at("service"), backend.at("resource"));
    match (service.is_set(), resource.is_set()) {
        (true, true) => errors.invalid_value(backend, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid_value(backend, "", "resource or service backend is required"),
        (false, true) => {
            errors.named_if_set(&resource.at("apiGroup"), names::dns1123_subdomain);
            errors.named(&resource.at("kind"), names::path_segment);
            errors.named(&resource.at("name"), names::path_segment);
        }
        (true, false) => {
            errors.named(&service.at("name"), names::dns1123_label);
            let port = service.at("port");
            match (port.at("number").number().unwrap_or_default(), port.at("name").text()) {
                (0, "") => errors.required(backend, "port name or number is required"),
                (0, name) => errors.complaints(&port.at("name"), names::port_name(name)),
                (_, "") => errors.port_number(&port.at("number")),
                _ => errors.invalid_value(backend, "", "cannot set both port name & port number"),
            }
        }
    }
}

pub fn service_range(range: &Field<'_>, errors: &mut Errors) {
    let ranges = range.at("spec").at("cidrs");
    if ranges.is_empty() {
        errors.required(&ranges, "at least one CIDR required");
    }
    for range in ranges.items() {
        errors.cidr(&range);
    }
}

pub fn address(address: &Field<'_>, errors: &mut Errors) {
    let parent = address.at("spec").at("parentRef");
    if !parent.is_set() {
        errors.required(&parent, "");
        return;
    }
    errors.named_if_set(&parent.at("group"), names::dns1123_subdomain);
    errors.named(&parent.at("resource"), names::path_segment);
    errors.named(&parent.at("name"), names::path_segment);
    errors.named_if_set(&parent.at("namespace"), names::path_segment);
}
