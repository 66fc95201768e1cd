//! What an update may not change.

use super::check::{Errors, Field};
use super::storage::volume_source;
use crate::catalogue::Resource;
use serde_json::Value;
use std::collections::HashSet;
use stead_machinery::quantity::Quantity;

const IMMUTABLE: &str = "field is immutable";

pub fn check(resource: &Resource, new: Field<'_>, old: Field<'_>, errors: &mut Errors) {
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    match (resource.group.as_str(), resource.plural.as_str()) {
        ("apps", "deployments" | "replicasets" | "daemonsets") => fixed(&spec, &old_spec, &["selector"], errors),
        ("apps", "statefulsets") => stateful_set(&spec, &old_spec, errors),
        ("batch", "jobs") => job(&spec, &old, errors),
        ("", "pods") => pod(&spec, &old_spec, errors),
        ("", "persistentvolumeclaims") => {
            claim(&new, &old, errors);
            volume_mode(&spec, &old_spec, errors);
        }
        ("", "persistentvolumes") => {
            if volume_source(&spec) != volume_source(&old_spec) {
                let field = Field {
                    value: spec.value,
                    path: "spec.persistentvolumesource".to_string(),
                };
                errors.forbidden(&field, "spec.persistentvolumesource is immutable after creation");
            }
            volume_mode(&spec, &old_spec, errors);
            let (affinity, before) = (spec.at("nodeAffinity"), old_spec.at("nodeAffinity"));
            if before.is_set() && affinity.value != before.value {
                let field = Field {
                    value: affinity.value,
                    path: "nodeAffinity".to_string(),
                };
                errors.invalid(&field, "field is immutable, except for updating from beta label to GA");
            }
        }
        ("", "services") => super::services::change(&spec, &old_spec, errors),
        ("", "configmaps") => sealed(&new, &old, &["data", "binaryData"], errors),
        ("", "secrets") => {
            fixed(&new, &old, &["type"], errors);
            sealed(&new, &old, &["data"], errors);
        }
        ("rbac.authorization.k8s.io", "rolebindings" | "clusterrolebindings") => role_reference(&new, &old, errors),
        ("storage.k8s.io", "storageclasses") => fixed(
            &new,
            &old,
            &["parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"],
            errors,
        ),
        ("scheduling.k8s.io", "priorityclasses") => {
            if new.at("value").value != old.at("value").value {
                errors.forbidden(&new.at("value"), "may not be changed in an update.");
            }
            fixed(&new, &old, &["preemptionPolicy"], errors);
        }
        ("storage.k8s.io", "csidrivers") => {
            let attach = spec.at("attachRequired");
            if attach.value != old_spec.at("attachRequired").value {
                let field = Field {
                    value: attach.value,
                    path: "spec.attachedRequired".to_string(),
                };
                errors.invalid(&field, IMMUTABLE);
            }
        }
        ("", "nodes") => {
            addresses(&new, errors);
            let (ranges, before) = (spec.at("podCIDRs"), old_spec.at("podCIDRs"));
            if !before.is_empty() && ranges.value != before.value {
                let why = "node updates may not change podCIDR except from \"\" to valid";
                errors.forbidden(&ranges, why);
            }
            let (provider, before) = (spec.at("providerID"), old_spec.at("providerID"));
            if !before.is_empty() && provider.text() != before.text() {
                let why = "node updates may not change providerID except from \"\" to valid";
                errors.forbidden(&provider, why);
            }
        }
        ("discovery.k8s.io", "endpointslices") => fixed(&new, &old, &["addressType"], errors),
        ("node.k8s.io", "runtimeclasses") => fixed(&new, &old, &["handler"], errors),
        ("apps", "controllerrevisions") => fixed(&new, &old, &["data"], errors),
        ("networking.k8s.io", "ingressclasses") => {
            let controller = spec.at("controller");
            if controller.text() != old_spec.at("controller").text() {
                errors.invalid_value(&controller, controller.text(), IMMUTABLE);
            }
        }
        _ => {}
    }
}

/// The addresses of a node are told once each.
pub fn addresses(node: &Field<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for address in node.at("status").at("addresses").items() {
        if !seen.insert(address.value) {
            errors.duplicate(&address);
        }
    }
}

fn role_reference(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if new.at("roleRef").value != old.at("roleRef").value {
        errors.invalid(&new.at("roleRef"), "cannot change roleRef");
    }
}

fn fixed(new: &Field<'_>, old: &Field<'_>, names: &[&str], errors: &mut Errors) {
    for name in names {
        if new.at(name).value != old.at(name).value {
            errors.invalid(&new.at(name), IMMUTABLE);
        }
    }
}

/// A ConfigMap or Secret that was made immutable stays so, with all its data.
fn sealed(new: &Field<'_>, old: &Field<'_>, data: &[&str], errors: &mut Errors) {
    if !old.at("immutable").is_true() {
        return;
    }
    const DETAIL: &str = "field is immutable when `immutable` is set";
    if !new.at("immutable").is_true() {
        errors.forbidden(&new.at("immutable"), DETAIL);
    }
    for name in data {
        if new.at(name).value != old.at(name).value {
            errors.forbidden(&new.at(name), DETAIL);
        }
    }
}

/// A copy of a spec without the fields that may change.
fn without(spec: &Field<'_>, names: &[&str]) -> Value {
    let mut value = spec.value.clone();
    if let Value::Object(map) = &mut value {
        map.retain(|name, _| !names.contains(&name.as_str()));
    }
    value
}

fn stateful_set(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let free = [
        "replicas",
        "ordinals",
        "template",
        "updateStrategy",
        "revisionHistoryLimit",
        "persistentVolumeClaimRetentionPolicy",
        "minReadySeconds",
    ];
    if without(new, &free) != without(old, &free) {
        errors.forbidden(
            new,
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
}

fn job(new: &Field<'_>, old_job: &Field<'_>, errors: &mut Errors) {
    let old = &old_job.at("spec");
    let completions = new.at("completions");
    if completions.value != old.at("completions").value {
        let indexed = new.at("completionMode").text() == "Indexed";
        let in_step = completions.value == new.at("parallelism").value;
        if !indexed {
            errors.invalid(&completions, IMMUTABLE);
        } else if !in_step {
            errors.invalid(&completions, "can only be modified in tandem with spec.parallelism");
        }
    }
    fixed(
        new,
        old,
        &[
            "selector",
            "completionMode",
            "podFailurePolicy",
            "backoffLimitPerIndex",
            "managedBy",
            "successPolicy",
        ],
        errors,
    );
    let template = new.at("template");
    if !is_at_rest(old_job) {
        fixed(new, old, &["template"], errors);
    } else if unmovable(&template) != unmovable(&old.at("template")) {
        errors.invalid(&template.at("spec"), IMMUTABLE);
    }
}

/// Whether a job is suspended and none of its pods is left.
fn is_at_rest(job: &Field<'_>) -> bool {
    let status = job.at("status");
    let suspended =
        |condition: Field<'_>| condition.at("type").text() == "Suspended" && condition.at("status").text() == "True";
    let stopped = !status.at("startTime").is_set() || status.at("conditions").items().any(suspended);
    job.at("spec").at("suspend").is_true() && stopped && status.at("active").number().unwrap_or_default() == 0
}

/// What may not change in the template of a suspended job: it may still be directed elsewhere and get other resources.
fn unmovable(template: &Field<'_>) -> Value {
    let spec = template.at("spec");
    let mut fixed = without(&spec, &["nodeSelector", "tolerations", "schedulingGates"]);
    if let Some(affinity) = fixed.get_mut("affinity").and_then(Value::as_object_mut) {
        affinity.remove("nodeAffinity");
    }
    if fixed["affinity"].as_object().is_some_and(serde_json::Map::is_empty) {
        fixed["affinity"] = Value::Null;
    }
    for list in ["containers", "initContainers"] {
        for container in fixed.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container["resources"] = Value::Null;
        }
    }
    // Absent and null are the same here.
    if let Value::Object(fields) = &mut fixed {
        fields.retain(|_, value| !value.is_null());
    }
    fixed
}

/// How much a claim asks for.
fn requested<'a>(spec: &Field<'a>) -> Field<'a> {
    spec.at("resources").at("requests").at("storage")
}

fn claim(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    // One that was stored when there was a single field for what it begins with is no other claim for that.
    let mut filled = old.value.clone();
    if let Some(Value::Object(spec)) = filled.get_mut("spec") {
        crate::kinds::claim::fill(spec);
    }
    let old = &Field {
        value: &filled,
        path: old.path.clone(),
    };
    let (spec, old_spec) = (new.at("spec"), old.at("spec"));
    let mut free = Vec::new();
    if old_spec.at("volumeName").is_empty() {
        // Binding sets the name of the volume, and a class may be given late.
        free.push("volumeName");
    }
    if !old_spec.at("storageClassName").is_set() && spec.at("storageClassName").is_set() {
        free.push("storageClassName");
    }
    let bound = new.at("status").at("phase").text() == "Bound";
    if bound {
        free.push("volumeAttributesClassName");
    }
    let (mut ours, theirs) = (without(&spec, &free), without(&old_spec, &free));
    if bound && let Some(requests) = ours.pointer_mut("/resources/requests") {
        requests["storage"] = requested(&old_spec).value.clone();
    }
    if ours != theirs {
        errors.forbidden(
            &spec,
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims",
        );
    }
    let amount = |field: Field<'_>| match field.is_set() {
        true => field.text().parse::<Quantity>().ok(),
        false => Some(Quantity::whole(0)),
    };
    let (wanted, before) = (amount(requested(&spec)), amount(requested(&old_spec)));
    let there = amount(old.at("status").at("capacity").at("storage"));
    if let (Some(wanted), Some(before), Some(there)) = (wanted, before, there)
        && wanted < before
        && wanted <= there
    {
        errors.forbidden(&requested(&spec), "field can not be less than status.capacity");
    }
}

/// The mode of a claim is reported once more, at the top.
fn volume_mode(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    if new.at("volumeMode").value != old.at("volumeMode").value {
        let field = Field {
            value: new.at("volumeMode").value,
            path: "volumeMode".to_string(),
        };
        errors.invalid(&field, IMMUTABLE);
    }
}

fn pod(new: &Field<'_>, old: &Field<'_>, errors: &mut Errors) {
    let lists = ["containers", "initContainers"];
    for list in lists {
        if new.at(list).items().count() != old.at(list).items().count() {
            errors.forbidden(&new.at(list), "pod updates may not add or remove containers");
            return;
        }
    }
    let (mut ours, mut theirs) = (new.value.clone(), old.value.clone());
    for list in lists {
        for container in new.at(list).items() {
            let image = container.at("image");
            if image.is_empty() {
                errors.required(&image, "");
            }
            if image.text().trim() != image.text() {
                errors.invalid(&image, "must not have leading or trailing whitespace");
            }
        }
        for spec in [&mut ours, &mut theirs] {
            for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                if let Value::Object(map) = container {
                    map.remove("image");
                }
            }
        }
    }
    // A deadline may come and be brought forward; with a worse one nothing else is looked at.
    let (deadline, before) = (new.at("activeDeadlineSeconds"), old.at("activeDeadlineSeconds"));
    match (deadline.number(), before.number()) {
        (Some(seconds), _) if i32::try_from(seconds).is_err() || seconds < 0 => {
            return errors.invalid(&deadline, "must be between 0 and 2147483647, inclusive");
        }
        (Some(seconds), Some(before)) if before < seconds => {
            return errors.invalid(&deadline, "must be less than or equal to previous value");
        }
        (None, Some(_)) => errors.invalid(&deadline, "must not update from a positive integer to nil value"),
        _ => {}
    }
    let tolerated = |spec: &Field<'_>| -> HashSet<Value> {
        let list = spec.at("tolerations");
        list.items().map(|one| without(&one, &["tolerationSeconds"])).collect()
    };
    if !tolerated(old).is_subset(&tolerated(new)) {
        errors.forbidden(
            &new.at("tolerations"),
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
    let selected = old.at("nodeSelector").value.as_object().into_iter().flatten();
    let kept = |(name, wanted): (&String, &Value)| new.at("nodeSelector").value.get(name) == Some(wanted);
    if !old.at("schedulingGates").is_empty() && !selected.into_iter().all(kept) {
        let why = "only additions to spec.nodeSelector are allowed (no mutations or deletions)";
        errors.invalid(&new.at("nodeSelector"), why);
    }
    for spec in [&mut ours, &mut theirs] {
        if let Value::Object(map) = spec {
            map.remove("activeDeadlineSeconds");
            map.remove("tolerations");
            if old
                .at("terminationGracePeriodSeconds")
                .number()
                .is_some_and(|seconds| seconds < 0)
            {
                map.remove("terminationGracePeriodSeconds");
            }
            // Gates may go, and where to run may be narrowed, while a pod waits for its gates.
            map.remove("schedulingGates");
            if !old.at("schedulingGates").is_empty() {
                map.retain(|name, _| !["nodeSelector", "affinity"].contains(&name.as_str()));
            }
        }
    }
    if ours != theirs {
        errors.forbidden(
            new,
            "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
             `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
             `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)",
        );
    }
    let gates: HashSet<&Value> = old.at("schedulingGates").items().map(|gate| gate.value).collect();
    for gate in new.at("schedulingGates").items() {
        if !gates.contains(gate.value) {
            let name = gate.at("name");
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            );
            errors.forbidden(&name, why);
        }
    }
}
