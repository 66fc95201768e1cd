//! What the subresources of a pod may change: its containers for debugging, and the resources of the others.

use super::check::{Errors, Field};
use super::pods;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// A pod that its node was given by a file; the object only shows it.
const MIRROR: &str = "kubernetes.io/config.mirror";

/// The resources that can change while a container runs.
const RESIZABLE: [&str; 2] = ["cpu", "memory"];

/// Containers for debugging come, and never go or change.
pub fn debuggers(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if is_mirror(old) {
        return refuse_whole("static pods do not support ephemeral containers", errors);
    }
    pods::pod(new, errors);
    let list = new.at("spec").at("ephemeralContainers");
    let sent: BTreeMap<&str, &Value> = list.items().map(|one| (one.at("name").text(), one.value)).collect();
    for known in old.at("spec").at("ephemeralContainers").items() {
        let name = known.at("name");
        let why = match sent.get(name.text()) {
            None => "removed",
            Some(sent) if *sent != known.value => "changed",
            Some(_) => continue,
        };
        let why = format!("existing ephemeral containers {:?} may not be {why}\n", name.text());
        errors.forbidden(&list, why);
    }
}

/// Containers get other resources, and nothing else.
pub fn resize(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if is_mirror(old) {
        return refuse_whole("static pods cannot be resized", errors);
    }
    let (spec, before) = (new.at("spec"), old.at("spec"));
    if before.at("os").at("name").text() == "windows" {
        return refuse_whole("windows pods cannot be resized", errors);
    }
    pods::pod(new, errors);
    let class = match old.at("status").at("qosClass").text() {
        "" => crate::kinds::qos_class(before.value),
        class => class,
    };
    if class != crate::kinds::qos_class(spec.value) {
        let why = "Pod QOS Class may not change as a result of resizing";
        errors.invalid_value(&spec, new.at("status").at("qosClass").text(), why);
    }
    // Whether the node of a pod can do it shows in what it tells of the resources that running containers have.
    let mut statuses = old.at("status").at("containerStatuses").items();
    let running = statuses.find(|status| status.at("state").at("running").is_set());
    if running.is_some_and(|status| !status.at("resources").is_set()) {
        errors.forbidden(&spec, "Pod running on node without support for resize");
    }
    whole(&spec, &before, errors);
    if !in_order(&spec, &before, errors) {
        return;
    }
    for list in ["initContainers", "containers"] {
        for (container, known) in spec.at(list).items().zip(before.at(list).items()) {
            kept(&container.at("resources"), &known.at("resources"), "resource", errors);
        }
    }
    for (container, known) in spec.at("containers").items().zip(before.at("containers").items()) {
        if resized_only(&container, &known) {
            continue;
        }
        errors.forbidden(&spec, "only cpu and memory resources are mutable");
    }
    for (container, known) in spec
        .at("initContainers")
        .items()
        .zip(before.at("initContainers").items())
    {
        if !resized_only(&container, &known) {
            let why = "only cpu and memory resources for init or sidecar containers are mutable";
            errors.forbidden(&container, why);
        }
        let restarted = |policy: Field<'_>| policy.at("restartPolicy").text() == "RestartContainer";
        let sidecar = container.at("restartPolicy").text() == "Always";
        if !sidecar && container.value != known.value && container.at("resizePolicy").items().any(restarted) {
            let why = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
            errors.forbidden(&container, why);
        }
    }
}

fn is_mirror(pod: &Field<'_>) -> bool {
    pod.at("metadata").at("annotations").at(MIRROR).is_set()
}

/// Nothing else is told of a pod that has no such part at all.
fn refuse_whole(why: &str, errors: &mut Errors) {
    errors.forbidden(&Field::root(&Value::Null), why);
}

/// What the containers of a pod have together.
fn whole(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) {
    let (resources, known) = (spec.at("resources"), before.at("resources"));
    let said = |resources: &Field<'_>| !resources.at("requests").is_empty() || !resources.at("limits").is_empty();
    if !said(&resources) && !said(&known) {
        return;
    }
    if known.is_set() && !resources.is_set() {
        return errors.forbidden(&resources, "pod-level resources cannot be removed");
    }
    kept(&resources, &known, "pod-level resource", errors);
    if resizable(resources.value, known.value) != trimmed(known.value) {
        errors.forbidden(spec, "only cpu and memory resources are mutable at pod-level");
    }
}

/// Whether the containers are those that there were, in their order.
fn in_order(spec: &Field<'_>, before: &Field<'_>, errors: &mut Errors) -> bool {
    let found = errors.0.len();
    for list in ["containers", "initContainers"] {
        let (new, old) = (spec.at(list), before.at(list));
        if new.items().count() != old.items().count() {
            errors.forbidden(&new, format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, known) in new.items().zip(old.items()) {
            let name = container.at("name");
            if name.text() != known.at("name").text() {
                errors.forbidden(&name, format!("{list} may not be renamed or reordered on resize"));
            }
        }
    }
    errors.0.len() == found
}

/// Amounts may change and come, but not go.
fn kept(new: &Field<'_>, old: &Field<'_>, what: &str, errors: &mut Errors) {
    for list in ["requests", "limits"] {
        let amounts = new.at(list);
        let known = old.at(list);
        if known.entries().any(|(name, _)| amounts.value.get(name).is_none()) {
            errors.forbidden(&amounts, format!("{what} {list} cannot be removed"));
        }
    }
}

/// Whether nothing but the resources that can change differs.
fn resized_only(new: &Field<'_>, old: &Field<'_>) -> bool {
    let (mut ours, mut theirs) = (new.value.clone(), old.value.clone());
    for (container, resources) in [
        (&mut ours, resizable(&new.value["resources"], &old.value["resources"])),
        (&mut theirs, trimmed(&old.value["resources"])),
    ] {
        if let Value::Object(container) = container {
            container.insert("resources".to_string(), resources);
        }
    }
    ours == theirs
}

/// New amounts, with the old ones of what can change.
fn resizable(new: &Value, old: &Value) -> Value {
    let mut resources = json!({});
    for list in ["limits", "requests"] {
        let mut amounts: Map<String, Value> = new[list].as_object().cloned().unwrap_or_default();
        for name in RESIZABLE {
            match old[list].get(name) {
                Some(known) => amounts.insert(name.to_string(), known.clone()),
                None => amounts.remove(name),
            };
        }
        resources[list] = amounts.into();
    }
    trimmed(&resources)
}

/// Resources without lists that are empty, which say nothing.
fn trimmed(resources: &Value) -> Value {
    let mut resources = resources.as_object().cloned().unwrap_or_default();
    resources.retain(|_, value| value.as_object().is_none_or(|map| !map.is_empty()));
    resources.into()
}
