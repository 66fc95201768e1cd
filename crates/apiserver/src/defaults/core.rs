//! Defaults of services, namespaces and the smaller kinds around them.

use super::{Defaulter, Fields, child, each, set, text};
use serde_json::{Value, json};

pub const TYPES: &[(&str, Defaulter)] = &[
    ("api.core.v1.Service", service),
    ("api.core.v1.Secret", secret),
    ("api.core.v1.Namespace", namespace),
    ("api.core.v1.NamespaceStatus", namespace_status),
    ("api.core.v1.NodeStatus", node_status),
    ("api.core.v1.LimitRangeItem", limit_range_item),
    ("api.core.v1.EndpointPort", endpoint_port),
    ("api.discovery.v1.EndpointPort", slice_port),
    ("api.networking.v1.NetworkPolicy", network_policy),
    ("api.networking.v1.NetworkPolicyPort", endpoint_port),
    (
        "api.networking.v1.IngressClassParametersReference",
        ingress_class_parameters,
    ),
    ("api.rbac.v1.RoleBinding", role_binding),
    ("api.rbac.v1.ClusterRoleBinding", role_binding),
    ("api.rbac.v1.Subject", subject),
    ("api.scheduling.v1.PriorityClass", priority_class),
    ("api.authentication.v1.TokenRequestSpec", token_request),
    ("api.resource.v1.ExactDeviceRequest", device_request),
    ("api.resource.v1.DeviceSubRequest", device_request),
    ("api.flowcontrol.v1.FlowSchemaSpec", flow_schema),
    ("api.flowcontrol.v1.LimitedPriorityLevelConfiguration", limited_priority),
    ("api.flowcontrol.v1.ExemptPriorityLevelConfiguration", exempt_priority),
    ("api.flowcontrol.v1.QueuingConfiguration", queuing),
];

/// Three hours.
const CLIENT_IP_SECONDS: i64 = 10_800;
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

fn service(service: &mut Fields) {
    let Some(spec) = child(service, "spec") else {
        return;
    };
    set(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            let timeout = spec
                .get("sessionAffinityConfig")
                .map(|c| &c["clientIP"]["timeoutSeconds"]);
            if timeout.is_none_or(Value::is_null) {
                let config = json!({"clientIP": {"timeoutSeconds": CLIENT_IP_SECONDS}});
                spec.insert("sessionAffinityConfig".into(), config);
            }
        }
        _ => {}
    }
    set(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        set(port, "protocol", "TCP");
        if port.get("targetPort") == Some(&json!(0)) {
            port.remove("targetPort");
        }
        let number = port.get("port").cloned().unwrap_or(json!(0));
        set(port, "targetPort", number);
    }
    let kind = text(spec, "type").to_string();
    let outside = ["NodePort", "LoadBalancer"].contains(&kind.as_str());
    let external_ips = spec
        .get("externalIPs")
        .and_then(Value::as_array)
        .is_some_and(|ips| !ips.is_empty());
    if outside || (kind == "ClusterIP" && external_ips) {
        set(spec, "externalTrafficPolicy", "Cluster");
    }
    if outside || kind == "ClusterIP" {
        set(spec, "internalTrafficPolicy", "Cluster");
    }
    if kind == "LoadBalancer" {
        set(spec, "allocateLoadBalancerNodePorts", true);
        let balancer = service.get_mut("status").and_then(|s| s.get_mut("loadBalancer"));
        if let Some(balancer) = balancer.and_then(Value::as_object_mut) {
            for ingress in each(balancer, "ingress") {
                if !super::is_unset(ingress, "ip") {
                    set(ingress, "ipMode", "VIP");
                }
            }
        }
    }
}

fn secret(secret: &mut Fields) {
    set(secret, "type", "Opaque");
}

fn namespace(namespace: &mut Fields) {
    let Some(metadata) = child(namespace, "metadata") else {
        return;
    };
    let name = text(metadata, "name").to_string();
    if !name.is_empty()
        && let Some(labels) = child(metadata, "labels")
    {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

fn namespace_status(status: &mut Fields) {
    set(status, "phase", "Active");
}

fn node_status(status: &mut Fields) {
    if let Some(capacity) = status.get("capacity").cloned() {
        set(status, "allocatable", capacity);
    }
}

fn limit_range_item(item: &mut Fields) {
    if text(item, "type") != "Container" {
        return;
    }
    fill(item, "default", "max");
    fill(item, "defaultRequest", "default");
    fill(item, "defaultRequest", "min");
}

/// Takes over what another field names and this one does not.
fn fill(item: &mut Fields, name: &str, source: &str) {
    let Some(Value::Object(from)) = item.get(source).cloned() else {
        return;
    };
    if let Some(target) = child(item, name) {
        for (key, value) in from {
            target.entry(key).or_insert(value);
        }
    }
}

fn endpoint_port(port: &mut Fields) {
    set(port, "protocol", "TCP");
}

fn slice_port(port: &mut Fields) {
    if !port.contains_key("name") {
        port.insert("name".into(), "".into());
    }
    set(port, "protocol", "TCP");
}

fn network_policy(policy: &mut Fields) {
    let Some(spec) = child(policy, "spec") else {
        return;
    };
    let egress = spec
        .get("egress")
        .and_then(Value::as_array)
        .is_some_and(|rules| !rules.is_empty());
    let types = if egress {
        json!(["Ingress", "Egress"])
    } else {
        json!(["Ingress"])
    };
    set(spec, "policyTypes", types);
}

fn ingress_class_parameters(parameters: &mut Fields) {
    set(parameters, "scope", "Cluster");
}

fn role_binding(binding: &mut Fields) {
    if let Some(reference) = child(binding, "roleRef")
        && super::is_unset(reference, "apiGroup")
    {
        reference.insert("apiGroup".into(), RBAC_GROUP.into());
    }
}

fn subject(subject: &mut Fields) {
    if ["User", "Group"].contains(&text(subject, "kind")) {
        set(subject, "apiGroup", RBAC_GROUP);
    }
}

fn priority_class(class: &mut Fields) {
    set(class, "preemptionPolicy", "PreemptLowerPriority");
}

fn token_request(spec: &mut Fields) {
    set(spec, "expirationSeconds", 3600);
}

fn device_request(request: &mut Fields) {
    set(request, "allocationMode", "ExactCount");
    if text(request, "allocationMode") == "ExactCount" {
        set(request, "count", 1);
    }
}

fn flow_schema(spec: &mut Fields) {
    if spec.get("matchingPrecedence") == Some(&json!(0)) {
        spec.remove("matchingPrecedence");
    }
    set(spec, "matchingPrecedence", 1000);
}

fn limited_priority(level: &mut Fields) {
    set(level, "nominalConcurrencyShares", 30);
    set(level, "lendablePercent", 0);
}

fn exempt_priority(level: &mut Fields) {
    set(level, "nominalConcurrencyShares", 0);
    set(level, "lendablePercent", 0);
}

fn queuing(configuration: &mut Fields) {
    for (name, value) in [("handSize", 8), ("queues", 64), ("queueLengthLimit", 50)] {
        if configuration.get(name) == Some(&json!(0)) {
            configuration.remove(name);
        }
        set(configuration, name, value);
    }
}
