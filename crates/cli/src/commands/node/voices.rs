//! In whose name a node that joins speaks: its own, wherever the kubeconfig's account may lend it.
//!
//! An account that may impersonate nodes (an administrator's) starts the agent, and the agent then acts as
//! `system:node:NAME`: the cluster's rules for nodes hold for it, and its audit log shows the node. Another account
//! (that of the node itself, for one) speaks for itself.

use crate::commands::connection;
use anyhow::Result;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::api::{Api, PostParams};
use kube::{Client, Config};
use std::collections::HashMap;
use stead_cluster::node::registration::NodeConfig;
use stead_cluster::node::voices::Voices;

/// The group of all nodes.
const NODES: &str = "system:nodes";
/// Who follows Services and endpoints.
const PROXY: &str = "system:kube-proxy";

/// The clients for nodes that join with this configuration.
pub async fn of(own: Client, config: &Config, nodes: &[NodeConfig]) -> Result<Voices> {
    let user = |name: &str| format!("system:node:{name}");
    let Some(first) = nodes.first() else {
        return Ok(Voices::one(own));
    };
    let names: Vec<String> = nodes.iter().map(|node| user(&node.name)).collect();
    if !may_be(&own, &names).await {
        return Ok(Voices::one(own));
    }
    let mut by_name = HashMap::new();
    for node in nodes {
        by_name.insert(node.name.clone(), act_as(config, &user(&node.name), Some(NODES))?);
    }
    let reader = match (nodes, by_name.get(&first.name)) {
        ([_], Some(only)) => only.clone(),
        // A node may only watch its own pods; several are watched together.
        _ => own.clone(),
    };
    let proxy = act_as(config, PROXY, None)?;
    Ok(Voices::new([reader, proxy, own.clone()], move |name| {
        by_name.get(name).unwrap_or(&own).clone()
    }))
}

/// Whether the account may act as all of these nodes and as their proxy. Where nobody can be asked, it may not.
async fn may_be(own: &Client, nodes: &[String]) -> bool {
    if !may_impersonate(own, "groups", Some(NODES)).await {
        return false;
    }
    if may_impersonate(own, "users", None).await {
        return true;
    }
    for user in nodes.iter().map(String::as_str).chain([PROXY]) {
        if !may_impersonate(own, "users", Some(user)).await {
            return false;
        }
    }
    true
}

/// Whether the account may impersonate one user or group, or all of them.
async fn may_impersonate(own: &Client, resource: &str, name: Option<&str>) -> bool {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                verb: Some("impersonate".to_owned()),
                resource: Some(resource.to_owned()),
                name: name.map(str::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(own.clone());
    let answer = reviews.create(&PostParams::default(), &review).await;
    answer.is_ok_and(|answer| answer.status.is_some_and(|status| status.allowed))
}

fn act_as(config: &Config, user: &str, group: Option<&str>) -> Result<Client> {
    let mut config = config.clone();
    config.auth_info.impersonate = Some(user.to_owned());
    config.auth_info.impersonate_groups = group.map(|group| vec![group.to_owned()]);
    connection::client(config)
}
