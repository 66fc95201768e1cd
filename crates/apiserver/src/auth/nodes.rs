//! What a node may do: what the role `system:node` says, less what concerns other nodes and the pods on them.
//!
//! A node runs what others give it, so it must not read more than its pods need: secrets, config maps, claims,
//! volumes and accounts are open to a node as long as a pod that is bound to it names them. What it may write is
//! narrowed further by admission, which sees the objects.

use super::rbac::Policy;
use super::{Attributes, Directory, NODES, Target, User, rbac, split_node};
use crate::store::Key;
use serde_json::Value;
use std::collections::BTreeSet;

/// The role whose rules all nodes have.
const ROLE: &str = "system:node";
/// Where nodes keep their leases.
const LEASES: &str = "kube-node-lease";

/// What a pod ties to its node.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Bonds {
    pub node: String,
    pub secrets: BTreeSet<String>,
    pub config_maps: BTreeSet<String>,
    pub claims: BTreeSet<String>,
    pub resource_claims: BTreeSet<String>,
    account: String,
}

/// What is said of a request of a node.
#[derive(Debug, PartialEq, Eq)]
pub enum Opinion {
    Allow,
    /// Nothing but a role binding can allow it; in Kubernetes' words why not.
    None(String),
}

/// The node that a user is, if it is one.
pub fn node_of(user: &User) -> Option<&str> {
    split_node(&user.name).filter(|_| user.in_group(NODES))
}

/// Whether a node may do what it asks for.
pub fn judge(node: &str, wanted: &Attributes, policy: &Policy, directory: &dyn Directory) -> Opinion {
    if let Err(why) = concerns(node, wanted, directory) {
        return Opinion::None(why);
    }
    let role = policy.cluster_roles.get(&rbac::key(rbac::CLUSTER_ROLES, "", ROLE));
    match role.is_some_and(|role| role.rules.iter().any(|rule| rule.allows(wanted))) {
        true => Opinion::Allow,
        false => Opinion::None(String::new()),
    }
}

/// Refuses what belongs to other nodes.
fn concerns(node: &str, wanted: &Attributes, directory: &dyn Directory) -> Result<(), String> {
    let Target::Resource {
        group,
        resource,
        subresource,
        namespace,
        name,
        ..
    } = &wanted.target
    else {
        return Ok(());
    };
    let verb = wanted.verb.as_str();
    let unrelated = || Err(format!("no relationship found between node '{node}' and this object"));
    let tied = |has: &dyn Fn(&Bonds) -> bool| match directory.bonds(namespace, node, has) {
        true => Ok(()),
        false => unrelated(),
    };
    let on_node = |kind: &str| match directory.current(&rbac::key(kind, "", name)) {
        Some(object) if object["spec"]["nodeName"] == node => Ok(()),
        _ => unrelated(),
    };
    match (group.as_str(), resource.as_str()) {
        ("", "secrets" | "configmaps") => {
            if !matches!(verb, "get" | "list" | "watch") {
                return Err("can only read resources of this type".to_string());
            }
            if name.is_empty() {
                return Err("No Object name found".to_string());
            }
            match resource.as_str() {
                "secrets" => tied(&|pod| pod.secrets.contains(name)),
                _ => tied(&|pod| pod.config_maps.contains(name)),
            }
        }
        ("", "persistentvolumeclaims") => tied(&|pod| pod.claims.contains(name)),
        ("", "persistentvolumes") => {
            if verb != "get" {
                return Err("can only get individual resources of this type".to_string());
            }
            let volume = directory.current(&rbac::key("/persistentvolumes", "", name));
            let claim = volume.as_ref().map(|volume| &volume["spec"]["claimRef"]);
            let field = |name: &str| claim.and_then(|claim| claim[name].as_str()).unwrap_or_default();
            match directory.bonds(field("namespace"), node, &|pod| pod.claims.contains(field("name"))) {
                true => Ok(()),
                false => unrelated(),
            }
        }
        ("", "serviceaccounts") => {
            if subresource == "token" && verb != "create" || name.is_empty() {
                return Err("can only create tokens for individual service accounts".to_string());
            }
            // A pod without an account, such as a mirror of one that the node made itself, ties none.
            tied(&|pod| pod.account == *name)
        }
        ("", "pods") if verb == "get" && subresource.is_empty() => {
            match directory.current(&rbac::key("/pods", namespace, name)) {
                Some(pod) if pod["spec"]["nodeName"] == node => Ok(()),
                _ => unrelated(),
            }
        }
        ("", "nodes") if !name.is_empty() && name != node => Err(format!(
            "node '{node}' cannot {verb} node '{name}'; it can only read and change its own"
        )),
        ("coordination.k8s.io", "leases") if namespace != LEASES => {
            Err(format!("can only access leases in the \"{LEASES}\" system namespace"))
        }
        ("coordination.k8s.io", "leases") if verb != "create" && name != node => {
            Err("can only access node lease with the same name as the requesting node".to_string())
        }
        ("storage.k8s.io", "volumeattachments") => {
            if verb != "get" {
                return Err("can only get individual resources of this type".to_string());
            }
            on_node("storage.k8s.io/volumeattachments")
        }
        ("resource.k8s.io", "resourceclaims") => {
            if verb != "get" {
                return Err("can only get individual resources of this type".to_string());
            }
            tied(&|pod| pod.resource_claims.contains(name))
        }
        ("resource.k8s.io", "resourceslices") => match verb {
            // Admission looks at what is created, and what may be listed is no secret.
            "create" | "list" | "watch" => Ok(()),
            // Which ones are meant is not looked at here, so they are deleted one by one.
            "deletecollection" => {
                Err("can only deletecollection resourceslices with nodeName field selector".to_string())
            }
            _ => on_node("resource.k8s.io/resourceslices"),
        },
        ("storage.k8s.io", "csinodes") if verb != "create" && name != node => {
            Err("can only access CSINode with the same name as the requesting node".to_string())
        }
        _ => Ok(()),
    }
}

/// Why a node gets no token.
#[derive(Debug, PartialEq, Eq)]
pub enum NoToken {
    Refused(String),
    /// No volume of the pod is for this audience; a role may still allow it.
    Unnamed {
        audience: String,
    },
}

/// Why a node may not have the token that it asks for: it must be bound to a pod that runs there, for an audience that a
/// volume of this pod names.
pub fn token(node: &str, namespace: &str, request: &Value, directory: &dyn Directory) -> Result<(), NoToken> {
    let refused = |why: &str| Err(NoToken::Refused(why.to_string()));
    let reference = &request["spec"]["boundObjectRef"];
    let text = |field: &str| reference[field].as_str().unwrap_or_default();
    if (text("apiVersion"), text("kind")) != ("v1", "Pod") || text("name").is_empty() {
        return refused("node requested token not bound to a pod");
    }
    if text("uid").is_empty() {
        return refused("node requested token with a pod binding without a uid");
    }
    let pod = directory.current(&rbac::key("/pods", namespace, text("name")));
    match pod {
        Some(pod) if pod["metadata"]["uid"] != text("uid") => Err(NoToken::Refused(format!(
            "the UID in the bound object reference ({}) does not match the UID in record. The object might have been \
             deleted and then recreated",
            text("uid")
        ))),
        Some(pod) if pod["spec"]["nodeName"] == node => audience(namespace, request, &pod, directory),
        _ => refused("node requested token bound to a pod scheduled on a different node"),
    }
}

fn audience(namespace: &str, request: &Value, pod: &Value, directory: &dyn Directory) -> Result<(), NoToken> {
    let mut audiences = items(&request["spec"]["audiences"]);
    let wanted = audiences.next().and_then(Value::as_str).unwrap_or_default();
    if audiences.next().is_some() {
        return Err(NoToken::Refused("node may only request 0 or 1 audiences".to_string()));
    }
    let mut missing = Vec::new();
    for volume in items(&pod["spec"]["volumes"]) {
        let mut tokens = items(&volume["projected"]["sources"])
            .map(|source| &source["serviceAccountToken"])
            .filter(|token| token.is_object());
        if tokens.any(|token| token["audience"].as_str().unwrap_or_default() == wanted) {
            return Ok(());
        }
        match driver_audiences(volume, namespace, pod, directory) {
            Ok(audiences) if audiences.iter().any(|audience| audience == wanted) => return Ok(()),
            Ok(_) => {}
            Err(why) => missing.push(why),
        }
    }
    match missing.as_slice() {
        [] => Err(NoToken::Unnamed {
            audience: wanted.to_string(),
        }),
        [why] => Err(NoToken::Refused(format!("error validating audience {wanted:?}: {why}"))),
        several => Err(NoToken::Refused(format!(
            "error validating audience {wanted:?}: [{}]",
            several.join(", ")
        ))),
    }
}

/// The audiences that the storage driver behind a volume wants tokens for; an error names what is not there.
fn driver_audiences(
    volume: &Value,
    namespace: &str,
    pod: &Value,
    directory: &dyn Directory,
) -> Result<Vec<String>, String> {
    let find = |kind: &str, resource: &str, namespace: &str, name: &str| {
        directory
            .current(&rbac::key(resource, namespace, name))
            .ok_or_else(|| format!("{kind} {name:?} not found"))
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let claim = match volume["ephemeral"]["volumeClaimTemplate"].is_object() {
        true => format!("{}-{}", text(&pod["metadata"]["name"]), text(&volume["name"])),
        false => text(&volume["persistentVolumeClaim"]["claimName"]),
    };
    let driver = match claim.is_empty() {
        true => text(&volume["csi"]["driver"]),
        false => {
            let claim = find("persistentvolumeclaim", "/persistentvolumeclaims", namespace, &claim)?;
            let name = text(&claim["spec"]["volumeName"]);
            let behind = find("persistentvolume", "/persistentvolumes", "", &name)?;
            text(&behind["spec"]["csi"]["driver"])
        }
    };
    if driver.is_empty() {
        return Ok(Vec::new());
    }
    let driver = find("csidriver.storage.k8s.io", "storage.k8s.io/csidrivers", "", &driver)?;
    let requests = items(&driver["spec"]["tokenRequests"]);
    Ok(requests.map(|request| text(&request["audience"])).collect())
}

impl Bonds {
    /// Reads what a pod ties to its node; `None` while it has none.
    pub fn of(key: &Key, pod: &Value) -> Option<Bonds> {
        let spec = &pod["spec"];
        let node = spec["nodeName"].as_str().filter(|node| !node.is_empty())?;
        let mut bonds = Bonds {
            node: node.to_string(),
            account: spec["serviceAccountName"].as_str().unwrap_or_default().to_string(),
            ..Bonds::default()
        };
        for list in ["initContainers", "containers", "ephemeralContainers"] {
            for container in items(&spec[list]) {
                for variable in items(&container["env"]) {
                    insert(&mut bonds.secrets, &variable["valueFrom"]["secretKeyRef"]["name"]);
                    insert(
                        &mut bonds.config_maps,
                        &variable["valueFrom"]["configMapKeyRef"]["name"],
                    );
                }
                for source in items(&container["envFrom"]) {
                    insert(&mut bonds.secrets, &source["secretRef"]["name"]);
                    insert(&mut bonds.config_maps, &source["configMapRef"]["name"]);
                }
            }
        }
        for secret in items(&spec["imagePullSecrets"]) {
            insert(&mut bonds.secrets, &secret["name"]);
        }
        for claim in items(&spec["resourceClaims"]).chain(items(&pod["status"]["resourceClaimStatuses"])) {
            insert(&mut bonds.resource_claims, &claim["resourceClaimName"]);
        }
        for volume in items(&spec["volumes"]) {
            insert(&mut bonds.secrets, &volume["secret"]["secretName"]);
            insert(&mut bonds.secrets, &volume["csi"]["nodePublishSecretRef"]["name"]);
            insert(&mut bonds.config_maps, &volume["configMap"]["name"]);
            insert(&mut bonds.claims, &volume["persistentVolumeClaim"]["claimName"]);
            for source in items(&volume["projected"]["sources"]) {
                insert(&mut bonds.secrets, &source["secret"]["name"]);
                insert(&mut bonds.config_maps, &source["configMap"]["name"]);
            }
            if let (true, Some(name)) = (volume["ephemeral"].is_object(), volume["name"].as_str()) {
                bonds.claims.insert(format!("{}-{name}", key.name));
            }
        }
        Some(bonds)
    }
}

fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

fn insert(names: &mut BTreeSet<String>, name: &Value) {
    names.extend(name.as_str().map(str::to_string));
}

#[cfg(test)]
mod tests;
