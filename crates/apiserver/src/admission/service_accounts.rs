//! Service accounts of pods: a default one, and the token that their containers find in their file system.

use super::pods::{self, text};
use super::{Review, ServiceAccounts};
use crate::auth::nodes::Bonds;
use crate::error::{ApiError, Result};
use crate::verbs::Call;
use serde_json::{Value, json};

const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// An hour and a little, which tells such tokens apart from those that somebody asked for.
const TOKEN_SECONDS: u32 = 3607;

pub fn mutate(call: &Call, review: &mut Review) -> Result<()> {
    let (namespace, name) = (review.namespace.clone(), review.name.clone());
    if !pods::creates_pod(review) {
        return Ok(());
    }
    let Some(pod) = review.object.as_mut().filter(|pod| !pods::is_mirror(pod)) else {
        return Ok(());
    };
    let spec = &mut pod["spec"];
    if text(spec, "serviceAccountName").is_empty() {
        let deprecated = text(spec, "serviceAccount").to_string();
        let account = if deprecated.is_empty() {
            "default".to_string()
        } else {
            deprecated
        };
        spec["serviceAccountName"] = account.into();
    }
    spec["serviceAccount"] = spec["serviceAccountName"].clone();
    let account_name = text(spec, "serviceAccountName").to_string();
    let account = match find(call, &namespace, &account_name) {
        Some(account) => account,
        None if call.shared.settings.service_accounts == ServiceAccounts::WhenPresent => return Ok(()),
        None => return Err(missing(call, &name, &namespace, &account_name)),
    };
    if spec["imagePullSecrets"].as_array().is_none_or(Vec::is_empty)
        && let Some(secrets) = account["imagePullSecrets"]
            .as_array()
            .filter(|secrets| !secrets.is_empty())
    {
        spec["imagePullSecrets"] = json!(secrets);
    }
    let wanted = spec["automountServiceAccountToken"]
        .as_bool()
        .or_else(|| account["automountServiceAccountToken"].as_bool())
        .unwrap_or(true);
    if wanted {
        let suffix = call.shared.environment.name_suffix();
        mount_token(spec, &suffix);
    }
    Ok(())
}

fn find(call: &Call, namespace: &str, name: &str) -> Option<std::sync::Arc<Value>> {
    call.shared.admission.object("/serviceaccounts", namespace, name)
}

fn missing(call: &Call, pod: &str, namespace: &str, account: &str) -> ApiError {
    let why = format!("error looking up service account {namespace}/{account}: serviceaccount \"{account}\" not found");
    ApiError::forbidden(&call.group_resource(), pod, why)
}

fn mount_token(spec: &mut Value, suffix: &str) {
    let token_sources = |volume: &Value| {
        let sources = volume["projected"]["sources"].as_array().cloned().unwrap_or_default();
        let has = |field: &str| sources.iter().any(|source| source.get(field).is_some());
        has("serviceAccountToken") && text(volume, "name").starts_with("kube-api-access-")
    };
    let existing = pods::containers(spec, "volumes")
        .find(|volume| token_sources(volume))
        .map(|volume| text(volume, "name").to_string());
    let name = existing.clone().unwrap_or_else(|| format!("kube-api-access-{suffix}"));
    let mut mounted = false;
    for list in ["initContainers", "containers"] {
        for container in pods::containers_mut(spec, list) {
            let mounts = container["volumeMounts"].as_array().cloned().unwrap_or_default();
            if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
                continue;
            }
            if !container["volumeMounts"].is_array() {
                container["volumeMounts"] = json!([]);
            }
            if let Some(mounts) = container["volumeMounts"].as_array_mut() {
                mounts.push(json!({"name": name, "readOnly": true, "mountPath": MOUNT_PATH}));
                mounted = true;
            }
        }
    }
    if !mounted || existing.is_some() {
        return;
    }
    if !spec["volumes"].is_array() {
        spec["volumes"] = json!([]);
    }
    if let Some(volumes) = spec["volumes"].as_array_mut() {
        volumes.push(json!({"name": name, "projected": {"defaultMode": 420, "sources": [
            {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
            {"downwardAPI": {"items": [
                {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
            ]}},
        ]}}));
    }
}

/// Mirror pods name nothing that only the API knows, and no pod names an account that is not there.
pub fn validate(call: &Call, review: &Review) -> Result<()> {
    let Some(pod) = review.object.as_ref().filter(|_| pods::creates_pod(review)) else {
        return Ok(());
    };
    let account = text(&pod["spec"], "serviceAccountName");
    if pods::is_mirror(pod) {
        if !account.is_empty() {
            let why = "a mirror pod may not reference service accounts";
            return Err(ApiError::forbidden(&call.group_resource(), &review.name, why));
        }
        return match named_by_mirror(call, review, pod) {
            Some(why) => Err(ApiError::forbidden(&call.group_resource(), &review.name, why)),
            None => Ok(()),
        };
    }
    let required = call.shared.settings.service_accounts == ServiceAccounts::Required;
    if required && find(call, &review.namespace, account).is_none() {
        return Err(missing(call, &review.name, &review.namespace, account));
    }
    Ok(())
}

/// What a mirror pod names although only the API knows it. A node may read what its pods name, and it makes mirror pods
/// itself: it must not let itself in.
fn named_by_mirror(call: &Call, review: &Review, pod: &Value) -> Option<&'static str> {
    let bonds = Bonds::of(&call.key(&review.name), pod).unwrap_or_default();
    let mut volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    let tokens = volumes.any(|volume| {
        let mut sources = volume["projected"]["sources"].as_array().into_iter().flatten();
        sources.any(|source| !source["serviceAccountToken"].is_null())
    });
    match () {
        () if !bonds.secrets.is_empty() => Some("a mirror pod may not reference secrets"),
        () if !bonds.config_maps.is_empty() => Some("a mirror pod may not reference configmaps"),
        () if !bonds.claims.is_empty() => Some("a mirror pod may not reference persistentvolumeclaims"),
        () if !bonds.resource_claims.is_empty() => Some("a mirror pod may not reference resourceclaims"),
        () if tokens => Some("a mirror pod may not use serviceAccountToken volume projections"),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_token_leaves_nothing_else_behind() {
        let mut spec = json!({"containers": [{"name": "c"}]});
        mount_token(&mut spec, "x");
        assert_eq!(spec["containers"][0]["volumeMounts"][0]["name"], "kube-api-access-x");
        assert!(spec.get("initContainers").is_none(), "{spec}");
    }
}
