//! The service account `default` that every namespace has.

use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::core::ObjectMeta;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Store};

/// Adds the controller of default service accounts.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let reconciler = ServiceAccounts {
        namespaces: cache.store(),
        accounts: cache.store(),
    };
    let controller = Controller::new("serviceaccount", reconciler)
        .for_::<Namespace>()
        .watches::<ServiceAccount>(|account| {
            account
                .metadata
                .namespace
                .as_deref()
                .map(Key::cluster)
                .into_iter()
                .collect()
        })
        .may(Rule::new("", &["serviceaccounts"], &["create"]))
        .without_resync();
    manager.add(controller);
}

struct ServiceAccounts {
    namespaces: Store<Namespace>,
    accounts: Store<ServiceAccount>,
}

impl Reconciler for ServiceAccounts {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let Some(namespace) = self.namespaces.get(key) else {
            return Ok(Outcome::Settled);
        };
        let going = namespace.metadata.deletion_timestamp.is_some();
        if going || self.accounts.named(Some(key.name()), "default").is_some() {
            return Ok(Outcome::Settled);
        }
        let account = ServiceAccount {
            metadata: ObjectMeta {
                name: Some("default".to_string()),
                namespace: Some(key.name().to_string()),
                ..ObjectMeta::default()
            },
            ..ServiceAccount::default()
        };
        super::created(context.writer().create(&account).await)?;
        Ok(Outcome::Settled)
    }
}
