//! What the server refuses of built-in kinds.
//!
//! Validation is written by hand, kind by kind, in Kubernetes' words: clients match on them and people
//! search for them. Metadata is checked for all kinds elsewhere; custom resources by their schemas.

mod admission;
mod autoscaling;
mod changes;
mod check;
mod containers;
mod core;
mod environment;
mod flow;
mod jobs;
mod network;
mod pod_parts;
mod pods;
mod policies;
mod policy;
mod probes;
mod quotas;
mod resources;
mod scheduling;
mod security;
mod services;
mod storage;
mod volumes;
mod warnings;
mod workloads;

pub use admission::{webhook_service, webhook_url};
pub use warnings::{deprecation, warnings};

use crate::catalogue::{Origin, Resource};
use check::{Errors, Field};
use serde_json::Value;
use stead_machinery::field::FieldError;

/// What is wrong with a new object.
pub fn create(resource: &Resource, object: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if matches!(resource.origin, Origin::BuiltIn) {
        if wrong_addresses(resource, object, None, &mut errors) {
            return errors.0;
        }
        object_errors(resource, Field::root(object), &mut errors);
        match (resource.group.as_str(), resource.plural.as_str()) {
            ("apps", "controllerrevisions") => core::revision_data(&Field::root(object), &mut errors),
            ("", "pods") => pods::new_pod(&Field::root(object), &mut errors),
            ("apps", "statefulsets") => workloads::new_stateful_set(&Field::root(object), &mut errors),
            _ => {}
        }
    }
    errors.0
}

/// What is wrong with a changed object, or with the change.
pub fn update(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if matches!(resource.origin, Origin::BuiltIn) {
        if wrong_addresses(resource, object, Some(old), &mut errors) {
            return errors.0;
        }
        match (resource.group.as_str(), resource.plural.as_str()) {
            // A class is fixed but for its words, so nothing in it needs a second look.
            ("scheduling.k8s.io", "priorityclasses") => {}
            ("apps", "statefulsets") => {
                workloads::changed_stateful_set(&Field::root(object), &Field::root(old), &mut errors);
            }
            _ => object_errors(resource, Field::root(object), &mut errors),
        }
        changes::check(resource, Field::root(object), Field::root(old), &mut errors);
    }
    errors.0
}

/// Whether a service cannot have the addresses that it asks for.
fn wrong_addresses(resource: &Resource, object: &Value, old: Option<&Value>, errors: &mut Errors) -> bool {
    if (resource.group.as_str(), resource.plural.as_str()) == ("", "services") {
        services::addresses(&Field::root(object), old.map(Field::root).as_ref(), errors);
    }
    !errors.0.is_empty()
}

/// What is wrong with a changed status.
pub fn status(resource: &Resource, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (object, old) = (Field::root(object), Field::root(old));
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "nodes") => changes::addresses(&object, &mut errors),
        ("", "services") => services::service_status(&object, &mut errors),
        ("networking.k8s.io", "ingresses") => network::ingress_status(&object, &mut errors),
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::status(&object, &mut errors),
        ("policy", "poddisruptionbudgets") => policy::disruption_status(&object, &mut errors),
        ("apps", "deployments" | "replicasets" | "statefulsets" | "daemonsets") | ("", "replicationcontrollers") => {
            workloads::status(&object, &mut errors);
        }
        ("", "namespaces") => core::namespace_status(&object, &mut errors),
        ("", "resourcequotas") => quotas::quota_status(&object, &mut errors),
        ("batch", "jobs") => jobs::status(&object, &old, &mut errors),
        _ => {}
    }
    errors.0
}

/// What is wrong with a part of an object that has a path of its own.
pub fn part(resource: &Resource, subresource: &str, object: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (object, old) = (Field::root(object), Field::root(old));
    match (resource.group.as_str(), resource.plural.as_str(), subresource) {
        ("", "pods", "ephemeralcontainers") => pod_parts::debuggers(&object, &old, &mut errors),
        ("", "pods", "resize") => pod_parts::resize(&object, &old, &mut errors),
        _ => {}
    }
    errors.0
}

fn object_errors(resource: &Resource, object: Field<'_>, errors: &mut Errors) {
    let check: fn(&Field<'_>, &mut Errors) = match (resource.group.as_str(), resource.plural.as_str()) {
        ("", "pods") => pods::pod,
        ("", "podtemplates") => workloads::pod_template,
        ("", "replicationcontrollers") => workloads::replication_controller,
        ("", "services") => services::service,
        ("", "endpoints") => network::endpoints,
        ("", "configmaps") => core::config_map,
        ("", "secrets") => core::secret,
        ("", "resourcequotas") => quotas::resource_quota,
        ("", "limitranges") => quotas::limit_range,
        ("", "nodes") => core::node,
        ("", "events") => core::event,
        ("", "persistentvolumes") => storage::volume,
        ("", "persistentvolumeclaims") => storage::claim,
        ("apps", "deployments") => workloads::deployment,
        ("apps", "replicasets") => workloads::replica_set,
        ("apps", "statefulsets") => workloads::stateful_set,
        ("apps", "daemonsets") => workloads::daemon_set,
        ("apps", "controllerrevisions") => core::controller_revision,
        ("batch", "jobs") => jobs::job,
        ("batch", "cronjobs") => jobs::cron_job,
        ("autoscaling", "horizontalpodautoscalers") => autoscaling::autoscaler,
        ("policy", "poddisruptionbudgets") => policy::disruption_budget,
        ("rbac.authorization.k8s.io", "roles") => policy::role,
        ("rbac.authorization.k8s.io", "clusterroles") => policy::cluster_role,
        ("rbac.authorization.k8s.io", "rolebindings") => policy::role_binding,
        ("rbac.authorization.k8s.io", "clusterrolebindings") => policy::cluster_role_binding,
        ("networking.k8s.io", "networkpolicies") => network::network_policy,
        ("networking.k8s.io", "ingresses") => network::ingress,
        ("networking.k8s.io", "ingressclasses") => network::ingress_class,
        ("discovery.k8s.io", "endpointslices") => network::endpoint_slice,
        ("networking.k8s.io", "servicecidrs") => network::service_range,
        ("networking.k8s.io", "ipaddresses") => network::address,
        ("flowcontrol.apiserver.k8s.io", "flowschemas") => flow::schema,
        ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations") => flow::level,
        ("storage.k8s.io", "csinodes") => storage::csi_node,
        ("storage.k8s.io", "volumeattachments") => storage::attachment,
        ("storage.k8s.io", "storageclasses") => storage::class,
        ("storage.k8s.io", "csidrivers") => storage::csi_driver,
        ("scheduling.k8s.io", "priorityclasses") => core::priority_class,
        ("coordination.k8s.io", "leases") => core::lease,
        ("node.k8s.io", "runtimeclasses") => core::runtime_class,
        ("admissionregistration.k8s.io", "validatingadmissionpolicies") => policies::validating,
        ("admissionregistration.k8s.io", "validatingadmissionpolicybindings") => policies::validating_binding,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicies") => policies::mutating,
        ("admissionregistration.k8s.io", "mutatingadmissionpolicybindings") => policies::mutating_binding,
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations") => admission::validating,
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations") => admission::mutating,
        _ => return,
    };
    check(&object, errors);
}

#[cfg(test)]
mod tests;
