//! What a real kube-apiserver 1.36.4 stored and refused, replayed.
//!
//! The files in `testdata/recorded` hold what was sent and what came back, so that this comparison needs no
//! other program.

use crate::api::Api;
use serde_json::Value;

fn recorded(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

fn path(entry: &Value) -> String {
    let part = |field: &str| entry[field].as_str().unwrap_or_default();
    let group = match part("group") {
        "" => "/api".to_string(),
        group => format!("/apis/{group}"),
    };
    let answer = &entry["stored"];
    let namespaced = !answer["metadata"]["namespace"].is_null() || entry["namespaced"] == true;
    let namespace = if namespaced { "/namespaces/default" } else { "" };
    format!("{group}/{}{namespace}/{}", part("version"), part("resource"))
}

/// What differs by nature: identities, times, and addresses from pools.
fn comparable(mut object: Value) -> Value {
    without_nulls(&mut object);
    // Admission plugins protect volumes and taint new nodes; a deprecated annotation counts templates.
    if let Some(metadata) = object["metadata"].as_object_mut() {
        if let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") {
            finalizers.retain(|f| !f.as_str().unwrap_or_default().ends_with("-protection"));
        }
        metadata.retain(|field, value| field != "finalizers" || *value != serde_json::json!([]));
        if object_is_daemon_set(metadata) {
            metadata.remove("annotations");
        }
    }
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.retain(|field, _| {
            !["uid", "creationTimestamp", "resourceVersion", "managedFields"].contains(&field.as_str())
        });
    }
    // This server accepts the names of a definition at once, not a moment later.
    if object["kind"] == "CustomResourceDefinition" {
        object["status"].take();
    }
    if let Some(status) = object["status"].as_object_mut() {
        status.remove("lastPhaseTransitionTime");
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_string();
    if let Some(spec) = object["spec"].as_object_mut() {
        match kind.as_str() {
            "Service" => {
                let fixed = spec.get("clusterIP").is_some_and(|ip| ip == "None");
                spec.retain(|field, _| fixed || !["clusterIP", "clusterIPs"].contains(&field.as_str()));
                for port in spec
                    .get_mut("ports")
                    .and_then(Value::as_array_mut)
                    .into_iter()
                    .flatten()
                {
                    port.as_object_mut().unwrap().remove("nodePort");
                }
            }
            // Admission plugins give pods a priority, tolerations and an account; they have stories of their own.
            "Pod" => spec.retain(|field, _| {
                ![
                    "priority",
                    "preemptionPolicy",
                    "tolerations",
                    "serviceAccount",
                    "serviceAccountName",
                ]
                .contains(&field.as_str())
            }),
            "Node" => {
                spec.remove("taints");
            }
            _ => {}
        }
    }
    object
}

/// Go writes null for some absent values, which this server leaves out; an empty list becomes null in its store.
fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|name, value| !value.is_null() && (name != "drivers" || *value != serde_json::json!([])));
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        Value::String(text) if text.len() == 36 && text.matches('-').count() == 4 => *text = "UID".to_string(),
        _ => {}
    }
}

fn object_is_daemon_set(metadata: &serde_json::Map<String, Value>) -> bool {
    let annotations = metadata.get("annotations").and_then(Value::as_object);
    annotations.is_some_and(|a| a.contains_key("deprecated.daemonset.template.generation"))
}

fn difference(path: &str, ours: &Value, theirs: &Value, found: &mut Vec<String>) {
    match (ours, theirs) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            for key in keys {
                match (a.get(key), b.get(key)) {
                    (Some(a), Some(b)) => difference(&format!("{path}.{key}"), a, b, found),
                    (Some(a), None) => found.push(format!("{path}.{key}: {a} too much")),
                    (None, b) => found.push(format!("{path}.{key}: {} missing", b.unwrap())),
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                difference(&format!("{path}[{at}]"), a, b, found);
            }
        }
        (a, b) if a != b => found.push(format!("{path}: {a} instead of {b}")),
        _ => {}
    }
}

#[tokio::test]
async fn objects_are_stored_as_kubernetes_stores_them() {
    let api = Api::start().await;
    let mut found = Vec::new();
    for entry in recorded(include_str!("../../testdata/recorded/stored.json")) {
        let path = format!("{}?dryRun=All", path(&entry));
        let answer = api.post(&path, entry["sent"].clone()).await;
        if answer.code >= 300 {
            found.push(format!("{}: {}", entry["resource"], answer.json()["message"]));
            continue;
        }
        let name = entry["resource"].as_str().unwrap();
        difference(
            name,
            &comparable(answer.json()),
            &comparable(entry["stored"].clone()),
            &mut found,
        );
    }
    assert!(found.is_empty(), "{found:#?}");
}

/// Sets what a change names and takes out what it sets to null.
fn merge(object: &mut Value, change: &Value) {
    for (name, value) in change.as_object().into_iter().flatten() {
        match value {
            Value::Null => {
                object.as_object_mut().unwrap().remove(name);
            }
            Value::Object(_) if object[name].is_object() => merge(&mut object[name], value),
            other => object[name] = other.clone(),
        }
    }
}

/// Field, reason and message of each cause, in order. A value that Go prints as one of its structs is left
/// out: its field names are not those of the API.
fn causes(status: &Value) -> Vec<String> {
    let mut causes: Vec<String> = status["causes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|cause| {
            let text = |field: &str| cause[field].as_str().unwrap_or_default();
            let message = text("message");
            let shown = match (message.find("value: {"), message.rfind('}')) {
                (Some(start), Some(end)) => format!("{}{}", &message[..start], &message[end..]),
                // A forbidden change ends in a diff of Go's structs.
                _ => message.split('\n').next().unwrap_or_default().to_string(),
            };
            format!("{} {} {shown}", text("field"), text("reason"))
        })
        .collect();
    causes.sort();
    causes
}

#[tokio::test]
async fn objects_are_refused_as_kubernetes_refuses_them() {
    let mut found = Vec::new();
    for entry in recorded(include_str!("../../testdata/recorded/refused.json")) {
        let api = Api::start().await;
        let path = path(&entry);
        let answer = match &entry["change"] {
            Value::Null => api.post(&format!("{path}?dryRun=All"), entry["sent"].clone()).await,
            change => {
                let mut object = api.post(&path, entry["first"].clone()).await.ok();
                let name = object["metadata"]["name"].as_str().unwrap().to_string();
                merge(&mut object, change);
                api.put(&format!("{path}/{name}?dryRun=All"), object).await
            }
        };
        let name = entry["resource"].as_str().unwrap();
        if answer.code != 422 {
            found.push(format!(
                "{name}: {} instead of {}",
                answer.code, entry["refused"]["message"]
            ));
            continue;
        }
        let (ours, theirs) = (causes(&answer.json()["details"]), causes(&entry["refused"]));
        found.extend(
            theirs
                .iter()
                .filter(|c| !ours.contains(c))
                .map(|c| format!("{name}: missing: {c}")),
        );
        found.extend(
            ours.iter()
                .filter(|c| !theirs.contains(c))
                .map(|c| format!("{name}: too much: {c}")),
        );
    }
    assert!(found.is_empty(), "{found:#?}");
}
