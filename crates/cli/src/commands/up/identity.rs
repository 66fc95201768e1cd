//! Who the cluster's own parts are: each acts in a name of its own, with the rights that it declares and no others.
//!
//! Kubernetes' default roles are there already; what our controllers need beyond them (they patch where Kubernetes'
//! own update) is in one role for each, made from what the controller declares.

use crate::failure::Hint;
use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleRef, Subject};
use kube::api::{Api, ObjectMeta, Patch, PatchParams};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead::manager::Identities;
use stead::{Manager, Rule};
use stead_apiserver::auth::{AUTHENTICATED, MASTERS, NODES, User};
use stead_apiserver::gate::Gate;
use stead_cluster::controllers;
use stead_cluster::node::voices::Voices;
use tower::util::MapRequest;

/// Where the accounts of the controllers are.
const NAMESPACE: &str = "kube-system";
/// Who watches pods for all nodes of this process.
const NODE_READER: &str = "system:stead:nodes";
const RBAC: &str = "rbac.authorization.k8s.io";
/// Roles are written so many at once.
const AT_ONCE: usize = 8;

/// A client inside the process that is this user.
pub fn client(gate: &Gate, user: User) -> kube::Client {
    let service = MapRequest::new(gate.clone(), move |mut request: http::Request<kube::client::Body>| {
        request.extensions_mut().insert(user.clone());
        request
    });
    kube::Client::new(service, "default")
}

/// A client inside the process that is a user of these groups.
pub fn user(gate: &Gate, name: &str, groups: &[&str]) -> kube::Client {
    let mut all = groups.to_vec();
    all.push(AUTHENTICATED);
    client(gate, User::named(name, &all))
}

/// The clients of the controllers, each with a service account of its own.
pub fn of_controllers(gate: &Gate) -> Identities {
    let gate = gate.clone();
    Arc::new(move |name| {
        let account = controllers::account(name);
        Some(client(&gate, User::service_account(NAMESPACE, &account)))
    })
}

/// The clients of the nodes, each node in its own name. In one process they share a watch of pods, and a proxy.
pub fn of_nodes(gate: &Gate) -> Voices {
    let shared = [
        user(gate, NODE_READER, &[]),
        user(gate, "system:kube-proxy", &[]),
        user(gate, "system:stead:registrar", &[MASTERS]),
    ];
    let gate = gate.clone();
    Voices::new(shared, move |name| {
        user(&gate, &format!("system:node:{name}"), &[NODES])
    })
}

/// Lets the nodes of this process watch their pods and their objects together.
pub async fn install_node_reader(admin: &kube::Client) -> Result<()> {
    let rule = PolicyRule {
        api_groups: Some(vec![String::new()]),
        resources: Some(vec!["nodes".to_string(), "pods".to_string()]),
        verbs: ["get", "list", "watch"].map(str::to_string).to_vec(),
        ..PolicyRule::default()
    };
    let subject = Subject {
        kind: "User".to_string(),
        name: NODE_READER.to_string(),
        api_group: Some(RBAC.to_string()),
        namespace: None,
    };
    grant(admin, NODE_READER, vec![rule], subject).await
}

/// Gives each controller the rights that it declares.
pub async fn install_roles(admin: &kube::Client, manager: &Manager) -> Result<()> {
    let mut by_account: BTreeMap<String, Vec<Rule>> = BTreeMap::new();
    for (controller, rules) in manager.rbac_by_controller() {
        by_account
            .entry(controllers::account(&controller))
            .or_default()
            .extend(rules);
    }
    let installs = by_account
        .into_iter()
        .map(|(account, rules)| install(admin, account, Rule::merge(rules)));
    futures::stream::iter(installs)
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
}

async fn install(admin: &kube::Client, account: String, rules: Vec<Rule>) -> Result<()> {
    let name = format!("system:stead:controller:{account}");
    let subject = Subject {
        kind: "ServiceAccount".to_string(),
        name: account,
        namespace: Some(NAMESPACE.to_string()),
        api_group: None,
    };
    grant(admin, &name, rules.into_iter().map(PolicyRule::from).collect(), subject).await
}

/// Makes a role and binds it to one subject; both have the same name.
async fn grant(admin: &kube::Client, name: &str, rules: Vec<PolicyRule>, subject: Subject) -> Result<()> {
    let metadata = ObjectMeta {
        name: Some(name.to_string()),
        ..ObjectMeta::default()
    };
    let role = ClusterRole {
        metadata: metadata.clone(),
        rules: Some(rules),
        ..ClusterRole::default()
    };
    let binding = ClusterRoleBinding {
        metadata,
        role_ref: RoleRef {
            api_group: Some(RBAC.to_string()),
            kind: "ClusterRole".to_string(),
            name: name.to_string(),
        },
        subjects: Some(vec![subject]),
    };
    let how = PatchParams::apply("stead").force();
    let failed = || format!("cannot give a part of the cluster the role {name}");
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    roles
        .patch(name, &how, &Patch::Apply(&role))
        .await
        .with_context(failed)
        .hint("start the API server alone, with --parts api, and look at the role")?;
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    bindings
        .patch(name, &how, &Patch::Apply(&binding))
        .await
        .with_context(failed)
        .hint("start the API server alone, with --parts api, and look at the binding")?;
    Ok(())
}
