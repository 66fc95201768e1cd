//! What may be wrong with services.

use super::check::{Errors, Field};
use super::network::{PROTOCOLS, load_balancer};
use std::collections::BTreeSet;
use stead_machinery::names;

pub fn service(service: &Field<'_>, errors: &mut Errors) {
    let spec = service.at("spec");
    let (ports, kind) = (spec.at("ports"), spec.at("type"));
    let headless = spec.at("clusterIP").text() == "None";
    if ports.is_empty() && !headless && kind.text() != "ExternalName" {
        errors.required(&ports, "");
    }
    let first = Field {
        value: spec.at("clusterIP").value,
        path: "spec.clusterIPs[0]".to_string(),
    };
    match kind.text() {
        "ExternalName" => by_name(&spec, errors),
        kind @ ("LoadBalancer" | "NodePort") if headless => {
            errors.invalid(&first, format!("may not be set to 'None' for {kind} services"));
        }
        _ => {}
    }
    service_ports(&ports, kind.text(), errors);
    errors.labels(&spec.at("selector"));
    errors.one_of(&spec.at("sessionAffinity"), &["ClientIP", "None"]);
    for ip in spec.at("externalIPs").items() {
        errors.ip(&ip);
        special_address(&ip, errors);
    }
    errors.one_of(&kind, &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]);
    let policies = &["Cluster", "Local"];
    let outside = ["NodePort", "LoadBalancer"].contains(&kind.text())
        || (kind.text() == "ClusterIP" && !spec.at("externalIPs").is_empty());
    let external = spec.at("externalTrafficPolicy");
    match outside {
        true => errors.one_of_if_set(&external, policies),
        false if !external.is_empty() => {
            errors.invalid(&external, "may only be set for externally-accessible services");
        }
        false => {}
    }
    errors.one_of_if_set(&spec.at("internalTrafficPolicy"), policies);
    errors.one_of_if_set(
        &spec.at("trafficDistribution"),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
    balanced(&spec, errors);
    let affinity = spec.at("sessionAffinityConfig").at("clientIP").at("timeoutSeconds");
    if spec.at("sessionAffinity").text() == "ClientIP"
        && affinity
            .number()
            .is_some_and(|seconds| !(1..=86_400).contains(&seconds))
    {
        errors.invalid(&affinity, "must be greater than 0 and less than 86400");
    }
    let config = spec.at("sessionAffinityConfig");
    if spec.at("sessionAffinity").text() == "None" && config.is_set() {
        errors.forbidden(&config, "must not be set when session affinity is None");
    }
}

/// A name elsewhere, which has no address here.
fn by_name(spec: &Field<'_>, errors: &mut Errors) {
    const WHY: &str = "may not be set for ExternalName services";
    if !spec.at("clusterIPs").is_empty() || !spec.at("clusterIP").is_empty() {
        errors.forbidden(&spec.at("clusterIPs"), WHY);
    }
    if !spec.at("ipFamilies").is_empty() {
        errors.forbidden(&spec.at("ipFamilies"), WHY);
    }
    if spec.at("ipFamilyPolicy").is_set() {
        errors.forbidden(&spec.at("ipFamilyPolicy"), WHY);
    }
    let name = spec.at("externalName");
    match name.text().strip_suffix('.').unwrap_or(name.text()) {
        "" => errors.required(&name, ""),
        text => {
            for complaint in names::dns1123_subdomain(text) {
                errors.invalid_value(&name, text, complaint);
            }
        }
    }
}

/// What only a service with a load balancer has.
fn balanced(spec: &Field<'_>, errors: &mut Errors) {
    const WHY: &str = "may only be used when `type` is 'LoadBalancer'";
    let balanced = spec.at("type").text() == "LoadBalancer";
    let (nodes, class) = (spec.at("allocateLoadBalancerNodePorts"), spec.at("loadBalancerClass"));
    for field in [&nodes, &class] {
        if field.is_set() && !balanced {
            errors.forbidden(field, WHY);
        }
    }
    if balanced && class.is_set() {
        errors.label_name(&class);
    }
    let ranges = Field {
        value: spec.at("loadBalancerSourceRanges").value,
        path: spec.at("LoadBalancerSourceRanges").path,
    };
    if !ranges.is_empty() && !balanced {
        errors.forbidden(&ranges, WHY);
    }
    for range in ranges.items() {
        // They were the words of an annotation once, where space between them did no harm.
        let trimmed = serde_json::Value::from(range.text().trim());
        errors.cidr(&Field {
            value: &trimmed,
            path: range.path,
        });
    }
    let check = spec.at("healthCheckNodePort");
    let local = spec.at("externalTrafficPolicy").text() == "Local";
    if check.number().is_some_and(|port| port != 0) && !(balanced && local) {
        let why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        errors.invalid(&check, why);
    }
}

/// What an update or a new service says of its addresses. Kubernetes gives addresses before it looks at anything else,
/// so where these are wrong nothing else is told.
pub fn addresses(service: &Field<'_>, old: Option<&Field<'_>>, errors: &mut Errors) {
    let spec = service.at("spec");
    if spec.at("type").text() == "ExternalName" {
        return;
    }
    families(&spec, errors);
    if !errors.0.is_empty() {
        return;
    }
    // One that would take a second family if there were one is left alone while it asks for nothing else.
    let settled = old.map(|old| old.at("spec")).is_some_and(|old| {
        let same = |field: &str| spec.at(field).value == old.at(field).value;
        ["type", "clusterIPs", "ipFamilies", "ipFamilyPolicy"]
            .into_iter()
            .all(same)
    });
    if !settled || spec.at("ipFamilyPolicy").text() != "PreferDualStack" {
        configured(&spec, errors);
    }
}

fn families(spec: &Field<'_>, errors: &mut Errors) {
    let (addresses, families) = (spec.at("clusterIPs"), spec.at("ipFamilies"));
    if !addresses.is_empty() && spec.at("clusterIP").is_empty() {
        errors.invalid(&addresses, "must be empty when `clusterIP` is not specified");
    }
    let (single, mut all) = (spec.at("clusterIP"), addresses.items());
    let first = all.next();
    if !single.is_empty() && first.as_ref().is_some_and(|first| first.text() != single.text()) {
        errors.invalid(&addresses, "first value must match `clusterIP`");
    }
    let mut seen = BTreeSet::new();
    for family in families.items() {
        errors.one_of(&family, &["IPv4", "IPv6"]);
        if !seen.insert(family.text()) {
            errors.duplicate(&family);
        }
    }
    let policies = &["PreferDualStack", "RequireDualStack", "SingleStack"];
    errors.one_of_if_set(&spec.at("ipFamilyPolicy"), policies);
    let count = addresses.items().count();
    let found = errors.0.len();
    if first.is_some_and(|first| first.text() == "None") {
        if count > 1 {
            errors.invalid(&addresses, "'None' must be the first and only value");
        }
        return;
    }
    for address in addresses.items() {
        errors.ip(&address);
    }
    if count > 2 {
        errors.invalid(&addresses, "may only hold up to 2 values");
    }
    if errors.0.len() > found {
        return;
    }
    let (older, newer): (Vec<_>, Vec<_>) = addresses.items().partition(|address| !address.text().contains(':'));
    if older.len() > 1 || newer.len() > 1 {
        errors.invalid(&addresses, "may specify no more than one IP for each IP family");
    }
    for (at, (address, family)) in addresses.items().zip(families.items()).enumerate() {
        let sixth = address.text().contains(':');
        let wanted = match family.text() {
            "IPv4" if sixth => "an IPv4",
            "IPv6" if !sixth => "an IPv6",
            _ => continue,
        };
        let why = format!("expected {wanted} value as indicated by `ipFamilies[{at}]`");
        errors.invalid(&address, why);
    }
}

/// The families that a service asks for must be those of the cluster, which has one.
fn configured(spec: &Field<'_>, errors: &mut Errors) {
    let (policy, families) = (spec.at("ipFamilyPolicy"), spec.at("ipFamilies"));
    // Nothing is allocated for a service that has neither an address nor pods of its own, so it may name families that
    // the cluster lacks, and is given both when it names none.
    let unselected = spec.at("clusterIP").text() == "None" && spec.at("selector").is_empty();
    let single = match policy.text() {
        "" => !unselected,
        text => text == "SingleStack",
    };
    let found = errors.0.len();
    for (list, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if single && spec.at(list).items().count() == 2 {
            let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid_value(&policy, "SingleStack", why);
        }
    }
    let addresses = spec.at("clusterIPs");
    for address in addresses.items().skip(families.items().count()) {
        if address.text().contains(':') {
            let whole = Field {
                value: addresses.value,
                path: address.path,
            };
            errors.invalid(&whole, "IPv6 is not configured on this cluster");
        }
    }
    if errors.0.len() > found {
        return;
    }
    if unselected {
        return;
    }
    for family in families.items().filter(|family| family.text() == "IPv6") {
        errors.invalid(&family, "not configured on this cluster");
    }
    if policy.text() == "RequireDualStack" {
        errors.invalid(&policy, "this cluster is not configured for dual-stack services");
    }
}

pub fn service_status(service: &Field<'_>, errors: &mut Errors) {
    let ingress = service.at("status").at("loadBalancer").at("ingress");
    if service.at("spec").at("type").text() != "LoadBalancer" {
        if !ingress.is_empty() {
            errors.forbidden(&ingress, "may only be used when `spec.type` is 'LoadBalancer'");
        }
        return;
    }
    load_balancer(&ingress, errors);
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
        let application = port.at("appProtocol");
        if application.is_set() {
            errors.complaints(&application, names::qualified_name(application.text()));
        }
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

/// What an update of a service may not change.
pub fn change(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let allocated = |spec: &Field<'_>| spec.at("type").text() != "ExternalName";
    let (ips, before) = (new.at("clusterIPs"), old.at("clusterIPs"));
    let set = |field: &Field<'_>| field.value[0].as_str().is_some_and(|ip| !ip.is_empty());
    if allocated(new) && allocated(old) && set(&before) && ips.value[0] != before.value[0] {
        let first = Field {
            value: ips.value,
            path: format!("{}[0]", ips.path),
        };
        errors.invalid(&first, "may not change once set");
    }
    let (families, known) = (new.at("ipFamilies"), old.at("ipFamilies"));
    let fewer = !families.is_empty() && families.items().count() < known.items().count();
    if allocated(new) && fewer && new.at("ipFamilyPolicy").text() != "SingleStack" {
        errors.invalid(
            &new.at("ipFamilyPolicy"),
            "must be 'SingleStack' to release the secondary IP family",
        );
    }
    let balanced = |spec: &Field<'_>| spec.at("type").text() == "LoadBalancer";
    if balanced(new) && balanced(old) {
        let class = new.at("loadBalancerClass");
        if class.value != old.at("loadBalancerClass").value {
            errors.invalid(&class, "may not change once set");
        }
        let checked = |spec: &Field<'_>| spec.at("externalTrafficPolicy").text() == "Local";
        let port = new.at("healthCheckNodePort");
        if checked(new) && checked(old) && port.number() != old.at("healthCheckNodePort").number() {
            errors.forbidden(&port, "field is immutable");
        }
    }
}

/// Addresses that nothing outside the machine has. Endpoints may have them here: a cluster of one machine runs on
/// its loopback.
fn special_address(address: &Field<'_>, errors: &mut Errors) {
    let Ok(ip) = address.text().parse::<std::net::IpAddr>() else {
        return;
    };
    let local = match ip {
        std::net::IpAddr::V4(ip) => ip.is_link_local(),
        std::net::IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    if ip.is_unspecified() {
        errors.invalid(address, format!("may not be unspecified ({ip})"));
    } else if ip.is_loopback() {
        errors.invalid(address, "may not be in the loopback range (127.0.0.0/8, ::1/128)");
    } else if local {
        errors.invalid(
            address,
            "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        );
    }
}
