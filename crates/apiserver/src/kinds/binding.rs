//! `pods/binding`: a scheduler gives a pod its node.

use crate::error::{ApiError, GroupResource, Result};
use crate::server::{Body, respond};
use crate::verbs::edit::edit;
use crate::verbs::write_options::{Commit, OptionsKind, WriteOptions};
use crate::verbs::{Call, object};
use http::Response;
use serde_json::{Value, json};

pub async fn bind(call: &Call, body: Body) -> Result<Response<Body>> {
    let options = WriteOptions::parse(&call.query, &call.headers, OptionsKind::Create)?;
    let binding = call.read_object(body, options.validation).await?;
    let name = match call.path.name.as_str() {
        "" => object::name(&binding).to_string(),
        name => name.to_string(),
    };
    if object::name(&binding) != name {
        return Err(ApiError::bad_request(
            "name in URL does not match name in Binding object",
        ));
    }
    let target = &binding["target"];
    if !matches!(target["kind"].as_str(), None | Some("" | "Node")) {
        return Err(ApiError::new(
            500,
            "",
            "target.kind: Unsupported value: supported values: \"Node\", \"<empty>\"",
        ));
    }
    let node = target["name"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Err(ApiError::new(500, "", "target.name: Required value"));
    }
    if options.commit == Commit::Store {
        let pods = call.key_of("/pods", &name);
        edit(call, &pods, |pod| assign(call, pod, &binding, node))
            .await
            .map_err(|error| match error.code {
                404 => ApiError::not_found(
                    &GroupResource {
                        group: String::new(),
                        resource: "pods".to_string(),
                    },
                    &name,
                ),
                _ => error,
            })?;
    }
    let success = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    respond::object(201, &success, call.accepted)
}

fn assign(call: &Call, pod: &mut Value, binding: &Value, node: &str) -> Result<()> {
    let name = object::name(pod).to_string();
    let refuse = |why: String| {
        let subject = GroupResource {
            group: String::new(),
            resource: "pods/binding".to_string(),
        };
        Err(ApiError::conflict(&subject, &name, why))
    };
    for field in ["uid", "resourceVersion"] {
        let wanted = object::meta(binding, field);
        if !wanted.is_empty() && wanted != object::meta(pod, field) {
            return refuse(format!("Precondition failed: {field} is {}", object::meta(pod, field)));
        }
    }
    if object::is_deleting(pod) {
        return refuse(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    let current = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if !current.is_empty() {
        return refuse(format!("pod {name} is already assigned to node {current:?}"));
    }
    if pod["spec"]["schedulingGates"]
        .as_array()
        .is_some_and(|gates| !gates.is_empty())
    {
        return refuse(format!("pod {name} has non-empty .spec.schedulingGates"));
    }
    pod["spec"]["nodeName"] = node.into();
    for field in ["annotations", "labels"] {
        if let Some(extra) = binding["metadata"][field].as_object().filter(|extra| !extra.is_empty()) {
            let metadata = object::metadata_mut(pod);
            let slot = metadata.entry(field).or_insert_with(|| json!({}));
            for (key, value) in extra {
                slot[key.as_str()] = value.clone();
            }
        }
    }
    let condition = json!({
        "type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": object::time(call.now),
    });
    super::pod::set_condition(pod, condition);
    Ok(())
}
