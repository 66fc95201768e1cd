//! Which volume suits a claim. Pure.

use super::{capacity, claim_ref, class_of, class_of_volume, is_for, requested};
use crate::controllers::pods;
use crate::scheduler::filter::affinity;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim};
use std::sync::Arc;

/// The volume that was set aside for this claim, by a person or by us.
pub fn reserved<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a Arc<PersistentVolume>>,
) -> Option<&'a Arc<PersistentVolume>> {
    volumes.into_iter().find(|volume| {
        claim_ref(volume).is_some_and(|reference| is_for(reference, claim))
            && volume.metadata.deletion_timestamp.is_none()
            && mode(volume) == claim_mode(claim)
    })
}

/// The smallest free volume that is large enough, and reachable from the node where one is given.
pub fn best<'a>(
    claim: &PersistentVolumeClaim,
    volumes: impl IntoIterator<Item = &'a Arc<PersistentVolume>>,
    node: Option<&Node>,
) -> Option<&'a Arc<PersistentVolume>> {
    let fitting = volumes
        .into_iter()
        .filter(|volume| is_free(volume) && fits(volume, claim));
    fitting
        .filter(|volume| node.is_none_or(|node| reaches(volume, node)))
        .min_by_key(|volume| (capacity(volume), volume.metadata.name.clone()))
}

fn is_free(volume: &PersistentVolume) -> bool {
    let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
    claim_ref(volume).is_none() && volume.metadata.deletion_timestamp.is_none() && phase == Some("Available")
}

/// Whether a volume is of the claim's class and mode, has its labels, and can do what it asks for.
fn fits(volume: &PersistentVolume, claim: &PersistentVolumeClaim) -> bool {
    let (Some(has), Some(wants)) = (&volume.spec, &claim.spec) else {
        return false;
    };
    let offered = has.access_modes.as_deref().unwrap_or_default();
    let modes = wants.access_modes.iter().flatten().all(|mode| offered.contains(mode));
    let class = class_of_volume(volume) == class_of(claim);
    let labelled = wants.selector.as_ref().is_none_or(|selector| {
        let labels = volume.metadata.labels.clone().unwrap_or_default();
        pods::selector(selector).is_some_and(|selector| selector.matches(&labels))
    });
    modes && class && labelled && mode(volume) == claim_mode(claim) && capacity(volume) >= requested(claim)
}

/// Whether a volume can be used on a node.
pub fn reaches(volume: &PersistentVolume, node: &Node) -> bool {
    let affinity = volume.spec.as_ref().and_then(|spec| spec.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required.as_ref());
    required.is_none_or(|required| {
        let mut terms = required.node_selector_terms.iter();
        terms.any(|term| affinity::matches_term(term, node))
    })
}

fn mode(volume: &PersistentVolume) -> &str {
    let mode = volume.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    mode.unwrap_or("Filesystem")
}

fn claim_mode(claim: &PersistentVolumeClaim) -> &str {
    let mode = claim.spec.as_ref().and_then(|spec| spec.volume_mode.as_deref());
    mode.unwrap_or("Filesystem")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn claim(size: &str, extra: Value) -> PersistentVolumeClaim {
        let mut spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}});
        merge(&mut spec, extra);
        let meta = json!({"name": "data", "namespace": "n", "uid": "c1"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    fn volume(name: &str, size: &str, extra: Value) -> Arc<PersistentVolume> {
        let mut spec = json!({"accessModes": ["ReadWriteOnce", "ReadOnlyMany"], "capacity": {"storage": size}});
        merge(&mut spec, extra);
        let meta = json!({"name": name, "labels": {"disk": name}});
        let status = json!({"phase": "Available"});
        Arc::new(serde_json::from_value(json!({"metadata": meta, "spec": spec, "status": status})).unwrap())
    }

    fn merge(into: &mut Value, extra: Value) {
        let Value::Object(extra) = extra else { return };
        for (key, value) in extra {
            into[key] = value;
        }
    }

    fn name(found: Option<&Arc<PersistentVolume>>) -> Option<&str> {
        found.and_then(|volume| volume.metadata.name.as_deref())
    }

    #[test]
    fn the_smallest_volume_that_is_large_enough_is_taken() {
        let volumes = [
            volume("small", "1Gi", json!({})),
            volume("large", "10Gi", json!({})),
            volume("medium", "2Gi", json!({})),
        ];
        assert_eq!(name(best(&claim("1500Mi", json!({})), &volumes, None)), Some("medium"));
        assert_eq!(name(best(&claim("5Gi", json!({})), &volumes, None)), Some("large"));
        assert_eq!(name(best(&claim("50Gi", json!({})), &volumes, None)), None);
    }

    #[test]
    fn class_mode_access_and_labels_must_agree() {
        let volumes = [
            volume("fast", "1Gi", json!({"storageClassName": "fast"})),
            volume("raw", "1Gi", json!({"volumeMode": "Block"})),
            volume("plain", "1Gi", json!({})),
        ];
        let check = |extra: Value, expected: Option<&str>| {
            assert_eq!(
                name(best(&claim("1Gi", extra.clone()), &volumes, None)),
                expected,
                "{extra}"
            );
        };
        check(json!({}), Some("plain"));
        check(json!({"storageClassName": ""}), Some("plain"));
        check(json!({"storageClassName": "fast"}), Some("fast"));
        check(json!({"volumeMode": "Block"}), Some("raw"));
        check(json!({"accessModes": ["ReadWriteMany"]}), None);
        check(json!({"selector": {"matchLabels": {"disk": "plain"}}}), Some("plain"));
        check(json!({"selector": {"matchLabels": {"disk": "other"}}}), None);
    }

    #[test]
    fn a_reserved_volume_goes_to_its_claim_and_to_no_other() {
        let reserve = |uid: &str| json!({"claimRef": {"name": "data", "namespace": "n", "uid": uid}});
        let claim = claim("1Gi", json!({}));
        for (uid, expected) in [("", Some("v")), ("c1", Some("v")), ("c0", None)] {
            let volumes = [volume("v", "1Gi", reserve(uid))];
            assert_eq!(name(reserved(&claim, &volumes)), expected, "{uid}");
            assert_eq!(name(best(&claim, &volumes, None)), None);
        }
    }

    #[test]
    fn a_volume_of_one_node_suits_pods_there_alone() {
        let only = json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "host", "operator": "In", "values": ["a"]}]}]}}});
        let volumes = [volume("v", "1Gi", only)];
        let node = |name: &str| -> Node {
            serde_json::from_value(json!({"metadata": {"name": name, "labels": {"host": name}}})).unwrap()
        };
        let claim = claim("1Gi", json!({}));
        assert_eq!(name(best(&claim, &volumes, Some(&node("a")))), Some("v"));
        assert_eq!(name(best(&claim, &volumes, Some(&node("b")))), None);
    }
}
