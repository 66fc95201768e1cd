//! `pods/eviction`: a delete that asks the disruption budgets first.

use crate::error::{ApiError, GroupResource, Result};
use crate::server::{Body, respond};
use crate::store::{Key, ListAt, Prefix, Window};
use crate::verbs::delete::{DeleteOptions, delete_object};
use crate::verbs::edit::edit;
use crate::verbs::write_options::{Commit, OptionsKind, WriteOptions};
use crate::verbs::{Call, object};
use http::Response;
use serde_json::{Value, json};
use stead_machinery::selector::LabelSelector;

const BUDGETS: &str = "policy/poddisruptionbudgets";
const VIOLATION: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
/// Evictions that a budget's controller has not confirmed yet; more of them and something is wrong.
const MOST_DISRUPTED_PODS: usize = 2000;

pub async fn evict(call: &Call, body: Body) -> Result<Response<Body>> {
    let write = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Create)?;
    let eviction = call.read_object(body, write.validation).await?;
    if object::name(&eviction) != call.path.name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Eviction object",
        ));
    }
    let mut options = DeleteOptions::parse(eviction["deleteOptions"].clone())?;
    if write.commit == Commit::DryRun {
        options.commit = Commit::DryRun;
    }
    let record = call.existing().await?;
    let pod = record.value();
    if !ignores_budgets(&pod)
        && let Some(budget) = budget_of(call, &pod).await?
    {
        let value = call
            .shared
            .store
            .get(&budget)
            .await
            .map_err(|error| call.store_error(error, &budget.name))?;
        let healthy_enough = value.is_some_and(|budget| permits_unready(&pod, &budget.value()));
        if healthy_enough {
            // The pod must still be as unready as it was seen.
            options
                .resource_version
                .get_or_insert_with(|| record.revision.to_string());
        } else {
            take_one(call, &budget, options.commit).await?;
        }
    }
    mark_disrupted(call, options.commit).await?;
    let deletable = call.of_main_resource("delete");
    if options.commit == Commit::Store {
        // The condition that was just written is no reason to refuse.
        options.resource_version = None;
    }
    delete_object(&deletable, &call.path.name, &options).await?;
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    respond::object(201, &success, call.accepted)
}

/// Pods that do no work, or are going anyway, need no budget.
fn ignores_budgets(pod: &Value) -> bool {
    matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    ) || object::is_deleting(pod)
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// A pod that is not ready may go if its budget says so, or if enough others are.
fn permits_unready(pod: &Value, budget: &Value) -> bool {
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let enough = number("currentHealthy") >= number("desiredHealthy") && number("desiredHealthy") > 0;
    !is_ready(pod) && (budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || enough)
}

/// The budget that covers a pod.
async fn budget_of(call: &Call, pod: &Value) -> Result<Option<Key>> {
    let prefix = Prefix::namespace(BUDGETS, call.namespace());
    let page = call.shared.store.list(&prefix, ListAt::Latest, Window::default()).await;
    let page = page.map_err(|error| call.store_error(error, ""))?;
    let labels: std::collections::BTreeMap<String, String> =
        serde_json::from_value(pod["metadata"]["labels"].clone()).unwrap_or_default();
    let mut found = page.records.iter().filter(|record| {
        LabelSelector::from_object(&record.value()["spec"]["selector"]).is_ok_and(|selector| selector.matches(&labels))
    });
    let first = found.next().map(|record| record.key.as_ref().clone());
    match found.next() {
        Some(_) => Err(ApiError::new(
            500,
            "",
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        )),
        None => Ok(first),
    }
}

/// Takes one of the disruptions that a budget allows.
async fn take_one(call: &Call, budget: &Key, commit: Commit) -> Result<()> {
    let pod = call.path.name.clone();
    let now = object::time(call.now);
    let taken = |value: &mut Value| -> Result<()> {
        check(value)?;
        let status = object::map_mut(value, "status");
        let allowed = status.get("disruptionsAllowed").and_then(Value::as_i64).unwrap_or(0);
        status.insert("disruptionsAllowed".to_string(), (allowed - 1).into());
        let disrupted = status.entry("disruptedPods").or_insert_with(|| json!({}));
        disrupted[pod.as_str()] = now.as_str().into();
        Ok(())
    };
    if commit == Commit::DryRun {
        let found = call
            .shared
            .store
            .get(budget)
            .await
            .map_err(|error| call.store_error(error, &budget.name))?;
        return found.map_or(Ok(()), |record| check(&record.value()));
    }
    edit(call, budget, taken).await.map(|_| ())
}

fn check(budget: &Value) -> Result<()> {
    let name = object::name(budget);
    let number = |field: &str| budget["status"][field].as_i64().unwrap_or(0);
    let subject = GroupResource {
        group: "policy".to_string(),
        resource: "poddisruptionbudget".to_string(),
    };
    if number("observedGeneration") < object::generation(budget) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(violation(&why, 10));
    }
    if number("disruptionsAllowed") < 0 {
        return Err(ApiError::forbidden(
            &subject,
            name,
            "pdb disruptions allowed is negative",
        ));
    }
    if budget["status"]["disruptedPods"]
        .as_object()
        .is_some_and(|pods| pods.len() > MOST_DISRUPTED_PODS)
    {
        let why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller";
        return Err(ApiError::forbidden(&subject, name, why));
    }
    match number("disruptionsAllowed") {
        0 => {
            let (needs, has) = (number("desiredHealthy"), number("currentHealthy"));
            let why = match has <= needs {
                true => format!("The disruption budget {name} needs {needs} healthy pods and has {has} currently"),
                false => format!("The disruption budget {name} does not allow evicting pods currently"),
            };
            Err(violation(&why, 0))
        }
        _ => Ok(()),
    }
}

fn violation(why: &str, retry_after: u32) -> ApiError {
    let mut error = ApiError::too_many_requests(VIOLATION, retry_after);
    if retry_after == 0 {
        error.details = json!({});
    }
    error.details["causes"] = json!([{"reason": "DisruptionBudget", "message": why}]);
    error
}

/// Says on the pod why it goes.
async fn mark_disrupted(call: &Call, commit: Commit) -> Result<()> {
    if commit == Commit::DryRun {
        return Ok(());
    }
    let now = object::time(call.now);
    let marked = |pod: &mut Value| -> Result<()> {
        let condition = json!({
            "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now,
        });
        super::pod::set_condition(pod, condition);
        Ok(())
    };
    edit(call, &call.key(&call.path.name), marked).await.map(|_| ())
}
