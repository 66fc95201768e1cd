//! The NetworkPolicy: who may connect.

use super::metadata;
use crate::names;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_apis::WebApp;
use stead_apis::webapp::strategy::StrategyType;

/// The policy, where the spec limits who may connect: to the pods, and to those of another version beside them. With no
/// peer at all nobody may. The operator, a pod in `home`, may where the spec says to count a canary's requests.
pub fn build(app: &WebApp, beside: Option<&WebApp>, home: Option<&str>) -> Option<NetworkPolicy> {
    let wanted = app.spec.network.as_ref()?;
    let pods = wanted.from_pods.iter().map(|pods| NetworkPolicyPeer {
        pod_selector: Some(pods.clone()),
        ..NetworkPolicyPeer::default()
    });
    let namespaces = wanted.from_namespaces.iter().map(|namespaces| NetworkPolicyPeer {
        namespace_selector: Some(namespaces.clone()),
        ..NetworkPolicyPeer::default()
    });
    let peers: Vec<_> = pods.chain(namespaces).collect();
    let mut ports: Vec<NetworkPolicyPort> = Vec::new();
    for port in [Some(app), beside].into_iter().flatten().flat_map(super::ports) {
        let port = open(port.container_port, super::protocol(&port));
        if !ports.contains(&port) {
            ports.push(port);
        }
    }
    // An empty list of peers in a rule means everybody, so nobody is a policy without rules.
    let people = (!peers.is_empty()).then_some(NetworkPolicyIngressRule {
        from: Some(peers),
        ports: Some(ports),
    });
    let rules: Vec<_> = people
        .into_iter()
        .chain(home.and_then(|home| for_operator(app, beside, home)))
        .collect();
    Some(NetworkPolicy {
        metadata: metadata(app, names::child(app)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(names::selector(app)),
                match_expressions: None,
            }),
            policy_types: Some(vec!["Ingress".to_string()]),
            ingress: (!rules.is_empty()).then_some(rules),
            egress: None,
        }),
    })
}

fn open(port: i32, protocol: String) -> NetworkPolicyPort {
    NetworkPolicyPort {
        port: Some(IntOrString::Int(port)),
        protocol: Some(protocol),
        end_port: None,
    }
}

/// The way of the operator to the metrics of a canary's pods.
fn for_operator(app: &WebApp, beside: Option<&WebApp>, home: &str) -> Option<NetworkPolicyIngressRule> {
    let strategy = &app.spec.strategy;
    let canary = strategy
        .canary
        .as_ref()
        .filter(|_| strategy.kind == StrategyType::Canary);
    canary?.error_rate.as_ref()?;
    let mut ports: Vec<i32> = [Some(app), beside]
        .into_iter()
        .flatten()
        .filter_map(super::metrics)
        .map(|(port, _)| i32::from(port))
        .collect();
    ports.dedup();
    let labelled = |name: &str, value: &str| LabelSelector {
        match_labels: Some([(name.to_string(), value.to_string())].into()),
        match_expressions: None,
    };
    Some(NetworkPolicyIngressRule {
        from: Some(vec![NetworkPolicyPeer {
            namespace_selector: Some(labelled("kubernetes.io/metadata.name", home)),
            pod_selector: Some(labelled("app.kubernetes.io/name", names::MANAGER)),
            ip_block: None,
        }]),
        ports: Some(ports.into_iter().map(|port| open(port, "TCP".to_string())).collect()),
    })
}

/// Where the operator was when it made this policy, if it let itself in.
pub fn home_of(policy: &NetworkPolicy) -> Option<String> {
    let rules = policy.spec.iter().flat_map(|spec| spec.ingress.iter().flatten());
    let peers = rules.flat_map(|rule| rule.from.iter().flatten());
    let label = |selector: &LabelSelector, name: &str| selector.match_labels.as_ref()?.get(name).cloned();
    peers
        .filter(|peer| {
            let pods = peer.pod_selector.as_ref();
            pods.and_then(|pods| label(pods, "app.kubernetes.io/name")).as_deref() == Some(names::MANAGER)
        })
        .find_map(|peer| label(peer.namespace_selector.as_ref()?, "kubernetes.io/metadata.name"))
}
