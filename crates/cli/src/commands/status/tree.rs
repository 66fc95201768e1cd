//! The tree of an application, as a value that prints for people and is data for programs.

use crate::terminal::{Colour, Paint};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde::Serialize;
use stead_apis::WebApp;
use stead_machinery::conditions::Status;

/// An application and what is under it, as the cluster has them.
pub struct Tree {
    pub app: WebApp,
    pub deployments: Vec<Deployment>,
    pub sets: Vec<ReplicaSet>,
    pub pods: Vec<Pod>,
}

/// One object of the tree.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Item {
    kind: &'static str,
    name: String,
    ready: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    image: Option<String>,
    /// Those that serve, of those that are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<String>,
    /// Why it is not ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    children: Vec<Item>,
}

impl Item {
    fn new(kind: &'static str, name: String) -> Self {
        Item {
            kind,
            name,
            ready: true,
            phase: None,
            image: None,
            replicas: None,
            node: None,
            reason: None,
            children: Vec::new(),
        }
    }

    /// The tree for people.
    pub fn lines(&self, paint: Paint) -> Vec<String> {
        let mut lines = vec![self.line(paint)];
        self.below("", paint, &mut lines);
        lines
    }

    fn below(&self, indent: &str, paint: Paint, lines: &mut Vec<String>) {
        for (index, child) in self.children.iter().enumerate() {
            let (branch, under) = match index + 1 == self.children.len() {
                true => ("└─ ", "   "),
                false => ("├─ ", "│  "),
            };
            lines.push(format!("{indent}{branch}{}", child.line(paint)));
            child.below(&format!("{indent}{under}"), paint, lines);
        }
    }

    fn line(&self, paint: Paint) -> String {
        let mut text = format!("{} {}", self.kind, paint.strong(&self.name));
        let colour = if self.ready { Colour::Good } else { Colour::Bad };
        let node = self.node.as_ref().map(|node| format!("on {node}"));
        let parts = [
            self.phase.as_ref().map(|phase| paint.colour(colour, phase)),
            self.image.clone(),
            self.replicas.as_ref().map(|replicas| paint.colour(colour, replicas)),
            node,
            self.reason.as_ref().map(|reason| format!("({reason})")),
        ];
        for part in parts.into_iter().flatten() {
            text.push_str("  ");
            text.push_str(&part);
        }
        text
    }
}

impl Tree {
    /// The application with everything under it.
    pub fn root(&self) -> Item {
        let mut root = of_app(&self.app);
        let uid = self.app.uid().unwrap_or_default();
        for deployment in owned(&self.deployments, &uid) {
            let mut branch = of_deployment(deployment);
            for set in owned(&self.sets, &deployment.uid().unwrap_or_default()) {
                // Sets of earlier revisions have nothing to show.
                if wanted(set) > 0 {
                    let mut twig = of_set(set);
                    let pods = owned(&self.pods, &set.uid().unwrap_or_default());
                    twig.children = pods.into_iter().map(of_pod).collect();
                    branch.children.push(twig);
                }
            }
            root.children.push(branch);
        }
        root
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

fn of_app(app: &WebApp) -> Item {
    let status = app.status.clone().unwrap_or_default();
    let mut item = Item::new("WebApp", app.name_any());
    item.phase = Some(match status.phase {
        Some(phase) => format!("{phase:?}"),
        None => "not seen yet".to_owned(),
    });
    item.image = Some(app.spec.image.clone());
    item.replicas = status.summary.clone();
    let ready = status.conditions.iter().find(|condition| condition.r#type == "Ready");
    item.ready = ready.is_some_and(|ready| ready.status == Status::True);
    item.reason = match ready.filter(|ready| ready.status != Status::True) {
        Some(ready) => Some(format!("{}: {}", ready.reason, ready.message)),
        None if status.phase.is_none() => Some("does an operator run? `stead operator` runs one".to_owned()),
        None => None,
    };
    item
}

fn of_deployment(deployment: &Deployment) -> Item {
    let status = deployment.status.clone().unwrap_or_default();
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let available = status.available_replicas.unwrap_or_default();
    let mut item = Item::new("Deployment", deployment.name_any());
    item.ready = available >= wanted;
    item.replicas = Some(format!("{available}/{wanted}"));
    let troubled = status.conditions.iter().flatten().find(|condition| {
        let bad = match condition.type_.as_str() {
            "ReplicaFailure" => "True",
            _ => "False",
        };
        condition.status == bad
    });
    item.reason = troubled.and_then(|condition| words(condition.reason.as_deref(), condition.message.as_deref()));
    item
}

fn of_set(set: &ReplicaSet) -> Item {
    let ready = set.status.as_ref().and_then(|status| status.ready_replicas);
    let (ready, wanted) = (ready.unwrap_or_default(), wanted(set));
    let mut item = Item::new("ReplicaSet", set.name_any());
    item.ready = ready >= wanted;
    item.replicas = Some(format!("{ready}/{wanted}"));
    item
}

fn of_pod(pod: &Pod) -> Item {
    let status = pod.status.clone().unwrap_or_default();
    let mut item = Item::new("Pod", pod.name_any());
    item.phase = Some(match pod.metadata.deletion_timestamp {
        Some(_) => "Terminating".to_owned(),
        None => status.phase.clone().unwrap_or_else(|| "Unknown".to_owned()),
    });
    item.node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
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
    item.ready = waiting.is_none() && unmet.is_none() && pod.metadata.deletion_timestamp.is_none();
    item.reason = match (waiting, unmet) {
        (Some(waiting), _) => words(waiting.reason.as_deref(), waiting.message.as_deref()),
        (None, Some(unmet)) => {
            let named = unmet.reason.as_deref().or(Some(&unmet.type_));
            words(named, unmet.message.as_deref())
        }
        (None, None) => None,
    };
    item
}

fn words(reason: Option<&str>, message: Option<&str>) -> Option<String> {
    match (reason, message.filter(|text| !text.is_empty())) {
        (Some(reason), Some(message)) => Some(format!("{reason}: {message}")),
        (Some(one), None) | (None, Some(one)) => Some(one.to_owned()),
        (None, None) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
        serde_json::from_value(value).unwrap()
    }

    fn tree() -> Tree {
        let owned = |name: &str, owner: &str| {
            let reference = json!([{"apiVersion": "x/v1", "kind": "X", "name": owner, "uid": owner}]);
            json!({"name": name, "uid": name, "ownerReferences": reference})
        };
        Tree {
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
        }
    }

    #[test]
    fn the_tree_shows_the_reason_for_what_is_not_ready() {
        assert_eq!(
            tree().root().lines(Paint::Plain),
            [
                "WebApp shop  WaitingForPods  nginx:1.25  1/2  (WaitingForPods: 1/2 pods are available)",
                "└─ Deployment d  1/2",
                "   └─ ReplicaSet s  1/2",
                "      ├─ Pod p1  Running",
                "      └─ Pod p2  Pending  (Unschedulable: no node)",
            ]
        );
    }

    #[test]
    fn programs_get_the_same_tree_as_data() {
        let value = serde_json::to_value(tree().root()).unwrap();
        let pod = &value["children"][0]["children"][0]["children"][1];
        assert_eq!((&pod["kind"], &pod["ready"]), (&json!("Pod"), &json!(false)));
        assert_eq!(pod["reason"], "Unschedulable: no node");
    }

    #[test]
    fn colours_are_only_for_terminals() {
        let painted = tree().root().lines(Paint::Colours).join("\n");
        assert!(painted.contains("\x1b["));
        assert!(!tree().root().lines(Paint::Plain).join("\n").contains('\x1b'));
    }
}
