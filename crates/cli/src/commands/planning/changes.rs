//! Where two states of an object differ, field by field. Pure.

use serde::Serialize;
use serde_json::Value;

/// One field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Change {
    /// `spec.template.spec.containers[app].image`.
    pub path: String,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub from: Value,
    #[serde(skip_serializing_if = "Value::is_null")]
    pub to: Value,
}

/// Metadata that the server keeps for itself, or that only an applied object has.
const NOT_COMPARED: &[&str] = &[
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "ownerReferences",
    "selfLink",
];

/// Every field in which `after` differs from `before`; the status is nobody's wish.
pub fn between(before: &Value, after: &Value) -> Vec<Change> {
    let mut found = Vec::new();
    compare("", &stripped(before), &stripped(after), &mut found);
    found
}

fn stripped(object: &Value) -> Value {
    let mut object = object.clone();
    if let Value::Object(fields) = &mut object {
        fields.remove("status");
    }
    if let Some(Value::Object(meta)) = object.get_mut("metadata") {
        meta.retain(|name, _| !NOT_COMPARED.contains(&name.as_str()));
    }
    object
}

fn compare(path: &str, before: &Value, after: &Value, found: &mut Vec<Change>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let mut names: Vec<&String> = old.keys().chain(new.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let place = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                let get = |fields: &serde_json::Map<String, Value>| fields.get(name).cloned().unwrap_or_default();
                compare(&place, &get(old), &get(new), found);
            }
        }
        (Value::Array(old), Value::Array(new)) => {
            for (label, old, new) in paired(old, new) {
                compare(&format!("{path}[{label}]"), &old, &new, found);
            }
        }
        (old, new) if old == new => {}
        (old, new) => found.push(Change {
            path: path.to_owned(),
            from: old.clone(),
            to: new.clone(),
        }),
    }
}

/// Items of two lists that belong together: by name where all have one, else by position.
fn paired(old: &[Value], new: &[Value]) -> Vec<(String, Value, Value)> {
    let name = |item: &Value| item["name"].as_str().map(str::to_owned);
    if old.iter().chain(new).all(|item| name(item).is_some()) {
        let find = |items: &[Value], wanted: &str| {
            let found = items.iter().find(|item| item["name"] == wanted);
            found.cloned().unwrap_or_default()
        };
        let mut names: Vec<String> = old.iter().chain(new).filter_map(name).collect();
        let mut seen = std::collections::BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        return names
            .into_iter()
            .map(|name| {
                let (old, new) = (find(old, &name), find(new, &name));
                (name, old, new)
            })
            .collect();
    }
    let at = |items: &[Value], index: usize| items.get(index).cloned().unwrap_or_default();
    (0..old.len().max(new.len()))
        .map(|index| (index.to_string(), at(old, index), at(new, index)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_that_differ_are_named_and_what_the_server_keeps_is_not() {
        let before = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "1"}}, "spec": {"containers": [
            {"name": "app", "image": "x:1"}, {"name": "old"}]}, "status": {"x": 1}});
        let after = json!({"metadata": {"resourceVersion": "2", "labels": {"a": "1"}}, "spec": {"containers": [
            {"name": "app", "image": "x:2", "args": ["b"]}]}});
        let paths: Vec<String> = between(&before, &after).into_iter().map(|change| change.path).collect();
        assert_eq!(
            paths,
            [
                "spec.containers[app].args",
                "spec.containers[app].image",
                "spec.containers[old]"
            ]
        );
        assert_eq!(between(&before, &before), []);
    }
}
