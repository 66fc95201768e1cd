//! The NetworkPolicy: who may connect.

use super::metadata;
use crate::names;
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use stead_apis::WebApp;

/// The policy, where the spec limits who may connect. With no peer at all nobody may.
pub fn build(app: &WebApp) -> Option<NetworkPolicy> {
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
    let ports = super::ports(app).into_iter().map(|port| NetworkPolicyPort {
        port: Some(IntOrString::Int(port.container_port)),
        protocol: Some(super::protocol(&port)),
        end_port: None,
    });
    // An empty list of peers in a rule means everybody, so nobody is a policy without rules.
    let rules = (!peers.is_empty()).then(|| {
        vec![NetworkPolicyIngressRule {
            from: Some(peers),
            ports: Some(ports.collect()),
        }]
    });
    Some(NetworkPolicy {
        metadata: metadata(app, names::child(app)),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(LabelSelector {
                match_labels: Some(names::selector(app)),
                match_expressions: None,
            }),
            policy_types: Some(vec!["Ingress".to_string()]),
            ingress: rules,
            egress: None,
        }),
    })
}
