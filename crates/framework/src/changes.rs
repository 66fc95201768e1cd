//! What a write changed, field by field.
//!
//! Kept with each write, so that "what did it do?" is answered without comparing two objects by eye. It is
//! bounded, and what is secret is not in it.

use crate::kind::Kind;
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Fields of one write that are told apart; more than that are a new object.
const MOST: usize = 60;
/// Values whose JSON is longer are not kept.
const LONGEST_VALUE: usize = 512;
/// What the server keeps by itself with every write.
const BOOKKEEPING: &[&str] = &[
    "/metadata/managedFields",
    "/metadata/resourceVersion",
    "/metadata/generation",
    "/metadata/uid",
    "/metadata/creationTimestamp",
    "/apiVersion",
    "/kind",
];
/// What stands for a value that nobody may see.
const HIDDEN: &str = "(hidden)";

/// One field that a write changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FieldChange {
    /// Where, as a JSON pointer.
    pub field: String,
    /// The value before; none if there was none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// The value after; none if it was taken out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Value>,
}

/// What differs between an object before and after a write.
pub fn between(before: &Value, after: &Value) -> Vec<FieldChange> {
    let mut found = Vec::new();
    compare(String::new(), Some(before), Some(after), &mut found);
    found
}

/// What a write asks for that an object does not have: for writes whose answer is not known, or not the whole.
pub fn asked(before: Option<&Value>, body: &Value) -> Vec<FieldChange> {
    let mut found = Vec::new();
    leaves(String::new(), body, &mut |field, value| {
        let old = before.and_then(|before| before.pointer(&field)).cloned();
        if old.as_ref() != Some(value) && !is_bookkeeping(&field) {
            push(&mut found, field, old, Some(value.clone()));
        }
    });
    found
}

fn compare(field: String, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<FieldChange>) {
    if before == after || found.len() >= MOST || is_bookkeeping(&field) {
        return;
    }
    match (before, after) {
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            for name in old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))) {
                compare(step(&field, name), old.get(name), new.get(name), found);
            }
        }
        (Some(Value::Array(old)), Some(Value::Array(new))) if old.len() == new.len() => {
            for (position, (old, new)) in old.iter().zip(new).enumerate() {
                compare(format!("{field}/{position}"), Some(old), Some(new), found);
            }
        }
        _ => push(found, field, before.cloned(), after.cloned()),
    }
}

fn leaves(field: String, value: &Value, visit: &mut impl FnMut(String, &Value)) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                leaves(step(&field, name), value, visit);
            }
        }
        other => visit(field, other),
    }
}

fn push(found: &mut Vec<FieldChange>, field: String, before: Option<Value>, after: Option<Value>) {
    if found.len() < MOST {
        let (before, after) = (before.map(shorten), after.map(shorten));
        found.push(FieldChange { field, before, after });
    }
}

fn shorten(value: Value) -> Value {
    match value.to_string().len() {
        length if length > LONGEST_VALUE => json!(format!("({length} bytes)")),
        _ => value,
    }
}

fn step(field: &str, name: &str) -> String {
    format!("{field}/{}", name.replace('~', "~0").replace('/', "~1"))
}

fn is_bookkeeping(field: &str) -> bool {
    BOOKKEEPING.contains(&field)
}

/// Takes what is secret out of what will be shown.
pub(crate) fn hide(kind: &Kind, body: &mut Value, changes: &mut [FieldChange]) {
    if !(kind.group.is_empty() && kind.kind == "Secret") {
        return;
    }
    for field in ["data", "stringData"] {
        if let Some(values) = body.get_mut(field).and_then(Value::as_object_mut) {
            mask(values);
        }
    }
    for change in changes {
        let secret = ["/data", "/stringData", ""].contains(&change.field.as_str())
            || change.field.starts_with("/data/")
            || change.field.starts_with("/stringData/");
        if secret {
            change.before = change.before.as_ref().map(|_| json!(HIDDEN));
            change.after = change.after.as_ref().map(|_| json!(HIDDEN));
        }
    }
}

fn mask(values: &mut Map<String, Value>) {
    for value in values.values_mut() {
        *value = json!(HIDDEN);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{ConfigMap, Secret};

    #[test]
    fn a_change_names_each_field_and_leaves_bookkeeping_out() {
        let before = json!({"metadata": {"resourceVersion": "1"}, "spec": {"replicas": 2, "paused": true, "a/b": 1}});
        let after = json!({"metadata": {"resourceVersion": "2"}, "spec": {"replicas": 3, "a/b": 2}});
        let shown: Vec<_> = between(&before, &after)
            .into_iter()
            .map(|change| format!("{}: {:?} -> {:?}", change.field, change.before, change.after))
            .collect();
        assert_eq!(
            shown,
            [
                "/spec/a~1b: Some(Number(1)) -> Some(Number(2))",
                "/spec/paused: Some(Bool(true)) -> None",
                "/spec/replicas: Some(Number(2)) -> Some(Number(3))",
            ]
        );
    }

    #[test]
    fn what_is_asked_for_and_there_already_is_no_change() {
        let before = json!({"data": {"a": "1", "b": "2"}});
        let changes = asked(Some(&before), &json!({"data": {"a": "1", "b": "3", "c": null}}));
        let fields: Vec<_> = changes.iter().map(|change| change.field.as_str()).collect();
        assert_eq!(fields, ["/data/b", "/data/c"]);
    }

    #[test]
    fn nothing_secret_is_shown() {
        let (before, mut body) = (json!({"data": {"key": "b2xk"}}), json!({"data": {"key": "bmV3"}}));
        let mut changes = between(&before, &body);
        hide(&Kind::of::<Secret>(), &mut body, &mut changes);
        let shown = format!("{body} {changes:?}");
        assert!(
            shown.contains(HIDDEN) && !shown.contains("b2xk") && !shown.contains("bmV3"),
            "{shown}"
        );
        let mut open = json!({"data": {"key": "value"}});
        hide(&Kind::of::<ConfigMap>(), &mut open, &mut []);
        assert_eq!(open["data"]["key"], "value");
    }
}
