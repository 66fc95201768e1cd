//! The Secrets and ConfigMaps that a WebApp refers to, known by a digest of their content.
//!
//! A change of what pods read at their start must roll them once. For that a digest is enough, so the cache keeps
//! nothing else: no Secret's content stays in the operator's memory.

use crate::names;
use crate::seen::References;
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

/// Their digest, and what is missing, as the cache knows it.
pub fn look(app: &WebApp, config_maps: &Store<Digested<ConfigMap>>, secrets: &Store<Digested<Secret>>) -> References {
    let namespace = app.metadata.namespace.as_deref();
    summary(
        app,
        |name| config_maps.named(namespace, name).map(|found| found.digest.clone()),
        |name| secrets.named(namespace, name).map(|found| found.digest.clone()),
    )
}

/// The same from whatever knows the digests by name.
pub fn summary(
    app: &WebApp,
    config_map: impl Fn(&str) -> Option<String>,
    secret: impl Fn(&str) -> Option<String>,
) -> References {
    let named = named(&app.spec);
    let mut lines = Vec::new();
    let mut missing = Vec::new();
    let mut note = |kind: &str, name: &str, need: Need, digest: Option<String>| match digest {
        Some(digest) => lines.push(format!("{kind} {name} {digest}")),
        None if need == Need::Required => missing.push(format!("{kind} {name}")),
        None => {}
    };
    for (name, need) in &named.config_maps {
        note("ConfigMap", name, *need, config_map(name));
    }
    for (name, need) in &named.secrets {
        note("Secret", name, *need, secret(name));
    }
    // Files are mounted one by one, and such mounts do not follow their ConfigMap: they roll the pods as well.
    for file in &app.spec.files {
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

impl<'de, K> Deserialize<'de> for Digested<K> {
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
        let digest = names::hash(format!("{}{}", whole.data, whole.binary_data).as_bytes());
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
