//! The default storage class, whose volumes are local directories.
//!
//! Made once when the controllers start; whoever deletes it or marks another one as default has the last word
//! until the next start.

use super::PROVISIONER;
use crate::controllers::created;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::core::ObjectMeta;
use std::cmp::Reverse;
use std::sync::Arc;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};

const NAME: &str = "standard";
const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
/// The namespace whose presence says that the cluster has its first objects.
const SIGN: &str = "kube-system";

pub fn add_to(manager: &Manager) {
    let classes = manager.cache().store();
    let controller = Controller::new("default-storage-class", Classes { classes })
        .for_::<Namespace>()
        .may(Rule::new("storage.k8s.io", &["storageclasses"], &["create"]))
        .without_resync()
        .concurrency(1);
    manager.add(controller);
}

struct Classes {
    classes: Store<StorageClass>,
}

impl Reconciler for Classes {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        if key.name() != SIGN || !self.classes.is_empty() {
            return Ok(Outcome::Settled);
        }
        created(context.writer().create(&default_class()).await)?;
        Ok(Outcome::Settled)
    }
}

/// The class of claims that name none: of several that say so, the one that came last.
pub fn default_of(classes: &[Arc<StorageClass>]) -> Option<&Arc<StorageClass>> {
    let marked = classes.iter().filter(|class| {
        let annotations = class.metadata.annotations.as_ref();
        annotations
            .and_then(|all| all.get(DEFAULT))
            .is_some_and(|text| text == "true")
    });
    marked.max_by_key(|class| {
        let created = class.metadata.creation_timestamp.as_ref().map(|time| time.0);
        (created, Reverse(class.metadata.name.clone()))
    })
}

fn default_class() -> StorageClass {
    StorageClass {
        metadata: ObjectMeta {
            name: Some(NAME.to_string()),
            annotations: Some([(DEFAULT.to_string(), "true".to_string())].into()),
            ..ObjectMeta::default()
        },
        provisioner: PROVISIONER.to_string(),
        reclaim_policy: Some("Delete".to_string()),
        // Every node is on this machine: a directory is as near to one as to another.
        volume_binding_mode: Some("Immediate".to_string()),
        allow_volume_expansion: Some(true),
        ..StorageClass::default()
    }
}
