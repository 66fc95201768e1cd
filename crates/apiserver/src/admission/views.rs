//! What admission reads of the cluster on every write, parsed once.

use super::policies::{Binding, Policy};
use super::webhooks::Webhook;
use crate::auth::directory::StoreDirectory;
use crate::store::{Key, Prefix, Record, Store, View};
use serde_json::Value;
use std::sync::Arc;

type Plain = View<Value>;

/// The objects that steer admission. Each view is current whenever it is read.
pub struct Views {
    store: Store,
    pub(super) directory: StoreDirectory,
    mutating_webhooks: View<Vec<Webhook>>,
    validating_webhooks: View<Vec<Webhook>>,
    validating_policies: View<Policy>,
    validating_bindings: View<Binding>,
    mutating_policies: View<Policy>,
    mutating_bindings: View<Binding>,
    limit_ranges: Plain,
    quotas: Plain,
    priority_classes: Plain,
    storage_classes: Plain,
    ingress_classes: Plain,
    endpoint_slices: Plain,
}

/// Which of the two phases of admission.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Mutating,
    Validating,
}

impl Views {
    pub fn new(store: &Store) -> Self {
        let group = |plural: &str| Prefix::resource(format!("admissionregistration.k8s.io/{plural}"));
        let plain = |resource: &str| {
            View::new(Prefix::resource(resource), |record: &Record| {
                Some((*record.value()).clone())
            })
        };
        Views {
            store: store.clone(),
            directory: StoreDirectory::new(store.clone()),
            mutating_webhooks: View::new(group("mutatingwebhookconfigurations"), Webhook::all),
            validating_webhooks: View::new(group("validatingwebhookconfigurations"), Webhook::all),
            validating_policies: View::new(group("validatingadmissionpolicies"), Policy::parse),
            validating_bindings: View::new(group("validatingadmissionpolicybindings"), Binding::parse),
            mutating_policies: View::new(group("mutatingadmissionpolicies"), Policy::parse),
            mutating_bindings: View::new(group("mutatingadmissionpolicybindings"), Binding::parse),
            limit_ranges: plain("/limitranges"),
            quotas: plain("/resourcequotas"),
            priority_classes: plain("scheduling.k8s.io/priorityclasses"),
            storage_classes: plain("storage.k8s.io/storageclasses"),
            ingress_classes: plain("networking.k8s.io/ingressclasses"),
            endpoint_slices: plain("discovery.k8s.io/endpointslices"),
        }
    }

    /// All webhooks of a phase, in the order of their configurations' names.
    pub fn webhooks(&self, phase: Phase) -> Vec<Arc<Vec<Webhook>>> {
        let view = match phase {
            Phase::Mutating => &self.mutating_webhooks,
            Phase::Validating => &self.validating_webhooks,
        };
        view.read(&self.store).values().cloned().collect()
    }

    /// Whether webhooks or policies have a say in writes.
    pub fn is_steered(&self) -> bool {
        let views = [&self.mutating_webhooks, &self.validating_webhooks];
        let policies = [&self.mutating_policies, &self.validating_policies];
        views.iter().any(|view| !view.read(&self.store).is_empty())
            || policies.iter().any(|view| !view.read(&self.store).is_empty())
    }

    pub fn policies(&self, phase: Phase) -> Vec<Arc<Policy>> {
        let view = match phase {
            Phase::Mutating => &self.mutating_policies,
            Phase::Validating => &self.validating_policies,
        };
        view.read(&self.store).values().cloned().collect()
    }

    pub fn bindings(&self, phase: Phase) -> Vec<Arc<Binding>> {
        let view = match phase {
            Phase::Mutating => &self.mutating_bindings,
            Phase::Validating => &self.validating_bindings,
        };
        view.read(&self.store).values().cloned().collect()
    }

    pub fn limit_ranges(&self, namespace: &str) -> Vec<Arc<Value>> {
        self.in_namespace(&self.limit_ranges, namespace)
    }

    pub fn quotas(&self, namespace: &str) -> Vec<Arc<Value>> {
        self.in_namespace(&self.quotas, namespace)
    }

    pub fn priority_classes(&self) -> Vec<Arc<Value>> {
        self.priority_classes.read(&self.store).values().cloned().collect()
    }

    pub fn priority_class(&self, name: &str) -> Option<Arc<Value>> {
        let key = Key::new("scheduling.k8s.io/priorityclasses", "", name);
        self.priority_classes.read(&self.store).get(&key).cloned()
    }

    pub fn storage_classes(&self) -> Vec<Arc<Value>> {
        self.storage_classes.read(&self.store).values().cloned().collect()
    }

    pub fn ingress_classes(&self) -> Vec<Arc<Value>> {
        self.ingress_classes.read(&self.store).values().cloned().collect()
    }

    /// The slices of a Service's endpoints.
    pub fn endpoint_slices(&self, namespace: &str, service: &str) -> Vec<Arc<Value>> {
        let mut slices = self.in_namespace(&self.endpoint_slices, namespace);
        slices.retain(|slice| slice["metadata"]["labels"]["kubernetes.io/service-name"] == service);
        slices
    }

    /// One object as it is now.
    pub fn object(&self, resource: &str, namespace: &str, name: &str) -> Option<Arc<Value>> {
        let record = self.store.get_cached(&Key::new(resource, namespace, name))?;
        Some(record.value())
    }

    fn in_namespace(&self, view: &Plain, namespace: &str) -> Vec<Arc<Value>> {
        let all = view.read(&self.store);
        let inside = all.iter().filter(|(key, _)| key.namespace == namespace);
        inside.map(|(_, object)| object.clone()).collect()
    }
}
