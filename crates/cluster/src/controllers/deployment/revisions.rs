//! The ReplicaSets behind a Deployment: which is the new one, how they are named and numbered, which are too old.

use super::rolling;
use super::{Sets, status};
use crate::controllers::{ownership, pods};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, ReplicaSetSpec};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use kube::core::ObjectMeta;
use serde_json::json;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;
use stead::{Context, Error, Key, Severity};

const HASH_LABEL: &str = "pod-template-hash";
pub const REVISION: &str = "deployment.kubernetes.io/revision";
/// The numbers that a ReplicaSet had before it was gone back to.
const REVISION_HISTORY: &str = "deployment.kubernetes.io/revision-history";
const DESIRED: &str = "deployment.kubernetes.io/desired-replicas";
const MAX: &str = "deployment.kubernetes.io/max-replicas";
/// Annotations that speak of the object itself and are not handed down.
const NOT_HANDED_DOWN: &[&str] = &[
    "kubectl.kubernetes.io/last-applied-configuration",
    REVISION,
    REVISION_HISTORY,
    DESIRED,
    MAX,
];

/// Tells the ReplicaSet with the wanted template from the others.
pub fn sort(deployment: &Deployment, sets: Vec<Arc<ReplicaSet>>) -> Sets {
    let position = sets.iter().position(|set| has_template_of(deployment, set));
    let mut old = sets;
    let new = position.map(|position| old.remove(position));
    Sets { new, old }
}

/// Whether a ReplicaSet makes the pods that the Deployment wants now.
fn has_template_of(deployment: &Deployment, set: &ReplicaSet) -> bool {
    let wanted = deployment.spec.as_ref().map(|spec| &spec.template);
    let have = set.spec.as_ref().and_then(|spec| spec.template.as_ref());
    have.map(without_hash) == wanted.map(without_hash)
}

/// Creates the ReplicaSet of the wanted template. Its name is a hash of the template, so that a second try after a
/// lost answer finds the first one's work.
pub async fn create(context: &Context, deployment: &Deployment, sets: &Sets) -> Result<ReplicaSet, Error> {
    let mut set = build(deployment, sets);
    let desired = rolling::desired(deployment);
    let (surge, _) = rolling::limits(deployment);
    let total = rolling::total(sets.all());
    let start = if rolling::is_recreate(deployment) {
        desired
    } else {
        (desired + surge - total).clamp(0, desired)
    };
    if let Some(spec) = &mut set.spec {
        spec.replicas = Some(start);
    }
    match context.writer().create(&set).await {
        Err(Error::Api { source, .. }) if is_already_there(&source) => {
            let key = Key::of(&set);
            let found = context.writer().read::<ReplicaSet>(&key).await?;
            let ours = deployment.metadata.uid.as_deref().unwrap_or_default();
            // One whose template somebody has edited since is an old one, even though it has the new one's name.
            let is_it = |found: &ReplicaSet| {
                ownership::is_controlled_by(&found.metadata, ours) && has_template_of(deployment, found)
            };
            match found.filter(is_it) {
                Some(found) => Ok(found),
                None => Err(collide(context, deployment, &key).await?),
            }
        }
        Err(error) => {
            refused(context, deployment, &set, &error).await?;
            Err(error)
        }
        Ok(answer) => {
            let made = answer.object()?;
            tell_scale(context, deployment, &made, 0, start);
            Ok(made)
        }
    }
}

/// Says in an event and in the status that the new ReplicaSet could not be made, and why. In a namespace that goes
/// away nothing can be made, and nobody needs to hear of it.
async fn refused(context: &Context, deployment: &Deployment, set: &ReplicaSet, error: &Error) -> Result<(), Error> {
    const REASON: &str = "ReplicaSetCreateError";
    if error.reason() == "NamespaceTerminating" {
        return Ok(());
    }
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let message = format!("Failed to create new replica set {name:?}: {}", error.words());
    let about = ownership::about(deployment);
    context
        .events()
        .tell(about, Severity::Warning, REASON, "Creating", &message);
    if let Some(status) = status::refused(deployment, REASON, message, context.now()) {
        let patch = json!({"status": {"conditions": status.conditions}});
        context.writer().patch_status(deployment, patch).await?;
    }
    Ok(())
}

/// The name is taken, by a stranger or by a set that was changed: the next try takes another, as the number of
/// collisions is part of the hash.
async fn collide(context: &Context, deployment: &Deployment, key: &Key) -> Result<Error, Error> {
    let before = deployment.status.as_ref().and_then(|status| status.collision_count);
    let count = before.unwrap_or(0).saturating_add(1);
    let patch = json!({"status": {"collisionCount": count}});
    context.writer().patch_status(deployment, patch).await?;
    Ok(Error::transient(format!("ReplicaSet {key} exists and is another one")))
}

/// An event about a ReplicaSet that grows or shrinks.
fn tell_scale(context: &Context, deployment: &Deployment, set: &ReplicaSet, from: i32, to: i32) {
    let way = match to.cmp(&from) {
        Ordering::Less => "down",
        Ordering::Greater => "up",
        Ordering::Equal => return,
    };
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let note = format!("Scaled {way} replica set {name} from {from} to {to}");
    let about = ownership::about(deployment);
    context
        .events()
        .tell(about, Severity::Normal, "ScalingReplicaSet", "Scaling", &note);
}

/// Gives the new ReplicaSet the newest number: after a roll-back it is an old one.
pub async fn renumber(
    context: &Context,
    deployment: &Deployment,
    sets: &Sets,
    new: &Arc<ReplicaSet>,
) -> Result<Arc<ReplicaSet>, Error> {
    let number = revision(&new.metadata).max(newest(&sets.old) + 1);
    let mut annotations: BTreeMap<String, String> = handed_down(deployment);
    let have = new.metadata.annotations.clone().unwrap_or_default();
    if revision(&new.metadata) != number {
        annotations.insert(REVISION.to_string(), number.to_string());
        if let Some(last) = have.get(REVISION) {
            let earlier = have.get(REVISION_HISTORY).filter(|text| !text.is_empty());
            let numbers = earlier.map_or(last.clone(), |earlier| format!("{earlier},{last}"));
            annotations.insert(REVISION_HISTORY.to_string(), numbers);
        }
    }
    let min_ready = deployment.spec.as_ref().and_then(|spec| spec.min_ready_seconds);
    let differs = new.spec.as_ref().and_then(|spec| spec.min_ready_seconds).unwrap_or(0) != min_ready.unwrap_or(0);
    let news = annotations.iter().any(|(key, value)| have.get(key) != Some(value));
    let mut result = new.clone();
    if news || differs {
        let mut patch = json!({"metadata": {"annotations": annotations}});
        if differs {
            patch["spec"] = json!({"minReadySeconds": min_ready.unwrap_or(0)});
        }
        result = Arc::new(context.writer().patch(&**new, patch).await?.object()?);
    }
    let text = number.to_string();
    if deployment
        .metadata
        .annotations
        .as_ref()
        .and_then(|all| all.get(REVISION))
        != Some(&text)
    {
        context
            .writer()
            .patch(deployment, json!({"metadata": {"annotations": {REVISION: text}}}))
            .await?;
    }
    Ok(result)
}

/// Sets a ReplicaSet's number of pods, with what a later look needs to keep proportions.
pub async fn scale(context: &Context, deployment: &Deployment, set: &ReplicaSet, replicas: i32) -> Result<(), Error> {
    let patch = json!({
        "metadata": {"annotations": replica_annotations(deployment)},
        "spec": {"replicas": replicas},
    });
    context.writer().patch(set, patch).await?;
    tell_scale(context, deployment, set, rolling::wanted(set), replicas);
    Ok(())
}

/// Old ReplicaSets beyond the history limit, once they have no pods.
pub fn stale(deployment: &Deployment, sets: &Sets) -> Vec<Arc<ReplicaSet>> {
    let limit = deployment
        .spec
        .as_ref()
        .and_then(|spec| spec.revision_history_limit)
        .unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(0);
    let empty = |set: &&Arc<ReplicaSet>| {
        let settled = set
            .status
            .as_ref()
            .is_some_and(|status| status.replicas == 0 && status.observed_generation >= set.metadata.generation);
        rolling::wanted(set) == 0 && settled && set.metadata.deletion_timestamp.is_none()
    };
    let mut old: Vec<_> = sets.old.clone();
    old.sort_by_key(|set| revision(&set.metadata));
    let surplus = old.len().saturating_sub(limit);
    old.iter().take(surplus).filter(empty).cloned().collect()
}

fn build(deployment: &Deployment, sets: &Sets) -> ReplicaSet {
    let meta = &deployment.metadata;
    let spec = deployment.spec.clone().unwrap_or_default();
    let hash = template_hash(
        &spec.template,
        deployment.status.as_ref().and_then(|status| status.collision_count),
    );
    let mut template = spec.template;
    let labels = template.metadata.get_or_insert_default().labels.get_or_insert_default();
    labels.insert(HASH_LABEL.to_string(), hash.clone());
    let labels = labels.clone();
    let mut selector = spec.selector;
    selector
        .match_labels
        .get_or_insert_default()
        .insert(HASH_LABEL.to_string(), hash.clone());
    let mut annotations = handed_down(deployment);
    annotations.extend(replica_annotations(deployment));
    annotations.insert(REVISION.to_string(), (newest(&sets.old) + 1).to_string());
    ReplicaSet {
        metadata: ObjectMeta {
            name: Some(format!("{}-{hash}", meta.name.as_deref().unwrap_or_default())),
            namespace: meta.namespace.clone(),
            labels: Some(labels),
            annotations: Some(annotations),
            owner_references: Some(vec![ownership::controller_reference(deployment)]),
            ..ObjectMeta::default()
        },
        spec: Some(ReplicaSetSpec {
            replicas: None,
            min_ready_seconds: spec.min_ready_seconds,
            selector,
            template: Some(template),
        }),
        status: None,
    }
}

fn replica_annotations(deployment: &Deployment) -> BTreeMap<String, String> {
    let desired = rolling::desired(deployment);
    let (surge, _) = rolling::limits(deployment);
    BTreeMap::from([
        (DESIRED.to_string(), desired.to_string()),
        (MAX.to_string(), (desired + surge).to_string()),
    ])
}

fn handed_down(deployment: &Deployment) -> BTreeMap<String, String> {
    let annotations = deployment.metadata.annotations.iter().flatten();
    annotations
        .filter(|(key, _)| !NOT_HANDED_DOWN.contains(&key.as_str()))
        .map(|(k, v)| (k.clone(), v.clone()))
        .collect()
}

/// The number of a revision; 0 if it has none.
pub fn revision(meta: &ObjectMeta) -> i64 {
    meta.annotations
        .as_ref()
        .and_then(|all| all.get(REVISION)?.parse().ok())
        .unwrap_or(0)
}

fn newest(sets: &[Arc<ReplicaSet>]) -> i64 {
    sets.iter().map(|set| revision(&set.metadata)).max().unwrap_or(0)
}

fn without_hash(template: &PodTemplateSpec) -> PodTemplateSpec {
    let mut template = template.clone();
    if let Some(labels) = template.metadata.as_mut().and_then(|meta| meta.labels.as_mut()) {
        labels.remove(HASH_LABEL);
    }
    if let Some(meta) = &mut template.metadata {
        meta.creation_timestamp = None;
    }
    template
}

fn template_hash(template: &PodTemplateSpec, collisions: Option<i32>) -> String {
    let text = serde_json::to_string(template).unwrap_or_default();
    pods::hash(&format!("{text}{}", collisions.unwrap_or(0)))
}

fn is_already_there(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.reason == "AlreadyExists")
}
