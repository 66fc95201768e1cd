//! Who may pull: the registries and passwords of a pod's `imagePullSecrets`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::Secret;
use serde_json::Value;
use std::fmt;

/// Passwords by registry. They are never printed.
#[derive(Clone, Default)]
pub struct Keys {
    /// A registry, perhaps with the beginning of repositories there, and what it is shown: `Basic ...`.
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
                self.known.push((place(registry), format!("Basic {pair}")));
            }
        }
    }

    /// What a registry is shown for a repository: of the keys that fit, the first of those that say the most.
    pub fn of(&self, registry: &str, repository: &str) -> Option<String> {
        let wanted = format!("{}/{repository}", place(registry));
        let fits = |known: &str| {
            let rest = wanted.strip_prefix(known);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let fitting = self.known.iter().filter(|(known, _)| fits(known));
        // Of equals the last one is the greatest, so they are looked at from the end.
        let found = fitting.rev().max_by_key(|(known, _)| known.len());
        found.map(|(_, shown)| shown.clone())
    }
}

/// The registry and path of a key, which may be written as an address: `https://index.docker.io/v1/` is the usual one.
fn place(key: &str) -> String {
    let plain = key.split_once("://").map_or(key, |(_, rest)| rest);
    let (host, path) = plain.split_once('/').unwrap_or((plain, ""));
    let host = match host {
        "index.docker.io" | "registry-1.docker.io" => "docker.io",
        other => other,
    };
    // The version of the protocol says nothing about repositories.
    let path = match path.split_once('/').unwrap_or((path, "")) {
        ("v1" | "v2", rest) => rest,
        _ => path,
    };
    format!("{host}/{path}").trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_says_the_most_about_a_repository_is_shown() {
        let known = [
            ("https://index.docker.io/v1/", "usual"),
            ("example.com", "all"),
            ("example.com/team", "team"),
            ("https://example.com/v2/team/app/", "app"),
            ("example.com/team", "later"),
        ];
        let keys = Keys {
            known: known.map(|(key, shown)| (place(key), shown.to_owned())).to_vec(),
        };
        let shown = |registry: &str, repository: &str| keys.of(registry, repository);
        assert_eq!(shown("docker.io", "library/nginx").as_deref(), Some("usual"));
        assert_eq!(shown("example.com", "other").as_deref(), Some("all"));
        assert_eq!(shown("example.com", "team/web").as_deref(), Some("team"));
        assert_eq!(shown("example.com", "team-b/web").as_deref(), Some("all"));
        assert_eq!(shown("example.com", "team/app").as_deref(), Some("app"));
        assert_eq!(shown("example.com:5000", "team/app"), None);
    }
}
