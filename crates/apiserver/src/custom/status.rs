//! The status of a definition, worked out while it is written.
//!
//! In Kubernetes three controllers take turns at it; here the same conditions are there at once, with
//! the same reasons and messages, because nothing has to be waited for.

use super::definition::{Names, is_true};
use super::names;
use crate::verbs::Call;
use crate::verbs::object;
use serde_json::{Map, Value, json};

/// Fills in what a new definition leaves out, and its status.
pub fn prepare_create(call: &Call, definition: &mut Value) {
    default_spec(definition);
    definition["status"] = json!({"conditions": [], "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": []});
    refresh(call, definition);
}

/// Keeps the status true on an update of the spec; the status path is a client's own business.
pub fn prepare_update(call: &Call, definition: &mut Value) {
    default_spec(definition);
    if call.path.subresource.is_empty() {
        refresh(call, definition);
    }
}

fn default_spec(definition: &mut Value) {
    let spec = object::map_mut(definition, "spec");
    spec.entry("conversion").or_insert_with(|| json!({"strategy": "None"}));
    let mut names = spec.remove("names").unwrap_or_default();
    let kind = names["kind"].as_str().unwrap_or_default().to_string();
    if let Value::Object(names) = &mut names {
        names.entry("singular").or_insert_with(|| kind.to_lowercase().into());
        if !kind.is_empty() {
            names.entry("listKind").or_insert_with(|| format!("{kind}List").into());
        }
    }
    spec.insert("names".to_string(), names);
}

fn refresh(call: &Call, definition: &mut Value) {
    let name = object::name(definition).to_string();
    let group = definition["spec"]["group"].as_str().unwrap_or_default().to_string();
    let others = call.shared.definitions();
    let others = others
        .values()
        .filter(|other| other.group == group && other.name != name);
    let wanted = Names::read(&definition["spec"]["names"]);
    let before = Names::read(&definition["status"]["acceptedNames"]);
    let verdict = names::decide(&wanted, &before, others.map(|other| &**other));
    definition["status"]["acceptedNames"] = encode(&verdict.accepted);
    let now = object::time(call.now);
    match &verdict.conflict {
        None => set(
            definition,
            "NamesAccepted",
            "True",
            "NoConflicts",
            "no conflicts found",
            &now,
        ),
        Some((reason, message)) => set(definition, "NamesAccepted", "False", reason, message, &now),
    }
    if !is_true(definition, "Established") {
        match verdict.conflict {
            None => {
                let message = "the initial names have been accepted";
                set(definition, "Established", "True", "InitialNamesAccepted", message, &now);
            }
            Some(_) => set(
                definition,
                "Established",
                "False",
                "NotAccepted",
                "not all names are accepted",
                &now,
            ),
        }
    }
    store_version(definition);
}

/// Every version that objects were ever stored in stays listed until somebody has migrated them.
fn store_version(definition: &mut Value) {
    let versions = definition["spec"]["versions"].as_array().into_iter().flatten();
    let storage = versions.into_iter().find(|version| version["storage"] == true);
    let storage = storage
        .and_then(|version| version["name"].as_str())
        .unwrap_or_default()
        .to_string();
    let mut stored = object::strings(&definition["status"]["storedVersions"]);
    if !storage.is_empty() && !stored.contains(&storage) {
        stored.push(storage);
    }
    definition["status"]["storedVersions"] = json!(stored);
}

fn encode(names: &Names) -> Value {
    let mut encoded = Map::new();
    encoded.insert("plural".to_string(), names.plural.as_str().into());
    encoded.insert("kind".to_string(), names.kind.as_str().into());
    for (field, text) in [("singular", &names.singular), ("listKind", &names.list_kind)] {
        if !text.is_empty() {
            encoded.insert(field.to_string(), text.as_str().into());
        }
    }
    for (field, list) in [("shortNames", &names.short_names), ("categories", &names.categories)] {
        if !list.is_empty() {
            encoded.insert(field.to_string(), json!(list));
        }
    }
    Value::Object(encoded)
}

/// Sets a condition; its time moves only when its status does.
pub(super) fn set(definition: &mut Value, kind: &str, status: &str, reason: &str, message: &str, now: &str) {
    let conditions = &mut definition["status"]["conditions"];
    if !conditions.is_array() {
        *conditions = json!([]);
    }
    let Value::Array(conditions) = conditions else {
        return;
    };
    let mut new = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match conditions.iter_mut().find(|condition| condition["type"] == kind) {
        Some(old) => {
            if old["status"] == status {
                new["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            *old = new;
        }
        None => conditions.push(new),
    }
}
