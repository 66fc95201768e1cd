//! `stead status`: an application and everything under it as a tree, with the reason for whatever is not ready.

use crate::commands::connection::{self, App};
use crate::failure::Hint;
use crate::terminal::say;
use anyhow::{Context, Result};
use clap::Args;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams};
use kube::{Client, ResourceExt};
use stead_apis::WebApp;
use stead_machinery::conditions::Status;

/// Show an application and all under it, with the reason for whatever is not ready
#[derive(Args)]
#[command(after_help = "Examples:
  stead status webapp shop
  stead status webapp shop -n production")]
pub struct Arguments {
    #[command(flatten)]
    app: App,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    connection::block_on(async {
        let (client, namespace) = arguments.app.client().await?;
        let app = arguments.app.get(&Api::namespaced(client.clone(), &namespace)).await?;
        let labels = stead_webapp::names::selector(&app);
        let labels: Vec<String> = labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let chosen = ListParams::default().labels(&labels.join(","));
        let tree = Tree {
            deployments: list(&client, &namespace, &chosen).await?,
            sets: list(&client, &namespace, &chosen).await?,
            pods: list(&client, &namespace, &chosen).await?,
            app,
        };
        say(&tree.lines().join("\n"))?;
        Ok(())
    })
}

async fn list<K>(client: &Client, namespace: &str, chosen: &ListParams) -> Result<Vec<K>>
where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let found = api
        .list(chosen)
        .await
        .with_context(|| format!("cannot list {}", K::plural(&())))
        .hint("the account of the kubeconfig must be able to list them")?;
    Ok(found.items)
}

/// An application and what is under it.
struct Tree {
    app: WebApp,
    deployments: Vec<Deployment>,
    sets: Vec<ReplicaSet>,
    pods: Vec<Pod>,
}

impl Tree {
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![describe_app(&self.app)];
        let uid = self.app.uid().unwrap_or_default();
        let deployments = owned(&self.deployments, &uid);
        for (index, deployment) in deployments.iter().enumerate() {
            let (branch, below) = arms(index, deployments.len());
            lines.push(format!("{branch}{}", describe_deployment(deployment)));
            let sets = owned(&self.sets, &deployment.uid().unwrap_or_default());
            let sets: Vec<_> = sets.into_iter().filter(|set| wanted(set) > 0).collect();
            for (index, set) in sets.iter().enumerate() {
                let (branch, under) = arms(index, sets.len());
                lines.push(format!("{below}{branch}{}", describe_set(set)));
                let pods = owned(&self.pods, &set.uid().unwrap_or_default());
                for (index, pod) in pods.iter().enumerate() {
                    let (branch, _) = arms(index, pods.len());
                    lines.push(format!("{below}{under}{branch}{}", describe_pod(pod)));
                }
            }
        }
        lines
    }
}

/// How a line and those under it are drawn.
fn arms(index: usize, count: usize) -> (&'static str, &'static str) {
    match index + 1 == count {
        true => ("└─ ", "   "),
        false => ("├─ ", "│  "),
    }
}

fn owned<'a, K: ResourceExt>(all: &'a [K], owner: &str) -> Vec<&'a K> {
    let of = |object: &&K| object.owner_references().iter().any(|reference| reference.uid == owner);
    let mut found: Vec<&K> = all.iter().filter(of).collect();
    found.sort_by_key(|object| object.name_any());
    found
}

fn wanted(set: &ReplicaSet) -> i32 {
    set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1)
}

fn describe_app(app: &WebApp) -> String {
    let status = app.status.clone().unwrap_or_default();
    let phase = status
        .phase
        .map_or_else(|| "not seen yet".to_owned(), |phase| format!("{phase:?}"));
    let mut text = format!("WebApp {}  {phase}  {}", app.name_any(), app.spec.image);
    if let Some(summary) = &status.summary {
        text.push_str(&format!("  {summary}"));
    }
    let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready");
    match ready.filter(|ready| ready.status != Status::True) {
        Some(ready) => text.push_str(&format!("  ({}: {})", ready.reason, ready.message)),
        None if status.phase.is_none() => text.push_str("  (does an operator run? `stead operator` runs one)"),
        None => {}
    }
    text
}

fn describe_deployment(deployment: &Deployment) -> String {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = status.available_replicas.unwrap_or_default();
    let mut text = format!("Deployment {}  {available}/{wanted}", deployment.name_any());
    let troubled = status.conditions.iter().flatten().find(|condition| {
        let bad = if condition.type_ == "ReplicaFailure" {
            "True"
        } else {
            "False"
        };
        condition.status == bad
    });
    if let Some(condition) = troubled {
        text.push_str(&reason(condition.reason.as_deref(), condition.message.as_deref()));
    }
    text
}

fn describe_set(set: &ReplicaSet) -> String {
    let ready = set
        .status
        .as_ref()
        .and_then(|status| status.ready_replicas)
        .unwrap_or_default();
    format!("ReplicaSet {}  {ready}/{}", set.name_any(), wanted(set))
}

fn describe_pod(pod: &Pod) -> String {
    let status = pod.status.clone().unwrap_or_default();
    let phase = match pod.metadata.deletion_timestamp {
        Some(_) => "Terminating".to_owned(),
        None => status.phase.clone().unwrap_or_else(|| "Unknown".to_owned()),
    };
    let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
    let mut text = format!("Pod {}  {phase}", pod.name_any());
    if let Some(node) = node {
        text.push_str(&format!("  on {node}"));
    }
    let waiting = status
        .container_statuses
        .iter()
        .flatten()
        .find_map(|container| container.state.clone()?.waiting);
    let unmet = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.status != "True");
    match (waiting, unmet) {
        (Some(waiting), _) => text.push_str(&reason(waiting.reason.as_deref(), waiting.message.as_deref())),
        (None, Some(unmet)) => {
            let named = unmet.reason.as_deref().or(Some(&unmet.type_));
            text.push_str(&reason(named, unmet.message.as_deref()));
        }
        (None, None) => {}
    }
    text
}

fn reason(reason: Option<&str>, message: Option<&str>) -> String {
    match (reason, message.filter(|text| !text.is_empty())) {
        (Some(reason), Some(message)) => format!("  ({reason}: {message})"),
        (Some(one), None) | (None, Some(one)) => format!("  ({one})"),
        (None, None) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_tree_shows_the_reason_for_what_is_not_ready() {
        let owned = |name: &str, owner: &str| {
            let reference = json!([{"apiVersion": "x/v1", "kind": "X", "name": owner, "uid": owner}]);
            json!({"name": name, "uid": name, "ownerReferences": reference})
        };
        let tree = Tree {
            app: read(
                json!({"metadata": {"name": "shop", "uid": "a"}, "spec": {"image": "nginx:1.25"},
                "status": {"phase": "WaitingForPods", "summary": "1/2", "conditions": [{"type": "Ready",
                    "status": "False", "reason": "WaitingForPods", "message": "1/2 pods are available",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}),
            ),
            deployments: vec![read(
                json!({"metadata": owned("d", "a"), "spec": {"replicas": 2, "selector": {},
                "template": {}}, "status": {"availableReplicas": 1}}),
            )],
            sets: vec![
                read(json!({"metadata": owned("old", "d"), "spec": {"replicas": 0, "selector": {}}})),
                read(
                    json!({"metadata": owned("s", "d"), "spec": {"replicas": 2, "selector": {}},
                    "status": {"replicas": 2, "readyReplicas": 1}}),
                ),
            ],
            pods: vec![
                read(json!({"metadata": owned("p1", "s"), "status": {"phase": "Running"}})),
                read(
                    json!({"metadata": owned("p2", "s"), "status": {"phase": "Pending", "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}]}}),
                ),
            ],
        };
        assert_eq!(
            tree.lines(),
            [
                "WebApp shop  WaitingForPods  nginx:1.25  1/2  (WaitingForPods: 1/2 pods are available)",
                "└─ Deployment d  1/2",
                "   └─ ReplicaSet s  1/2",
                "      ├─ Pod p1  Running",
                "      └─ Pod p2  Pending  (Unschedulable: no node)",
            ]
        );
    }
}
