//! The objects that every cluster has from its first moment.

use crate::server::Shared;
use crate::store::{Key, StoreError, Write};
use crate::verbs::{encode, object};
use serde_json::{Value, json};

/// Creates what is missing. Safe to run again, and by two servers at once.
pub async fn bootstrap(shared: &Shared) -> Result<(), StoreError> {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        let mut namespace = json!({
            "kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name},
            "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
        });
        super::namespace::set_label(&mut namespace, name);
        ensure(shared, "/namespaces", namespace).await?;
    }
    Ok(())
}

/// Creates an object unless one of its name is there.
async fn ensure(shared: &Shared, resource: &str, mut value: Value) -> Result<(), StoreError> {
    let key = Key::new(resource, object::namespace(&value), object::name(&value));
    if shared.store.get(&key).await?.is_some() {
        return Ok(());
    }
    let (uid, now) = (shared.environment.uid(), shared.environment.clock.now());
    object::set_meta(&mut value, "uid", &uid);
    object::set_meta(&mut value, "creationTimestamp", &object::time(now));
    let draft = encode::draft(&value);
    match shared.store.write(Write::Create { key, draft }).await {
        Ok(_) | Err(StoreError::Exists { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}
