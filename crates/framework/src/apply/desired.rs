//! The object that is sent for a child: the plan's fields and what ties it to its root.

use super::{ROOT_ANNOTATION, ROOT_UID_LABEL};
use crate::key::Key;
use crate::kind::{Kind, Scope};
use crate::plan::{Child, Ownership, Replace};
use serde_json::{Value, json};

/// The root, as far as its children care.
pub(crate) struct RootFacts {
    pub kind: Kind,
    pub key: Key,
    pub uid: String,
}

/// A child of the plan, complete.
pub(crate) struct Desired {
    pub kind: Kind,
    pub key: Key,
    pub object: Value,
    pub ownership: Ownership,
    pub replace: Replace,
}

/// Completes a child: type, name, namespace, and the tie to its root.
pub(crate) fn complete(child: Child, root: &RootFacts) -> Desired {
    let namespace = match child.kind.scope {
        Scope::Cluster => None,
        Scope::Namespaced => child.key.namespace().or(root.key.namespace()),
    };
    let key = Key::new(namespace, child.key.name());
    let mut object = child.object;
    object["apiVersion"] = json!(child.kind.api_version());
    object["kind"] = json!(child.kind.kind);
    if let Some(fields) = object.as_object_mut() {
        // The status is the business of whoever runs the child.
        fields.remove("status");
        let meta = fields.entry("metadata").or_insert_with(|| json!({}));
        meta["name"] = json!(key.name());
        if let Some(namespace) = namespace {
            meta["namespace"] = json!(namespace);
        }
        if let Some(meta) = meta.as_object_mut() {
            for field in [
                "uid",
                "resourceVersion",
                "managedFields",
                "creationTimestamp",
                "generation",
            ] {
                meta.remove(field);
            }
        }
        match child.ownership {
            Ownership::Controlled => {
                meta["ownerReferences"] = json!([{
                    "apiVersion": root.kind.api_version(),
                    "kind": root.kind.kind,
                    "name": root.key.name(),
                    "uid": root.uid,
                    "controller": true,
                    "blockOwnerDeletion": true,
                }]);
            }
            Ownership::Labelled => {
                insert(meta, "labels", ROOT_UID_LABEL, &root.uid);
                insert(meta, "annotations", ROOT_ANNOTATION, &root.key.to_string());
            }
        }
    }
    Desired {
        kind: child.kind,
        key,
        object,
        ownership: child.ownership,
        replace: child.replace,
    }
}

fn insert(meta: &mut Value, map: &str, name: &str, value: &str) {
    if let Some(meta) = meta.as_object_mut() {
        let map = meta.entry(map).or_insert_with(|| json!({}));
        if let Some(map) = map.as_object_mut() {
            map.insert(name.to_owned(), json!(value));
        }
    }
}
