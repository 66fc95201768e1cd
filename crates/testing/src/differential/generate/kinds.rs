//! The built-in kinds that sequences are about: a valid object each, and what may be changed in it.

use super::super::sequence::Step;
use super::{Story, Subject};
use rand::Rng;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Data, not code, because it grows by lines.
const KINDS: &str = include_str!("../../../data/differential/kinds.yaml");

#[derive(Deserialize)]
struct Entry {
    kind: String,
    api: String,
    resource: String,
    #[serde(default)]
    cluster: bool,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default)]
    subresources: Vec<String>,
    #[serde(default)]
    selectors: Vec<String>,
    #[serde(default)]
    base: Value,
    #[serde(default)]
    fields: BTreeMap<String, Vec<Value>>,
}

fn one() -> u32 {
    1
}

static ENTRIES: LazyLock<Vec<Entry>> =
    LazyLock::new(|| serde_saphyr::from_str(KINDS).expect("the data is part of the program, and a test reads it"));

/// Metadata that a client may set, good and bad.
pub fn metadata() -> Vec<(String, Vec<Value>)> {
    let pool = [
        ("/metadata/labels/app", json!(["web", "db", "", null, "not a label", 7])),
        ("/metadata/labels/tier", json!(["x", null])),
        ("/metadata/labels", json!([{"app": "web"}, {}, null, {"bad key!": "x"}])),
        (
            "/metadata/annotations/note",
            json!(["text", "", null, "with \"quotes\" and ünïcode"]),
        ),
        (
            "/metadata/annotations",
            json!([{"a": "b"}, null, {"bad key!": "x"}, {"n": 1}]),
        ),
        (
            "/metadata/finalizers",
            json!([
                ["example.com/hold"],
                [],
                null,
                ["not-qualified"],
                ["example.com/hold", "example.com/hold"]
            ]),
        ),
        (
            "/metadata/ownerReferences",
            json!([
                [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "11111111-2222-3333-4444-555555555555"}],
                [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": ""}],
                [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "1", "controller": true},
                 {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "2", "controller": true}],
                [{"kind": "ConfigMap", "name": "owner", "uid": "1"}],
                null
            ]),
        ),
        ("/metadata/creationTimestamp", json!(["2020-01-01T00:00:00Z", null])),
        ("/metadata/deletionTimestamp", json!(["2020-01-01T00:00:00Z", null])),
        ("/metadata/generation", json!([7, null])),
        ("/metadata/uid", json!(["11111111-2222-3333-4444-555555555555", null])),
        (
            "/metadata/managedFields",
            json!([[], null, [{"manager": "odd", "operation": "Update", "apiVersion": "v1"}]]),
        ),
        ("/metadata/generateName", json!(["gen-", null])),
    ];
    pool.into_iter()
        .map(|(pointer, values)| (pointer.to_string(), list(values)))
        .collect()
}

fn list(values: Value) -> Vec<Value> {
    match values {
        Value::Array(values) => values,
        other => vec![other],
    }
}

/// A built-in kind, by weight, after what its objects need.
pub fn subject(story: &mut Story) -> Subject {
    let total: u32 = ENTRIES.iter().map(|entry| entry.weight).sum();
    let mut at = story.rng.random_range(0..total);
    let entry = ENTRIES
        .iter()
        .find(|entry| {
            let here = at < entry.weight;
            at = at.saturating_sub(entry.weight);
            here
        })
        .unwrap_or(&ENTRIES[0]);
    if entry.kind == "Pod" {
        // A controller makes it in a cluster; no pod is admitted without it.
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        story.step(Step::new("POST", "/api/v1/namespaces/{ns}/serviceaccounts").with(account));
    }
    let root = match entry.api.contains('/') {
        true => format!("/apis/{}", entry.api),
        false => format!("/api/{}", entry.api),
    };
    let namespace = if entry.cluster { "" } else { "/namespaces/{ns}" };
    let (status, fields) = entry
        .fields
        .iter()
        .map(|(pointer, values)| (pointer.clone(), values.clone()))
        .partition(|(pointer, _)| pointer.starts_with("/status"));
    Subject {
        since: 0,
        api_version: entry.api.clone(),
        kind: entry.kind.clone(),
        collection: format!("{root}{namespace}/{}", entry.resource),
        namespaced: !entry.cluster,
        base: match &entry.base {
            Value::Null => json!({}),
            base => base.clone(),
        },
        fields,
        status,
        subresources: entry.subresources.clone(),
        field_selectors: entry.selectors.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::ENTRIES;

    #[test]
    fn the_kinds_can_be_read_and_have_fields() {
        assert!(ENTRIES.len() > 20);
        for entry in ENTRIES.iter() {
            assert!(!entry.fields.is_empty(), "{}", entry.kind);
        }
    }
}
