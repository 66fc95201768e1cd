//! The Secrets and ConfigMaps that a WebApp refers to, known by a digest of their content.
//!
//! A change of what pods read at their start must roll them once. For that a digest is enough, so the cache keeps
//! nothing else: no Secret's content stays in the operator's memory. What follows from the digests is on the pods, for
//! everybody who may see pods. So the digest of a Secret covers its UID too, which nobody knows who may not read the
//! Secret: its content cannot be guessed and compared.

use crate::names;
use crate::resources::revision::{Revision, wanted_hash};
use crate::rollout;
use crate::seen::{Digests, References};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Resource;
use kube::core::{NamespaceResourceScope, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use stead::Store;
use stead_apis::{WebApp, WebAppSpec};

/// An object of kind `K` of which only identity and a digest of the content are kept.
#[derive(Debug, Clone)]
pub struct Digested<K> {
    pub metadata: ObjectMeta,
    pub digest: String,
    kind: PhantomData<fn() -> K>,
}

/// What the spec refers to: by name, and whether it can do without.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub config_maps: BTreeMap<String, Need>,
    pub secrets: BTreeMap<String, Need>,
}

/// Whether an application can start without an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    Optional,
    Required,
}

/// Everything that the pods read at their start.
pub fn named(spec: &WebAppSpec) -> Named {
    let mut found = Named::default();
    let containers = spec.init_containers.iter().chain(&spec.sidecars);
    let variables = spec
        .env
        .iter()
        .chain(containers.clone().flat_map(|c| c.env.iter().flatten()));
    for source in variables.filter_map(|variable| variable.value_from.as_ref()) {
        if let Some(key) = &source.config_map_key_ref {
            found.config_map(&key.name, key.optional);
        }
        if let Some(key) = &source.secret_key_ref {
            found.secret(&key.name, key.optional);
        }
    }
    for source in spec
        .env_from
        .iter()
        .chain(containers.flat_map(|c| c.env_from.iter().flatten()))
    {
        if let Some(whole) = &source.config_map_ref {
            found.config_map(&whole.name, whole.optional);
        }
        if let Some(whole) = &source.secret_ref {
            found.secret(&whole.name, whole.optional);
        }
    }
    for volume in &spec.volumes {
        if let Some(source) = &volume.config_map {
            found.config_map(&source.name, source.optional);
        }
        if let Some(source) = &volume.secret {
            found.secret(source.secret_name.as_deref().unwrap_or_default(), source.optional);
        }
        for source in volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten())
        {
            if let Some(part) = &source.config_map {
                found.config_map(&part.name, part.optional);
            }
            if let Some(part) = &source.secret {
                found.secret(&part.name, part.optional);
            }
        }
    }
    found
}

/// Everything that the spec names now, and what the last good revision read: its pods may still run, or run again.
pub fn named_by_any(app: &WebApp, revisions: &[Revision]) -> Named {
    let mut all = named(&app.spec);
    if let Some(good) = rollout::last_good(revisions, &wanted_hash(app)) {
        let then = named(&good.as_of(app).spec);
        all.config_maps.extend(then.config_maps);
        all.secrets.extend(then.secrets);
    }
    all
}

/// Their digests, as the cache knows them.
pub fn look(
    app: &WebApp,
    revisions: &[Revision],
    config_maps: &Store<Digested<ConfigMap>>,
    secrets: &Store<Digested<Secret>>,
) -> Digests {
    let namespace = app.metadata.namespace.as_deref();
    let named = named_by_any(app, revisions);
    let config_maps = named.config_maps.into_keys().filter_map(|name| {
        let digest = config_maps.named(namespace, &name)?.digest.clone();
        Some((name, digest))
    });
    let secrets = named.secrets.into_keys().filter_map(|name| {
        let digest = secrets.named(namespace, &name)?.digest.clone();
        Some((name, digest))
    });
    Digests {
        config_maps: config_maps.collect(),
        secrets: secrets.collect(),
    }
}

/// What the pods of this spec read at their start, in one hash, and what of it is missing.
pub fn summary(spec: &WebAppSpec, digests: &Digests) -> References {
    let named = named(spec);
    let mut lines = Vec::new();
    let mut missing = Vec::new();
    let mut note = |kind: &str, name: &str, need: Need, digest: Option<&String>| match digest {
        Some(digest) => lines.push(format!("{kind} {name} {digest}")),
        None if need == Need::Required => missing.push(format!("{kind} {name}")),
        None => {}
    };
    for (name, need) in &named.config_maps {
        note("ConfigMap", name, *need, digests.config_maps.get(name));
    }
    for (name, need) in &named.secrets {
        note("Secret", name, *need, digests.secrets.get(name));
    }
    // Files are mounted one by one, and such mounts do not follow their ConfigMap: they roll the pods as well.
    for file in &spec.files {
        lines.push(format!("file {} {}", file.path, names::hash(file.content.as_bytes())));
    }
    let hash = (!lines.is_empty()).then(|| names::hash(lines.join("\n").as_bytes()));
    References { hash, missing }
}

/// Values for an index of the apps that refer to a ConfigMap: `namespace/name`.
pub fn config_maps(app: &WebApp) -> Vec<String> {
    qualified(app, named(&app.spec).config_maps.into_keys().collect())
}

/// Values for an index of the apps that refer to a Secret: `namespace/name`.
pub fn secrets(app: &WebApp) -> Vec<String> {
    qualified(app, named(&app.spec).secrets.into_keys().collect())
}

fn qualified(app: &WebApp, names: BTreeSet<String>) -> Vec<String> {
    let namespace = app.metadata.namespace.as_deref().unwrap_or_default();
    names.into_iter().map(|name| format!("{namespace}/{name}")).collect()
}

impl Named {
    fn config_map(&mut self, name: &str, optional: Option<bool>) {
        Self::note(&mut self.config_maps, name, optional);
    }

    fn secret(&mut self, name: &str, optional: Option<bool>) {
        Self::note(&mut self.secrets, name, optional);
    }

    /// Required once is required, whatever else says optional.
    fn note(names: &mut BTreeMap<String, Need>, name: &str, optional: Option<bool>) {
        let need = if optional == Some(true) {
            Need::Optional
        } else {
            Need::Required
        };
        let known = names.entry(name.to_string()).or_insert(need);
        *known = (*known).max(need);
    }
}

impl<'de, K: Resource<DynamicType = ()>> Deserialize<'de> for Digested<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The parts of either kind that pods can read.
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Whole {
            metadata: ObjectMeta,
            #[serde(default)]
            data: Value,
            #[serde(default)]
            binary_data: Value,
        }
        let whole = Whole::deserialize(deserializer)?;
        let salt = match K::kind(&()) == "Secret" {
            true => whole.metadata.uid.as_deref().unwrap_or_default(),
            false => "",
        };
        let digest = names::hash(format!("{salt}{}{}", whole.data, whole.binary_data).as_bytes());
        let metadata = ObjectMeta {
            name: whole.metadata.name,
            namespace: whole.metadata.namespace,
            uid: whole.metadata.uid,
            resource_version: whole.metadata.resource_version,
            ..ObjectMeta::default()
        };
        Ok(Digested {
            metadata,
            digest,
            kind: PhantomData,
        })
    }
}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>> Resource for Digested<K> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind(_: &()) -> Cow<'_, str> {
        K::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        K::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        K::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        K::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_digest_of_a_secret_cannot_be_guessed_from_its_content_and_that_of_a_config_map_is_its_content() {
        let object = |uid: &str, text: &str| json!({"metadata": {"name": "a", "uid": uid}, "data": {"password": text}});
        let secret = |uid: &str, text: &str| -> String {
            let found: Digested<Secret> = serde_json::from_value(object(uid, text)).expect("a Secret");
            found.digest
        };
        let map = |uid: &str| -> String {
            let found: Digested<ConfigMap> = serde_json::from_value(object(uid, "x")).expect("a ConfigMap");
            found.digest
        };
        assert_eq!(secret("u1", "x"), secret("u1", "x"));
        assert_ne!(secret("u1", "x"), secret("u1", "y"));
        assert_ne!(secret("u1", "x"), secret("u2", "x"));
        assert_eq!(map("u1"), map("u2"));
    }
}
