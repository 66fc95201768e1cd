//! The store as authentication and authorisation read it.
//!
//! Roles and bindings are read for nearly every request and change rarely, so they are kept parsed; a view
//! catches up with the store when it is read and is never behind it.

use super::Directory;
use super::nodes::Bonds;
use super::rbac::{self, Binding, Policy, Role};
use crate::error::{ApiError, Result};
use crate::store::{Key, Prefix, Store, View};
use async_trait::async_trait;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::sync::Arc;

/// Reads objects of the store, and keeps its roles parsed.
pub struct StoreDirectory {
    store: Store,
    cluster_roles: View<Role>,
    cluster_role_bindings: View<Binding>,
    roles: View<Role>,
    role_bindings: View<Binding>,
    /// What pods tie to their nodes. Read for requests of nodes only, and kept from the first of them on.
    bonds: View<Bonds>,
}

impl StoreDirectory {
    pub fn new(store: Store) -> Self {
        StoreDirectory {
            store,
            cluster_roles: view(rbac::CLUSTER_ROLES),
            cluster_role_bindings: view(rbac::CLUSTER_ROLE_BINDINGS),
            roles: view(rbac::ROLES),
            role_bindings: view(rbac::ROLE_BINDINGS),
            bonds: View::new(Prefix::resource("/pods"), |record| {
                Bonds::of(&record.key, &record.value())
            }),
        }
    }
}

/// An object that cannot be read as its kind grants nothing.
fn view<T: DeserializeOwned>(resource: &str) -> View<T> {
    View::new(Prefix::resource(resource), |record| {
        serde_json::from_slice(&record.json).ok()
    })
}

#[async_trait]
impl Directory for StoreDirectory {
    async fn object(&self, key: &Key) -> Result<Option<Arc<Value>>> {
        let record = self.store.get(key).await.map_err(ApiError::internal)?;
        Ok(record.map(|record| record.value()))
    }

    fn policy(&self) -> Result<Policy> {
        Ok(Policy {
            cluster_roles: self.cluster_roles.read(&self.store),
            cluster_role_bindings: self.cluster_role_bindings.read(&self.store),
            roles: self.roles.read(&self.store),
            role_bindings: self.role_bindings.read(&self.store),
        })
    }

    fn bonds(&self, namespace: &str, node: &str, has: &dyn Fn(&Bonds) -> bool) -> bool {
        let all = self.bonds.read(&self.store);
        let here = all
            .range(rbac::key("/pods", namespace, "")..)
            .take_while(|(key, _)| key.namespace == namespace);
        let mut of_node = here.map(|(_, bonds)| bonds).filter(|bonds| bonds.node == node);
        of_node.any(|bonds| has(bonds))
    }

    fn current(&self, key: &Key) -> Option<Arc<Value>> {
        self.store.get_cached(key).map(|record| record.value())
    }
}
