//! JSON merge patch (RFC 7386): objects merge, `null` removes, everything else replaces.

use super::PatchError;
use serde_json::Value;

/// Merges a patch into a document. The patch must be an object, as every API object is one.
pub fn apply(document: &mut Value, patch: Value) -> Result<(), PatchError> {
    if !patch.is_object() {
        return Err(PatchError::Malformed("Invalid JSON Patch".to_string()));
    }
    merge(document, patch);
    Ok(())
}

fn merge(target: &mut Value, patch: Value) {
    let patch = match patch {
        Value::Object(patch) => patch,
        mut other => {
            // What replaces an object stays as it is; what replaces anything else loses its null fields, as it
            // would where it is new.
            if !target.is_object() {
                prune_nulls(&mut other);
            }
            *target = other;
            return;
        }
    };
    let Value::Object(target) = target else {
        *target = Value::Object(patch);
        prune_nulls(target);
        return;
    };
    for (key, mut value) in patch {
        if value.is_null() {
            target.remove(&key);
            continue;
        }
        match target.get_mut(&key) {
            Some(current) if !current.is_null() => merge(current, value),
            _ => {
                prune_nulls(&mut value);
                target.insert(key, value);
            }
        }
    }
}

/// Removes null fields at any depth; nulls that are items of lists stay.
pub(super) fn prune_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(prune_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(prune_nulls),
        _ => {}
    }
}
