//! Facts about kinds that the verbs look up: what Kubernetes calls a strategy.

use crate::catalogue::{Origin, Resource};
use crate::verbs::Call;
use crate::verbs::object;
use serde_json::Value;

/// How the verbs treat a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Strategy {
    /// An update may leave the resourceVersion out.
    pub unconditional_update: bool,
    /// A put may create the object.
    pub create_on_update: bool,
    /// The status is changed at its own path only.
    pub status_apart: bool,
    /// The answer to a delete is the object, not a Status.
    pub returns_deleted: bool,
    /// Foreground and orphan deletion mean something.
    pub collects_garbage: bool,
    /// Children outlive a delete that does not say what becomes of them.
    pub orphans_by_default: bool,
    pub generation: Generation,
}

/// When `metadata.generation` counts up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Generation {
    /// The kind has none.
    Never,
    /// With every change of the spec.
    Spec,
    /// With every change of the spec, from an object that has none.
    SpecLater,
    /// With every change of the spec or the annotations.
    SpecAndAnnotations,
    /// With every change of anything but metadata and status.
    Content,
    /// With every change of anything but status and metadata other than labels.
    ContentAndLabels,
    /// It stays at 1.
    Fixed,
}

pub fn of(resource: &Resource) -> Strategy {
    let custom = matches!(resource.origin, Origin::Custom(_));
    let id = super::id(resource);
    Strategy {
        unconditional_update: !custom && !refuses_unconditional(id),
        create_on_update: !custom && creates_on_update(id),
        status_apart: true,
        returns_deleted: returns_deleted(id),
        collects_garbage: !matches!(id, ("", "events") | ("events.k8s.io", "events")),
        orphans_by_default: matches!(id, ("batch", "jobs") | ("", "replicationcontrollers")),
        generation: match custom {
            true => Generation::Content,
            false => generation(id),
        },
    }
}

fn refuses_unconditional(id: (&str, &str)) -> bool {
    matches!(
        id,
        ("node.k8s.io", "runtimeclasses")
            | ("policy", "poddisruptionbudgets")
            | (
                "storage.k8s.io",
                "csidrivers" | "csistoragecapacities" | "volumeattachments" | "csinodes"
            )
            | ("coordination.k8s.io", "leases")
            | ("admissionregistration.k8s.io", _)
            | ("apiextensions.k8s.io", _)
            | ("apiregistration.k8s.io", _)
    )
}

fn creates_on_update(id: (&str, &str)) -> bool {
    matches!(
        id,
        ("node.k8s.io", "runtimeclasses")
            | ("rbac.authorization.k8s.io", _)
            | ("coordination.k8s.io", "leases")
            | ("", "limitranges" | "events" | "services" | "endpoints")
            | ("events.k8s.io", "events")
    )
}

fn returns_deleted(id: (&str, &str)) -> bool {
    matches!(
        id,
        (
            "",
            "pods"
                | "services"
                | "serviceaccounts"
                | "podtemplates"
                | "resourcequotas"
                | "persistentvolumes"
                | "persistentvolumeclaims"
        ) | ("storage.k8s.io", _)
            | ("resource.k8s.io", _)
    )
}

fn generation(id: (&str, &str)) -> Generation {
    match id {
        ("apps", "deployments" | "replicasets") => match id.1 {
            "deployments" => Generation::SpecAndAnnotations,
            _ => Generation::Spec,
        },
        ("apps", "daemonsets" | "statefulsets") => Generation::Spec,
        ("batch", "jobs" | "cronjobs") => Generation::Spec,
        ("", "pods" | "replicationcontrollers") => Generation::Spec,
        ("", "podtemplates") => Generation::Content,
        ("networking.k8s.io", "ingresses" | "networkpolicies" | "ingressclasses") => Generation::Spec,
        ("policy", "poddisruptionbudgets") => Generation::Spec,
        ("discovery.k8s.io", "endpointslices") => Generation::ContentAndLabels,
        ("flowcontrol.apiserver.k8s.io", _) => Generation::Spec,
        ("resource.k8s.io", "resourceslices" | "deviceclasses") => Generation::Spec,
        ("scheduling.k8s.io", "priorityclasses") => Generation::Fixed,
        ("storage.k8s.io", "csidrivers") => Generation::SpecLater,
        ("admissionregistration.k8s.io", _) => Generation::Content,
        ("apiextensions.k8s.io", "customresourcedefinitions") => Generation::Spec,
        _ => Generation::Never,
    }
}

/// The generation of a new object.
pub fn start_generation(resource: &Resource, object: &mut Value) {
    match of(resource).generation {
        // What a client sets is kept, since nobody counts.
        Generation::Never | Generation::SpecLater => {}
        Generation::Spec
        | Generation::SpecAndAnnotations
        | Generation::Content
        | Generation::ContentAndLabels
        | Generation::Fixed => {
            object::set_generation(object, 1);
        }
    }
}

/// Counts the generation up if the update changes what it counts.
pub fn bump_generation(call: &Call, object: &mut Value, old: &Value) {
    let differs = |field: &str| object.get(field) != old.get(field);
    let changed = match of(&call.resource).generation {
        Generation::Never | Generation::Fixed => false,
        Generation::Spec | Generation::SpecLater => differs("spec"),
        Generation::SpecAndAnnotations => {
            differs("spec") || object["metadata"]["annotations"] != old["metadata"]["annotations"]
        }
        Generation::Content => content(call, object) != content(call, old),
        Generation::ContentAndLabels => {
            content(call, object) != content(call, old) || object["metadata"]["labels"] != old["metadata"]["labels"]
        }
    };
    if changed && call.path.subresource != "status" {
        object::set_generation(object, object::generation(old) + 1);
    }
}

/// Everything but metadata, and but the status where that has a path of its own.
fn content<'a>(call: &Call, object: &'a Value) -> Vec<(&'a String, &'a Value)> {
    let apart = call.resource.has_status();
    object
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(name, _)| match name.as_str() {
            "metadata" | "apiVersion" | "kind" => false,
            "status" => !apart,
            _ => true,
        })
        .collect()
}

/// Whether nobody comes to own metadata by an update of the status, since next to none of it is changed.
pub fn status_keeps_metadata(resource: &Resource) -> bool {
    matches!(resource.origin, Origin::Custom(_))
        || matches!(
            super::id(resource),
            ("flowcontrol.apiserver.k8s.io" | "apiregistration.k8s.io", _)
                | ("networking.k8s.io", "servicecidrs")
                | ("storage.k8s.io", "volumeattachments")
                | ("resource.k8s.io", "resourceclaims")
                | ("admissionregistration.k8s.io", "validatingadmissionpolicies")
        )
}

/// What says most of an object besides its state, and stays as it is where a part of the object is written.
const DESCRIPTION: [&str; 6] = [
    "labels",
    "annotations",
    "finalizers",
    "ownerReferences",
    "deletionTimestamp",
    "selfLink",
];

/// The metadata of an object whose status is updated: most kinds take all of it along.
pub fn status_metadata(resource: &Resource, sent: &Value, old: &Value) -> Value {
    match (&resource.origin, super::id(resource)) {
        (Origin::Custom(_), _) | (_, ("flowcontrol.apiserver.k8s.io", _)) => {
            let mut kept = old.clone();
            object::copy_meta(sent, &mut kept, "managedFields");
            kept["metadata"].take()
        }
        (_, ("apps", "deployments")) => metadata_but(&["labels"], sent, old),
        // Old kubelets spoil the owners.
        (_, ("", "pods")) => metadata_but(&["ownerReferences", "deletionTimestamp"], sent, old),
        (_, ("apiregistration.k8s.io", _)) => metadata_but(&DESCRIPTION[..4], sent, old),
        _ if status_keeps_metadata(resource) => part_metadata(sent, old),
        _ => sent["metadata"].clone(),
    }
}

/// The metadata of an object of which one list is updated.
pub fn part_metadata(sent: &Value, old: &Value) -> Value {
    metadata_but(&DESCRIPTION, sent, old)
}

/// What was sent, but for fields that stay.
fn metadata_but(kept: &[&str], sent: &Value, old: &Value) -> Value {
    let mut changed = serde_json::json!({ "metadata": sent["metadata"] });
    for field in kept {
        object::copy_meta(old, &mut changed, field);
    }
    changed["metadata"].take()
}

/// Kinds whose metadata is only looked at when nothing else is wrong.
pub fn judges_metadata_last(resource: &Resource) -> bool {
    matches!(super::id(resource), ("policy", "poddisruptionbudgets") | ("", "events"))
}

/// Whether the prefix of a made-up name is judged only when the object is made; it says nothing afterwards.
pub fn judges_prefix_once(resource: &Resource) -> bool {
    matches!(
        super::id(resource),
        (
            "",
            "podtemplates" | "replicationcontrollers" | "resourcequotas" | "services"
        ) | ("apps", "daemonsets" | "deployments" | "replicasets" | "statefulsets")
            | ("autoscaling", "horizontalpodautoscalers")
            | ("batch", "cronjobs")
            | ("coordination.k8s.io", "leases")
            | ("networking.k8s.io", "networkpolicies")
            | ("scheduling.k8s.io", "priorityclasses")
            | ("storage.k8s.io", "csidrivers")
    )
}

/// Whether nothing of the spec holds a deleted object: namespaces have finalizers of their own there.
pub fn is_released(object: &Value) -> bool {
    object["kind"] != "Namespace" || object["spec"]["finalizers"].as_array().is_none_or(Vec::is_empty)
}
