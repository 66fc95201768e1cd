//! Secrets and ConfigMaps that no namespace could hold, least of all another one: they would be waited for for ever.

use crate::webapp::WebAppSpec;
use k8s_openapi::api::core::v1::{EnvFromSource, EnvVar, Volume};
use stead_machinery::field::FieldError;
use stead_machinery::names;

/// What is referred to: the field, and the name that is there, if there is one.
type Reference<'a> = (String, Option<&'a str>);

/// Every reference that cannot be one.
pub fn errors(spec: &WebAppSpec) -> Vec<FieldError> {
    let mut named = variables("spec", &spec.env, &spec.env_from);
    for (list, containers) in [("initContainers", &spec.init_containers), ("sidecars", &spec.sidecars)] {
        for (index, container) in containers.iter().enumerate() {
            let place = format!("spec.{list}[{index}]");
            let (env, from) = (container.env.as_deref(), container.env_from.as_deref());
            named.extend(variables(&place, env.unwrap_or_default(), from.unwrap_or_default()));
        }
    }
    for (index, volume) in spec.volumes.iter().enumerate() {
        named.extend(mounted(&format!("spec.volumes[{index}]"), volume));
    }
    named.into_iter().filter_map(wrong).collect()
}

fn wrong((field, name): Reference<'_>) -> Option<FieldError> {
    let Some(name) = name else {
        return Some(FieldError::required(field, "name what it refers to"));
    };
    let detail = "not a name; what it refers to is in the same namespace";
    (!names::dns1123_subdomain(name).is_empty()).then(|| FieldError::invalid(field, name, detail))
}

/// What the variables of a container refer to.
fn variables<'a>(place: &str, env: &'a [EnvVar], env_from: &'a [EnvFromSource]) -> Vec<Reference<'a>> {
    let mut named = Vec::new();
    for (index, variable) in env.iter().enumerate() {
        let source = variable.value_from.as_ref();
        let secret = source.and_then(|source| source.secret_key_ref.as_ref());
        let map = source.and_then(|source| source.config_map_key_ref.as_ref());
        let field = |kind: &str| format!("{place}.env[{index}].valueFrom.{kind}.name");
        named.extend(secret.map(|secret| (field("secretKeyRef"), Some(secret.name.as_str()))));
        named.extend(map.map(|map| (field("configMapKeyRef"), Some(map.name.as_str()))));
    }
    for (index, source) in env_from.iter().enumerate() {
        let field = |kind: &str| format!("{place}.envFrom[{index}].{kind}.name");
        let (secret, map) = (&source.secret_ref, &source.config_map_ref);
        named.extend(
            secret
                .iter()
                .map(|secret| (field("secretRef"), Some(secret.name.as_str()))),
        );
        named.extend(map.iter().map(|map| (field("configMapRef"), Some(map.name.as_str()))));
    }
    named
}

/// What a volume refers to.
fn mounted<'a>(place: &str, volume: &'a Volume) -> Vec<Reference<'a>> {
    let mut named = Vec::new();
    if let Some(secret) = &volume.secret {
        named.push((format!("{place}.secret.secretName"), secret.secret_name.as_deref()));
    }
    if let Some(map) = &volume.config_map {
        named.push((format!("{place}.configMap.name"), Some(map.name.as_str())));
    }
    let sources = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    for (index, source) in sources.enumerate() {
        let field = |kind: &str| format!("{place}.projected.sources[{index}].{kind}.name");
        let (secret, map) = (&source.secret, &source.config_map);
        named.extend(
            secret
                .iter()
                .map(|secret| (field("secret"), Some(secret.name.as_str()))),
        );
        named.extend(map.iter().map(|map| (field("configMap"), Some(map.name.as_str()))));
    }
    named
}
