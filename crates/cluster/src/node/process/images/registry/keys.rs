//! Who may pull: the registries and passwords of a pod's `imagePullSecrets`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::fmt;

/// Passwords by registry. They are never printed.
#[derive(Clone, Default)]
pub struct Keys {
    /// A registry, and what it is shown: `Basic ...`.
    known: Vec<(String, String)>,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let registries = self.known.iter().map(|(registry, _)| registry);
        f.debug_list().entries(registries).finish()
    }
}

impl Keys {
    /// Takes what a secret of type `kubernetes.io/dockerconfigjson` or `kubernetes.io/dockercfg` says.
    pub fn add(&mut self, secret: &Secret) {
        let data = |name: &str| -> Option<Value> {
            let bytes = secret.data.as_ref()?.get(name)?;
            serde_json::from_slice(&bytes.0).ok()
        };
        let new = data(".dockerconfigjson").map(|mut config| config["auths"].take());
        let registries = new.or_else(|| data(".dockercfg")).unwrap_or_default();
        for (registry, entry) in registries.as_object().into_iter().flatten() {
            let pair = match (entry["username"].as_str(), entry["password"].as_str()) {
                (Some(user), Some(password)) => Some(STANDARD.encode(format!("{user}:{password}"))),
                _ => entry["auth"].as_str().map(str::to_owned),
            };
            if let Some(pair) = pair.filter(|pair| !pair.is_empty()) {
                self.known.push((host(registry).to_owned(), format!("Basic {pair}")));
            }
        }
    }

    /// What a registry is shown.
    pub fn of(&self, registry: &str) -> Option<String> {
        let wanted = host(registry);
        let found = self.known.iter().find(|(known, _)| known == wanted);
        found.map(|(_, shown)| shown.clone())
    }
}

/// The registry of a key, which may be written as an address: `https://index.docker.io/v1/` is the usual one.
fn host(registry: &str) -> &str {
    let plain = registry.split_once("://").map_or(registry, |(_, rest)| rest);
    let plain = plain.split_once('/').map_or(plain, |(host, _)| host);
    match plain {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    }
}
