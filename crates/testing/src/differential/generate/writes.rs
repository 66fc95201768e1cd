//! Creates, updates, patches, applies and deletes.

use super::super::sequence::{Step, put};
use super::{Story, Subject};
use rand::Rng;
use serde_json::{Value, json};

const MANAGERS: &[&str] = &["alice", "bob", "carol"];

/// Options that writes take, mostly none.
fn options(story: &mut Story) -> Vec<String> {
    let mut options = Vec::new();
    if story.one_in(8) {
        options.push("dryRun=All".to_string());
    }
    if story.one_in(4) {
        let validation = story.word(&["Strict", "Strict", "Warn", "Ignore"]);
        options.push(format!("fieldValidation={validation}"));
    }
    if story.one_in(6) {
        let manager = story.word(MANAGERS);
        options.push(format!("fieldManager={manager}"));
    }
    options
}

fn with_options(path: &str, options: &[String]) -> String {
    match options.is_empty() {
        true => path.to_string(),
        false => format!("{path}?{}", options.join("&")),
    }
}

fn path(subject: &Subject, name: &str) -> String {
    format!("{}/{name}", subject.collection)
}

pub fn create(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let mut object = story.object(subject, &name);
    if story.one_in(12) && subject.kind != "Namespace" {
        object["metadata"]["generateName"] = format!("{name}-").into();
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove("name");
        }
    }
    let options = options(story);
    let step = Step::new("POST", with_options(&subject.collection, &options)).with(object);
    story.write(&name, step);
}

pub fn update(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let options = options(story);
    let mut step = Step::new("PUT", with_options(&path(subject, &name), &options));
    match story.newest.get(&name).copied() {
        Some(id) if !story.one_in(6) => {
            step.base = Some(id);
            step.set = story.choose(&subject.fields, 2);
            if story.one_in(3) {
                step.set.extend(story.choose(&super::kinds::metadata(), 2));
            }
            if story.one_in(4) {
                step.set.insert("/metadata/resourceVersion".to_string(), Value::Null);
            }
            if story.one_in(8) {
                step.set.extend(story.choose(&subject.status, 1));
            }
        }
        _ => step.body = Some(story.object(subject, &name)),
    }
    story.write(&name, step);
}

/// An object that holds only what changes. Lists are not reached into: a merge replaces them.
fn partial(story: &mut Story, subject: &Subject) -> Value {
    let mut patch = json!({});
    let mut chosen = story.choose(&subject.fields, 3);
    if story.one_in(3) {
        chosen.extend(story.choose(&super::kinds::metadata(), 2));
    }
    for (pointer, value) in chosen {
        if value.is_null() {
            // A null in a patch is sent as such.
            set_null(&mut patch, &pointer);
        } else {
            put(&mut patch, &pointer, &value);
        }
    }
    patch
}

fn set_null(patch: &mut Value, pointer: &str) {
    let Some((parent, last)) = pointer.rsplit_once('/') else {
        return;
    };
    put(patch, pointer, &json!("placeholder"));
    if let Some(Value::Object(fields)) = patch.pointer_mut(parent) {
        fields.insert(last.replace("~1", "/"), Value::Null);
    }
}

pub fn merge_patch(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let mut patch = partial(story, subject);
    if story.one_in(10) {
        let id = story.newest.get(&name).copied().unwrap_or(1);
        patch["metadata"]["resourceVersion"] = format!("{{rv:{id}}}").into();
    }
    let options = options(story);
    let step = Step::new("PATCH", with_options(&path(subject, &name), &options))
        .of_type("application/merge-patch+json")
        .with(patch);
    story.write(&name, step);
}

pub fn strategic_patch(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let mut patch = partial(story, subject);
    if story.one_in(4) {
        let directive = story
            .pick(&[
                json!({"metadata": {"labels": {"$patch": "replace", "only": "this"}}}),
                json!({"metadata": {"$patch": "delete"}}),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "$patch": "delete"}]}}}}),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "side", "image": "side:1"}],
                    "$setElementOrder/containers": [{"name": "side"}, {"name": "main"}]}}}}),
                json!({"spec": {"template": {"spec": {"containers": [{"name": "main", "env": [{"name": "A", "value": "2"}, {"name": "B", "$patch": "delete"}]}]}}}}),
                json!({"spec": {"ports": [{"port": 80, "name": "renamed"}]}}),
                json!({"spec": {"ports": [{"port": 80, "$patch": "delete"}]}}),
                json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["example.com/hold"]}}),
                json!({"metadata": {"finalizers": ["example.com/other"]}}),
                json!({"spec": {"$retainKeys": ["replicas"], "replicas": 2}}),
                json!({"data": null}),
                json!({"spec": {"template": {"spec": {"containers": [{"image": "nameless:1"}]}}}}),
                json!({"spec": {"$patch": "unknown"}}),
            ])
            .clone();
        patch = directive;
    }
    let options = options(story);
    let step = Step::new("PATCH", with_options(&path(subject, &name), &options))
        .of_type("application/strategic-merge-patch+json")
        .with(patch);
    story.write(&name, step);
}

pub fn json_patch(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let mut operations = Vec::new();
    for _ in 0..story.rng.random_range(1..4) {
        let operation = operation(story, subject);
        operations.push(operation);
    }
    let options = options(story);
    let step = Step::new("PATCH", with_options(&path(subject, &name), &options))
        .of_type("application/json-patch+json")
        .with(Value::Array(operations));
    story.write(&name, step);
}

fn operation(story: &mut Story, subject: &Subject) -> Value {
    let mut pools = super::kinds::metadata();
    pools.extend(subject.fields.iter().cloned());
    let (pointer, values) = story.pick(&pools).clone();
    let value = story.pick(&values).clone();
    let other = story.pick(&pools).0.clone();
    match story.rng.random_range(0..20) {
        0..7 => json!({"op": "add", "path": pointer, "value": value}),
        7..12 => json!({"op": "replace", "path": pointer, "value": value}),
        12..15 => json!({"op": "remove", "path": pointer}),
        15 => json!({"op": "test", "path": pointer, "value": value}),
        16 => json!({"op": "copy", "from": pointer, "path": other}),
        17 => json!({"op": "move", "from": pointer, "path": other}),
        18 => json!({"op": "add", "path": "/metadata/labels", "value": {"from": "patch"}}),
        _ => json!({"op": "test", "path": "/metadata/name", "value": "a"}),
    }
}

pub fn apply(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    let mut object = match story.one_in(3) {
        true => json!({}),
        false => story.object(subject, &name),
    };
    for (pointer, value) in story.choose(&subject.fields, 3) {
        if !pointer_enters_list(&pointer) || object.pointer(&pointer).is_some() {
            put(&mut object, &pointer, &value);
        }
    }
    object["apiVersion"] = subject.api_version.clone().into();
    object["kind"] = subject.kind.clone().into();
    if object["metadata"]["name"].is_null() {
        object["metadata"]["name"] = name.clone().into();
    }
    let manager = story.word(MANAGERS);
    let mut options = vec![format!("fieldManager={manager}")];
    if story.one_in(3) {
        options.push("force=true".to_string());
    }
    if story.one_in(10) {
        options.push("dryRun=All".to_string());
    }
    if story.one_in(6) {
        options.push("fieldValidation=Strict".to_string());
    }
    let mut step = Step::new("PATCH", with_options(&path(subject, &name), &options))
        .of_type("application/apply-patch+yaml")
        .with(object);
    if story.one_in(6) {
        // The same again: nothing may change.
        story.step(step.clone());
        step.id = 0;
    }
    story.write(&name, step);
}

fn pointer_enters_list(pointer: &str) -> bool {
    pointer.split('/').any(|part| part.parse::<usize>().is_ok())
}

pub fn subresource(story: &mut Story, subject: &Subject) {
    // Kubernetes creates a Service through its status, and all that follows differs.
    if subject.kind == "Service" {
        return update(story, subject);
    }
    let name = story.name(subject);
    let subresource = match subject.subresources.is_empty() {
        true => "status".to_string(),
        false => story.pick(&subject.subresources).clone(),
    };
    let path = format!("{}/{subresource}", path(subject, &name));
    if subresource == "scale" {
        return scale(story, &path, &name);
    }
    let options = options(story);
    let place = with_options(&path, &options);
    let mut chosen = story.choose(&subject.status, 2);
    if story.one_in(4) {
        // What is not of the status must not change here.
        chosen.extend(story.choose(&subject.fields, 1));
    }
    if story.one_in(5) {
        chosen.extend(story.choose(&super::kinds::metadata(), 1));
    }
    let mut patch = json!({});
    for (pointer, value) in &chosen {
        put(&mut patch, pointer, value);
    }
    match story.rng.random_range(0..4) {
        0 => drop(story.step(Step::new("GET", path))),
        1 => {
            let mut step = Step::new("PUT", place);
            match story.newest.get(&name) {
                Some(id) => step.base = Some(*id),
                None => step.body = Some(story.object(subject, &name)),
            }
            step.set = chosen;
            story.write(&name, step);
        }
        2 => {
            let step = Step::new("PATCH", place)
                .of_type("application/merge-patch+json")
                .with(patch);
            story.write(&name, step);
        }
        _ => {
            patch["apiVersion"] = subject.api_version.clone().into();
            patch["kind"] = subject.kind.clone().into();
            let manager = story.word(MANAGERS);
            let place = format!("{path}?fieldManager={manager}");
            let step = Step::new("PATCH", place)
                .of_type("application/apply-patch+yaml")
                .with(patch);
            story.write(&name, step);
        }
    }
}

fn scale(story: &mut Story, path: &str, name: &str) {
    let replicas = story
        .pick(&[
            json!(0),
            json!(3),
            json!(-1),
            json!("x"),
            json!(5_000_000_000_u64),
            json!(null),
        ])
        .clone();
    let object = json!({
        "apiVersion": "autoscaling/v1", "kind": "Scale",
        "metadata": {"name": name, "namespace": "{ns}"}, "spec": {"replicas": replicas},
    });
    let step = match story.rng.random_range(0..5) {
        0 | 1 => Step::new("GET", path),
        2 => Step::new("PUT", path).with(object),
        3 => Step::new("PATCH", path)
            .of_type("application/merge-patch+json")
            .with(json!({"spec": {"replicas": replicas}})),
        _ => Step::new("PATCH", format!("{path}?fieldManager=scaler&force=true"))
            .of_type("application/apply-patch+yaml")
            .with(object),
    };
    story.step(step);
}

pub fn delete(story: &mut Story, subject: &Subject) {
    let name = story.name(subject);
    if story.one_in(5) {
        let selector = story.word(&[
            "",
            "?labelSelector=app%3Dweb",
            "?fieldSelector=metadata.name%3Da",
            "?dryRun=All",
        ]);
        let selector = match (subject.namespaced, selector.contains("labelSelector")) {
            (true, _) => selector,
            (false, false) if selector.is_empty() => "?labelSelector=sequence%3D{ns}".to_string(),
            (false, false) => format!("{selector}&labelSelector=sequence%3D{{ns}}"),
            (false, true) => format!("{selector}%2Csequence%3D{{ns}}"),
        };
        story.step(Step::new("DELETE", format!("{}{selector}", subject.collection)));
        return;
    }
    let id = story.newest.get(&name).copied().unwrap_or(1);
    let bodies = [
        json!(null),
        json!(null),
        json!({}),
        json!({"propagationPolicy": "Foreground"}),
        json!({"propagationPolicy": "Orphan"}),
        json!({"propagationPolicy": "Background"}),
        json!({"propagationPolicy": "Nonsense"}),
        json!({"gracePeriodSeconds": 0}),
        json!({"gracePeriodSeconds": 5}),
        json!({"gracePeriodSeconds": -1}),
        json!({"dryRun": ["All"]}),
        json!({"dryRun": ["Some"]}),
        json!({"orphanDependents": true}),
        json!({"orphanDependents": true, "propagationPolicy": "Orphan"}),
        json!({"preconditions": {"uid": format!("{{uid:{id}}}")}}),
        json!({"preconditions": {"uid": "other"}}),
        json!({"preconditions": {"resourceVersion": format!("{{rv:{id}}}")}}),
        json!({"preconditions": {"resourceVersion": "1"}}),
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground"}),
        json!({"apiVersion": "v1", "kind": "Status"}),
        json!({"unknown": true}),
    ];
    let mut step = Step::new("DELETE", path(subject, &name));
    let body = story.pick(&bodies).clone();
    if !body.is_null() {
        step.body = Some(body);
    }
    story.step(step);
}
