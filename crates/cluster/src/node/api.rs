//! The agent's writes to the API: pod statuses, the final delete, the Node and its Lease.
//!
//! Each is one request (or a create that falls back to a patch), safe to send again when its answer was lost.

use super::registration::{self, NodeConfig};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

/// What became of a write to a pod.
#[derive(Debug)]
pub enum Written {
    /// The object as the server has it now.
    Stored(Box<Pod>),
    /// There is no such pod any more.
    Gone,
    /// Nothing is known to have happened; try again.
    Failed(String),
}

/// True if the API has not what the node knows, in the fields that a node owns.
pub fn differs(have: Option<&PodStatus>, want: &PodStatus) -> bool {
    let Some(have) = have else { return true };
    let condition_differs = want.conditions.iter().flatten().any(|wanted| {
        let found = have
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.type_ == wanted.type_);
        found.is_none_or(|found| {
            (&found.status, &found.reason, &found.message, &found.observed_generation)
                != (
                    &wanted.status,
                    &wanted.reason,
                    &wanted.message,
                    &wanted.observed_generation,
                )
        })
    });
    condition_differs
        || have.phase != want.phase
        || have.reason != want.reason
        || have.message != want.message
        || have.host_ip != want.host_ip
        || have.pod_ip != want.pod_ip
        || have.start_time != want.start_time
        || have.observed_generation != want.observed_generation
        || have.container_statuses != want.container_statuses
        || have.init_container_statuses != want.init_container_statuses
        || have.ephemeral_container_statuses != want.ephemeral_container_statuses
}

/// The patch that brings a status to `want`, leaving alone what others own (conditions of other types).
pub fn status_patch(pod: &Pod, want: &PodStatus) -> Value {
    let have = pod.status.as_ref();
    let mut status = serde_json::to_value(want).unwrap_or_default();
    if let Some(fields) = status.as_object_mut() {
        for (name, gone) in [("reason", want.reason.is_none()), ("message", want.message.is_none())] {
            if gone {
                fields.insert(name.to_owned(), Value::Null);
            }
        }
        // Conditions are merged by type and keep what a patch does not name.
        for condition in fields
            .get_mut("conditions")
            .and_then(Value::as_array_mut)
            .into_iter()
            .flatten()
        {
            if let Some(condition) = condition.as_object_mut() {
                condition.entry("reason").or_insert(Value::Null);
                condition.entry("message").or_insert(Value::Null);
            }
        }
        // These lists are merged by address, so that an old address stays unless the list is replaced.
        let unchanged = [
            ("hostIPs", have.is_some_and(|have| have.host_ips == want.host_ips)),
            ("podIPs", have.is_some_and(|have| have.pod_ips == want.pod_ips)),
        ];
        for (name, same) in unchanged {
            if same {
                fields.remove(name);
            } else if let Some(list) = fields.get_mut(name).and_then(Value::as_array_mut)
                && have.is_some_and(|have| {
                    have.host_ips.is_some() && name == "hostIPs" || have.pod_ips.is_some() && name == "podIPs"
                })
            {
                list.insert(0, json!({ "$patch": "replace" }));
            }
        }
    }
    json!({ "metadata": { "uid": pod.metadata.uid }, "status": status })
}

/// Writes a pod's status.
pub async fn write_status(client: &Client, pod: &Pod, want: &PodStatus) -> Written {
    let (Some(name), Some(namespace)) = (&pod.metadata.name, &pod.metadata.namespace) else {
        return Written::Gone;
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let patch = Patch::Strategic(status_patch(pod, want));
    match pods.patch_status(name, &PatchParams::default(), &patch).await {
        Ok(stored) => Written::Stored(Box::new(stored)),
        Err(error) => lost_or_gone(error),
    }
}

/// Ends a pod's object: the node holds nothing of it any more.
pub async fn release(client: &Client, pod: &Pod) -> Written {
    let (Some(name), Some(namespace)) = (&pod.metadata.name, &pod.metadata.namespace) else {
        return Written::Gone;
    };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let options = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions {
            uid: pod.metadata.uid.clone(),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match pods.delete(name, &options).await {
        // With finalizers on it the object stays until their owners are done; the node's part is over.
        Ok(_) => Written::Gone,
        Err(error) => lost_or_gone(error),
    }
}

fn lost_or_gone(error: kube::Error) -> Written {
    match &error {
        kube::Error::Api(status) if status.code == 404 => Written::Gone,
        // The UID is not the one that was named: another pod has the name now.
        kube::Error::Api(status) if status.code == 409 && status.message.contains("recondition") => Written::Gone,
        _ => Written::Failed(error.to_string()),
    }
}

/// Makes the node known, or brings an existing one up to date. Gives the node as the API has it.
///
/// What the node is for, and which addresses are its pods', is said by the `registrar`: the API server lets no node say
/// the former of itself.
pub async fn register(
    client: &Client,
    registrar: &Client,
    config: &NodeConfig,
    runtime: &'static str,
    now: Timestamp,
) -> Result<Node, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let fresh = registration::node(config, runtime, now);
    let known = match nodes.create(&PostParams::default(), &fresh).await {
        // A real API server drops the status of a create by some clients; writing it again costs one request.
        Ok(created) => created,
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {
            let labels = Patch::Merge(registration::label_patch(config));
            nodes.patch(&config.name, &PatchParams::default(), &labels).await?
        }
        Err(error) => return Err(error),
    };
    let told = [
        registration::role_patch(config),
        registration::range_patch(config, &known),
    ];
    for patch in told.into_iter().flatten() {
        let nodes: Api<Node> = Api::all(registrar.clone());
        nodes
            .patch(&config.name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
    }
    report(client, config, runtime, now).await
}

/// Writes the node's status.
pub async fn report(
    client: &Client,
    config: &NodeConfig,
    runtime: &'static str,
    now: Timestamp,
) -> Result<Node, kube::Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let old = nodes.get(&config.name).await?;
    let status = registration::status(config, runtime, old.status.as_ref(), now);
    let patch = Patch::Strategic(json!({ "status": status }));
    nodes.patch_status(&config.name, &PatchParams::default(), &patch).await
}

/// Says that the node lives.
pub async fn renew(client: &Client, config: &NodeConfig, uid: &str, now: Timestamp) -> Result<(), kube::Error> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), "kube-node-lease");
    let lease = registration::lease(config, uid, now);
    // It is the node's, and goes with it, also where it was there before the node.
    let owners = &lease.metadata.owner_references;
    let patch = Patch::Merge(json!({ "metadata": { "ownerReferences": owners }, "spec": lease.spec }));
    match leases.patch(&config.name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            match leases.create(&PostParams::default(), &lease).await {
                // Another renewal of ours was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
                created => created.map(|_| ()),
            }
        }
        Err(error) => Err(error),
    }
}
