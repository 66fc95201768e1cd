//! The claims of a pod, as the scheduler sees them: bound, waiting for a node, or in the way.

use super::filter::volumes::{Need, Source};
use crate::controllers::ownership::about;
use crate::controllers::volumes::protection::Use;
use crate::controllers::volumes::{SELECTED_NODE, class_of, matching, protection, volume_name, waits_for_consumer};
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::StorageClass;
use serde_json::json;
use std::sync::Arc;
use stead::{Context, Error, Manager, Store};

/// Classes of which all volumes are made by hand.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// What is known of claims, volumes and classes.
pub struct Claims {
    claims: Store<PersistentVolumeClaim>,
    volumes: Store<PersistentVolume>,
    classes: Store<StorageClass>,
}

impl Claims {
    pub fn new(manager: &Manager) -> Self {
        let cache = manager.cache();
        Claims {
            claims: cache.store(),
            volumes: cache.store(),
            classes: cache.store(),
        }
    }

    /// What a pod's claims ask of its node, or why no node can do yet, in Kubernetes' words.
    pub fn needs(&self, pod: &Pod) -> Result<Vec<Need>, String> {
        let namespace = pod.metadata.namespace.as_deref();
        let mut needs = Vec::new();
        for used in protection::claims_of(pod) {
            let name = used.name();
            let Some(claim) = self.claims.named(namespace, name) else {
                return Err(match used {
                    Use::Shared(_) => format!("persistentvolumeclaim \"{name}\" not found"),
                    Use::Own(_) => {
                        format!(
                            "waiting for ephemeral volume controller to create the persistentvolumeclaim \"{name}\""
                        )
                    }
                });
            };
            if claim.metadata.deletion_timestamp.is_some() {
                return Err(format!("persistentvolumeclaim \"{name}\" is being deleted"));
            }
            used.check(pod, &claim)?;
            if let Some(volume) = volume_name(&claim) {
                let bound = claim.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Bound");
                match self.volumes.named(None, volume).filter(|_| bound) {
                    Some(volume) => needs.push(Need::Bound(volume)),
                    None => return Err("pod has unbound immediate PersistentVolumeClaims".to_string()),
                }
                continue;
            }
            let class = self.classes.named(None, class_of(&claim));
            let Some(class) = class.filter(|class| waits_for_consumer(class)) else {
                return Err("pod has unbound immediate PersistentVolumeClaims".to_string());
            };
            let source = match class.provisioner.as_str() {
                NO_PROVISIONER => Source::Made,
                _ => Source::Provisioned,
            };
            needs.push(Need::Open {
                claim,
                candidates: self.volumes.list(),
                source,
            });
        }
        Ok(needs)
    }

    /// Takes volumes for the open claims of a pod that will run on this node, or asks for them to be made there.
    pub async fn reserve(&self, context: &Context, needs: &[Need], node: &Node) -> Result<(), Error> {
        let mut taken: Vec<Arc<PersistentVolume>> = Vec::new();
        for need in needs {
            let Need::Open { claim, candidates, .. } = need else {
                continue;
            };
            if matching::reserved(claim, candidates).is_some() {
                continue;
            }
            let free = candidates
                .iter()
                .filter(|one| taken.iter().all(|known| known.metadata.name != one.metadata.name));
            if let Some(volume) = matching::best(claim, free, Some(node)) {
                let patch = json!({
                    "metadata": {"annotations": {"pv.kubernetes.io/bound-by-controller": "yes"}},
                    "spec": {"claimRef": about(&**claim)},
                });
                context.writer().patch(&**volume, patch).await?;
                taken.push(volume.clone());
                continue;
            }
            let annotations = claim.metadata.annotations.as_ref();
            let name = node.metadata.name.as_ref();
            if annotations.and_then(|all| all.get(SELECTED_NODE)) != name {
                let patch = json!({"metadata": {"annotations": {SELECTED_NODE: name}}});
                context.writer().patch(&**claim, patch).await?;
            }
        }
        Ok(())
    }
}
