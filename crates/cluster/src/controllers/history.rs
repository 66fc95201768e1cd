//! ControllerRevisions: the templates that a StatefulSet or DaemonSet has had, numbered, for updates and roll-backs.

use super::ownership::Family;
use super::{created, ownership, pods};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::runtime::RawExtension;
use kube::core::ObjectMeta;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use stead::{Context, Error, Propagation, Typed};
use stead_machinery::selector::LabelSelector as Selector;

/// The label by which a pod says from which revision it was made.
pub const HASH_LABEL: &str = "controller-revision-hash";

/// The revisions of one owner, oldest first. The last one has the wanted template.
#[derive(Debug, Clone, Default)]
pub struct History {
    pub revisions: Vec<Arc<ControllerRevision>>,
}

impl History {
    /// The name of the revision with the wanted template.
    pub fn newest(&self) -> &str {
        self.revisions
            .last()
            .and_then(|revision| revision.metadata.name.as_deref())
            .unwrap_or_default()
    }

    /// The hash in the name of that revision, by which the pods of a DaemonSet know it.
    pub fn newest_hash(&self) -> &str {
        let labels = self
            .revisions
            .last()
            .and_then(|revision| revision.metadata.labels.as_ref());
        labels
            .and_then(|labels| labels.get(HASH_LABEL))
            .map_or("", String::as_str)
    }

    /// The template of a revision, if it is still known.
    pub fn template(&self, name: &str) -> Option<PodTemplateSpec> {
        let found = self
            .revisions
            .iter()
            .find(|revision| revision.metadata.name.as_deref() == Some(name))?;
        let mut template = found.data.as_ref()?.0["spec"]["template"].clone();
        template.as_object_mut()?.remove("$patch");
        stead::decode(&template).ok()
    }
}

/// What a revision keeps: a strategic patch that brings the template back, as `kubectl rollout undo` expects it.
fn data(template: &PodTemplateSpec) -> Value {
    let mut template = json!(template);
    template["$patch"] = json!("replace");
    json!({"spec": {"template": template}})
}

/// The revisions of an owner, with the wanted template as the newest: made, or renumbered if it was had before.
pub async fn sync<O: Typed>(
    context: &Context,
    family: &Family<ControllerRevision>,
    owner: &O,
    selector: &Selector,
    template: &PodTemplateSpec,
    collisions: Option<i32>,
) -> Result<History, Error> {
    let meta = owner.meta();
    let uid = meta.uid.as_deref().unwrap_or_default();
    let mut revisions = family.controlled_by(uid);
    for revision in family.orphans(meta.namespace.as_deref()) {
        if selector.matches(revision.metadata.labels.as_ref().unwrap_or(&Default::default())) {
            ownership::adopt(context, &*revision, owner).await?;
            revisions.push(revision);
        }
    }
    revisions.sort_by_key(|revision| (revision.revision, revision.metadata.name.clone()));
    let wanted = data(template);
    let same = |revision: &Arc<ControllerRevision>| revision.data.as_ref().is_some_and(|data| data.0 == wanted);
    let next = revisions.last().map_or(1, |last| last.revision + 1);
    match revisions.iter().rposition(same) {
        Some(at) if at + 1 == revisions.len() => {}
        Some(at) => {
            let again = revisions.remove(at);
            let again = context
                .writer()
                .patch(&*again, json!({"revision": next}))
                .await?
                .object()?;
            revisions.push(Arc::new(again));
        }
        None => {
            let hash = pods::hash(&format!("{wanted}{}", collisions.unwrap_or(0)));
            let mut labels = template.metadata.as_ref().and_then(|meta| meta.labels.clone());
            labels
                .get_or_insert_default()
                .insert(HASH_LABEL.to_string(), hash.clone());
            let revision = ControllerRevision {
                metadata: ObjectMeta {
                    name: Some(format!("{}-{hash}", meta.name.as_deref().unwrap_or_default())),
                    namespace: meta.namespace.clone(),
                    labels,
                    owner_references: Some(vec![ownership::controller_reference(owner)]),
                    ..ObjectMeta::default()
                },
                data: Some(RawExtension(wanted)),
                revision: next,
            };
            created(context.writer().create(&revision).await)?;
            revisions.push(Arc::new(revision));
        }
    }
    Ok(History { revisions })
}

/// Deletes the oldest revisions beyond the limit, but none that lives in a pod or in the status.
pub async fn forget(
    context: &Context,
    history: &History,
    live: &BTreeSet<String>,
    limit: Option<i32>,
) -> Result<(), Error> {
    for revision in stale(history, live, limit) {
        context.writer().delete(&**revision, Propagation::Background).await?;
    }
    Ok(())
}

fn stale<'a>(history: &'a History, live: &BTreeSet<String>, limit: Option<i32>) -> Vec<&'a Arc<ControllerRevision>> {
    let is_live = |revision: &&Arc<ControllerRevision>| {
        let name = revision.metadata.name.as_deref().unwrap_or_default();
        let hash = revision.metadata.labels.as_ref().and_then(|all| all.get(HASH_LABEL));
        name == history.newest() || live.contains(name) || hash.is_some_and(|hash| live.contains(hash))
    };
    let dead: Vec<_> = history.revisions.iter().filter(|revision| !is_live(revision)).collect();
    let limit = usize::try_from(limit.unwrap_or(10)).unwrap_or(0);
    let surplus = dead.len().saturating_sub(limit);
    dead.into_iter().take(surplus).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revision(name: &str, number: i64, image: &str) -> Arc<ControllerRevision> {
        let template = json!({"spec": {"containers": [{"name": "web", "image": image}]}});
        let template: PodTemplateSpec = serde_json::from_value(template).unwrap();
        Arc::new(ControllerRevision {
            metadata: ObjectMeta {
                name: Some(name.to_string()),
                ..ObjectMeta::default()
            },
            data: Some(RawExtension(data(&template))),
            revision: number,
        })
    }

    #[test]
    fn a_revision_gives_its_template_back() {
        let history = History {
            revisions: vec![revision("web-a", 1, "web:1"), revision("web-b", 2, "web:2")],
        };
        assert_eq!(history.newest(), "web-b");
        let template = history.template("web-a").unwrap();
        assert_eq!(template.spec.unwrap().containers[0].image.as_deref(), Some("web:1"));
        assert!(history.template("web-c").is_none());
    }

    #[test]
    fn old_revisions_go_unless_a_pod_still_has_them() {
        let revisions = (1..=4).map(|n| revision(&format!("web-{n}"), n, &format!("web:{n}")));
        let history = History {
            revisions: revisions.collect(),
        };
        let live = BTreeSet::from(["web-1".to_string()]);
        let names = |limit| -> Vec<String> {
            let stale = stale(&history, &live, Some(limit));
            stale.iter().map(|r| r.metadata.name.clone().unwrap()).collect()
        };
        assert_eq!(names(0), ["web-2", "web-3"]);
        assert_eq!(names(1), ["web-2"]);
        assert_eq!(names(2), Vec::<String>::new());
    }
}
