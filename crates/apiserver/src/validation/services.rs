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
    families(&spec, errors);
    let affinity = spec.at("sessionAffinityConfig").at("clientIP").at("timeoutSeconds");
    if spec.at("sessionAffinity").text() == "ClientIP"
        && affinity
            .number()
            .is_some_and(|seconds| !(1..=86_400).contains(&seconds))
    {
        errors.invalid(&affinity, "must be greater than 0 and less than 86400");
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

/// Addresses of one family, which is all that there is here.
fn families(spec: &Field<'_>, errors: &mut Errors) {
    let (policy, families) = (spec.at("ipFamilyPolicy"), spec.at("ipFamilies"));
    if !spec.at("clusterIPs").is_empty() && spec.at("clusterIP").is_empty() {
        let why = "must be empty when `clusterIP` is not specified";
        errors.invalid(&spec.at("clusterIPs"), why);
    }
    // Nothing is allocated for a service that has neither an address nor pods of its own, so it may name families that
    // the cluster lacks, and is given both when it names none.
    let unselected = spec.at("clusterIP").text() == "None" && spec.at("selector").is_empty();
    let single = match policy.text() {
        "" => !unselected,
        text => text == "SingleStack",
    };
    let several = single && families.items().count() == 2;
    if several {
        let why = "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified";
        errors.invalid_value(&policy, "SingleStack", why);
    }
    let judged = !unselected && !several;
    let mut seen = BTreeSet::new();
    for family in families.items() {
        errors.one_of(&family, &["IPv4", "IPv6"]);
        if !seen.insert(family.text()) {
            errors.duplicate(&family);
        } else if judged && family.text() == "IPv6" {
            errors.invalid(&family, "not configured on this cluster");
        }
    }
    errors.one_of_if_set(&policy, &["PreferDualStack", "RequireDualStack", "SingleStack"]);
    if judged && policy.text() == "RequireDualStack" {
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
