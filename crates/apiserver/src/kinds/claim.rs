//! Claims: what the volume of a claim begins with is named in an old and in a new field, and each fills in the other.

use serde_json::{Map, Value};

/// What is known of the fields when a claim is written; those of an older claim are left as they are.
pub fn prepare(claim: &mut Value, old: Option<&Value>) {
    let said = |field: &str| old.is_some_and(|old| old["spec"][field].is_object());
    let Some(Value::Object(spec)) = claim.get_mut("spec") else {
        return;
    };
    // Sources of other namespaces are behind a gate that is closed.
    if is_elsewhere(spec.get("dataSourceRef")) && !said("dataSourceRef") {
        spec.remove("dataSourceRef");
    }
    // The old field knows only claims and snapshots, and ignored anything else from the beginning.
    let named = |field: &str| spec.get(field).is_some_and(Value::is_object);
    let kept = said("dataSource") || said("dataSourceRef") || named("dataSourceRef");
    if !kept && !spec.get("dataSource").is_some_and(is_claim_or_snapshot) {
        spec.remove("dataSource");
    }
    fill(spec);
}

/// Fills in the field that is missing.
pub fn fill(spec: &mut Map<String, Value>) {
    let source = |field: &str| spec.get(field).filter(|source| source.is_object()).cloned();
    match (source("dataSource"), source("dataSourceRef")) {
        (Some(old), None) => {
            spec.insert("dataSourceRef".to_string(), old);
        }
        (None, Some(mut new)) if !is_elsewhere(Some(&new)) => {
            if let Value::Object(new) = &mut new {
                new.remove("namespace");
            }
            spec.insert("dataSource".to_string(), new);
        }
        _ => {}
    }
}

fn is_elsewhere(reference: Option<&Value>) -> bool {
    reference
        .and_then(|reference| reference["namespace"].as_str())
        .is_some_and(|namespace| !namespace.is_empty())
}

fn is_claim_or_snapshot(source: &Value) -> bool {
    matches!(
        (source["kind"].as_str(), source["apiGroup"].as_str().unwrap_or_default()),
        (Some("PersistentVolumeClaim"), "") | (Some("VolumeSnapshot"), "snapshot.storage.k8s.io")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn prepared(spec: Value, old: Option<Value>) -> Value {
        let mut claim = json!({"spec": spec});
        let old = old.map(|spec| json!({"spec": spec}));
        prepare(&mut claim, old.as_ref());
        claim["spec"].clone()
    }

    #[test]
    fn each_field_fills_in_the_other() {
        let source = json!({"kind": "PersistentVolumeClaim", "name": "a"});
        let both = json!({"dataSource": source, "dataSourceRef": source});
        assert_eq!(prepared(json!({"dataSource": source}), None), both);
        assert_eq!(prepared(json!({"dataSourceRef": source}), None), both);
    }

    #[test]
    fn the_old_field_knows_claims_and_snapshots_unless_it_was_stored_with_more() {
        let other = json!({"kind": "Other", "apiGroup": "g", "name": "a"});
        let both = json!({"dataSource": other, "dataSourceRef": other});
        assert_eq!(prepared(json!({"dataSource": other}), None), json!({}));
        assert_eq!(prepared(json!({"dataSourceRef": other}), None), both);
        assert_eq!(prepared(json!({"dataSource": other}), Some(both.clone())), both);
    }

    #[test]
    fn a_source_in_another_namespace_is_dropped() {
        let far = json!({"kind": "PersistentVolumeClaim", "name": "a", "namespace": "n"});
        assert_eq!(prepared(json!({"dataSourceRef": far}), None), json!({}));
    }
}
