//! Who a pod of a StatefulSet is: its name, its labels, its claims, and who owns those.

use super::steps::Place;
use crate::controllers::{history, ownership};
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{
    PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, PodTemplateSpec, Volume,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::collections::BTreeMap;

const NAME_LABEL: &str = "statefulset.kubernetes.io/pod-name";
const INDEX_LABEL: &str = "apps.kubernetes.io/pod-index";

/// The ordinal in a pod's name, if it is named after this set.
pub fn ordinal_in(set: &StatefulSet, pod: &Pod) -> Option<i32> {
    let name = pod.metadata.name.as_deref()?;
    let digits = name.strip_prefix(set.metadata.name.as_deref()?)?.strip_prefix('-')?;
    let canonical = digits == "0" || !digits.starts_with('0');
    (canonical && digits.bytes().all(|byte| byte.is_ascii_digit()))
        .then(|| digits.parse().ok())
        .flatten()
}

pub fn pod_name(set: &StatefulSet, ordinal: i32) -> String {
    format!("{}-{ordinal}", set.metadata.name.as_deref().unwrap_or_default())
}

/// The pod with this ordinal, made from a revision's template.
pub fn pod(set: &StatefulSet, template: &PodTemplateSpec, ordinal: i32, revision: &str) -> Pod {
    let name = pod_name(set, ordinal);
    let mut metadata = template.metadata.clone().unwrap_or_default();
    metadata.name = Some(name.clone());
    metadata.namespace = set.metadata.namespace.clone();
    metadata.owner_references = Some(vec![ownership::controller_reference(set)]);
    let labels = metadata.labels.get_or_insert_default();
    labels.insert(NAME_LABEL.to_string(), name.clone());
    labels.insert(INDEX_LABEL.to_string(), ordinal.to_string());
    labels.insert(history::HASH_LABEL.to_string(), revision.to_string());
    let mut spec = template.spec.clone().unwrap_or_default();
    spec.hostname = Some(name);
    spec.subdomain = set.spec.as_ref().and_then(|spec| spec.service_name.clone());
    let claims = set
        .spec
        .iter()
        .flat_map(|spec| spec.volume_claim_templates.iter().flatten());
    for template in claims {
        let volume_name = template.metadata.name.clone().unwrap_or_default();
        let volumes = spec.volumes.get_or_insert_default();
        volumes.retain(|volume| volume.name != volume_name);
        volumes.push(Volume {
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: claim_name(set, &volume_name, ordinal),
                read_only: Some(false),
            }),
            name: volume_name,
            ..Volume::default()
        });
    }
    Pod {
        metadata,
        spec: Some(spec),
        status: None,
    }
}

/// The labels by which a pod is known and which it has not, if any.
pub fn lost_labels(set: &StatefulSet, pod: &Pod, ordinal: i32) -> Option<BTreeMap<&'static str, String>> {
    let wanted = [(NAME_LABEL, pod_name(set, ordinal)), (INDEX_LABEL, ordinal.to_string())];
    let has = |name: &str| pod.metadata.labels.as_ref().and_then(|labels| labels.get(name));
    let lost: BTreeMap<_, _> = wanted
        .into_iter()
        .filter(|(name, value)| has(name) != Some(value))
        .collect();
    (!lost.is_empty()).then_some(lost)
}

fn claim_name(set: &StatefulSet, volume: &str, ordinal: i32) -> String {
    format!("{volume}-{}", pod_name(set, ordinal))
}

/// The claims of the pod with this ordinal.
pub fn claims(set: &StatefulSet, ordinal: i32) -> Vec<PersistentVolumeClaim> {
    let Some(spec) = &set.spec else {
        return Vec::new();
    };
    let claim = |template: &PersistentVolumeClaim| {
        let mut claim = template.clone();
        let volume = template.metadata.name.as_deref().unwrap_or_default();
        claim.metadata.name = Some(claim_name(set, volume, ordinal));
        claim.metadata.namespace = set.metadata.namespace.clone();
        let labels = claim.metadata.labels.get_or_insert_default();
        labels.extend(spec.selector.match_labels.clone().unwrap_or_default());
        claim.status = None;
        claim
    };
    spec.volume_claim_templates.iter().flatten().map(claim).collect()
}

/// Who shall own a claim, if that is not as it is: the set where claims go with it, the pod while it is being scaled
/// away and claims go with that.
pub fn claim_owners(
    set: &StatefulSet,
    pod: &Pod,
    place: Place,
    claim: &PersistentVolumeClaim,
) -> Option<Vec<OwnerReference>> {
    let policy = set.spec.as_ref()?.persistent_volume_claim_retention_policy.as_ref()?;
    let deletes = |policy: &Option<String>| policy.as_deref() == Some("Delete");
    let by_pod = deletes(&policy.when_scaled) && place == Place::Condemned;
    let by_set = deletes(&policy.when_deleted) && !by_pod;
    let before = claim.metadata.owner_references.clone().unwrap_or_default();
    let mut after: Vec<_> = before
        .iter()
        .filter(|owner| Some(&owner.uid) != set.metadata.uid.as_ref() && Some(&owner.uid) != pod.metadata.uid.as_ref())
        .cloned()
        .collect();
    if by_set {
        after.push(ownership::controller_reference(set));
    }
    if by_pod {
        after.push(ownership::controller_reference(pod));
    }
    let uids = |owners: &[OwnerReference]| {
        let mut uids: Vec<String> = owners.iter().map(|owner| owner.uid.clone()).collect();
        uids.sort();
        uids
    };
    (uids(&before) != uids(&after)).then_some(after)
}
