//! Volumes whose files are the API's: config maps, secrets, tokens, and fields of the pod.

use super::files::{Files, inside, write};
use super::tokens::{self, Tokens};
use super::{Source, Volumes, Wanted, mount_error};
use crate::clock::Clock;
use crate::node::process::environment::{field, resource};
use crate::node::runtime::RuntimeError;
use crate::node::voices::Voices;
use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, DownwardAPIVolumeFile, KeyToPath, Secret, ServiceAccount, Volume};
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Writes what objects hold into files.
pub struct Objects {
    voices: Voices,
    clock: Arc<dyn Clock>,
    tokens: Tokens,
}

/// The files of one volume, on their way.
struct Filling<'a> {
    objects: &'a Objects,
    wanted: &'a Wanted<'a>,
    /// Of the pod's node.
    client: Client,
    files: Files,
}

/// Whether a pod can start without an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}

impl Need {
    fn of(optional: Option<bool>) -> Need {
        if optional == Some(true) {
            Need::Optional
        } else {
            Need::Required
        }
    }
}

/// The kinds whose data can be a volume's files.
#[derive(Clone, Copy)]
enum Kept {
    ConfigMap,
    Secret,
}

impl Objects {
    pub fn new(voices: Voices, clock: Arc<dyn Clock>) -> Objects {
        Objects {
            voices,
            clock,
            tokens: Tokens::default(),
        }
    }
}

#[async_trait]
impl Volumes for Objects {
    fn serves(&self, source: Source<'_>) -> bool {
        match source {
            Source::Pod(volume) => {
                volume.config_map.is_some()
                    || volume.secret.is_some()
                    || volume.projected.is_some()
                    || volume.downward_api.is_some()
            }
            Source::Bound(_) => false,
        }
    }

    fn follows(&self) -> bool {
        true
    }

    async fn publish(&self, wanted: &Wanted<'_>) -> Result<PathBuf, RuntimeError> {
        let Source::Pod(volume) = wanted.source else {
            return Err(wanted.unknown());
        };
        std::fs::create_dir_all(&wanted.place).map_err(|error| wanted.failed(error))?;
        let mut filling = Filling {
            objects: self,
            wanted,
            client: self.voices.of(wanted.shape.pod),
            files: Files::new(),
        };
        filling.fill(volume).await?;
        write(&wanted.place, &filling.files, wanted.group()).map_err(|error| wanted.failed(error))?;
        Ok(wanted.place.clone())
    }

    async fn unpublish(&self, uid: &str) -> Result<(), RuntimeError> {
        self.tokens.forget(uid);
        Ok(())
    }
}

impl Filling<'_> {
    /// Adds all files of the volume.
    async fn fill(&mut self, volume: &Volume) -> Result<(), RuntimeError> {
        if let Some(source) = &volume.config_map {
            let (need, mode) = (Need::of(source.optional), mode(source.default_mode));
            let items = source.items.as_deref();
            self.data(Kept::ConfigMap, &source.name, items, need, mode).await?;
        } else if let Some(source) = &volume.secret {
            let (need, mode) = (Need::of(source.optional), mode(source.default_mode));
            let (name, items) = (source.secret_name.as_deref(), source.items.as_deref());
            self.data(Kept::Secret, name.unwrap_or_default(), items, need, mode)
                .await?;
        } else if let Some(source) = &volume.downward_api {
            self.downward(source.items.as_deref(), mode(source.default_mode));
        } else if let Some(source) = &volume.projected {
            let mode = mode(source.default_mode);
            for part in source.sources.iter().flatten() {
                if let Some(map) = &part.config_map {
                    let (need, items) = (Need::of(map.optional), map.items.as_deref());
                    self.data(Kept::ConfigMap, &map.name, items, need, mode).await?;
                }
                if let Some(secret) = &part.secret {
                    let (need, items) = (Need::of(secret.optional), secret.items.as_deref());
                    self.data(Kept::Secret, &secret.name, items, need, mode).await?;
                }
                if let Some(downward) = &part.downward_api {
                    self.downward(downward.items.as_deref(), mode);
                }
                if let Some(token) = &part.service_account_token {
                    let seconds = token.expiration_seconds.unwrap_or(3600);
                    let text = self.token(token.audience.as_deref(), seconds).await?;
                    self.files.insert(inside(&token.path), (text.into_bytes(), mode));
                }
            }
        }
        Ok(())
    }

    /// Adds the data of an object to the files.
    async fn data(
        &mut self,
        kept: Kept,
        name: &str,
        items: Option<&[KeyToPath]>,
        need: Need,
        mode: u32,
    ) -> Result<(), RuntimeError> {
        let namespace = self.wanted.shape.namespace();
        let mut data: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        match kept {
            Kept::ConfigMap => {
                let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), namespace);
                let Some(map) = get(&api, name, "configmap", need).await? else {
                    return Ok(());
                };
                let texts = map.data.into_iter().flatten();
                data.extend(texts.map(|(key, value)| (key, value.into_bytes())));
                data.extend(map.binary_data.into_iter().flatten().map(|(key, value)| (key, value.0)));
            }
            Kept::Secret => {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
                let Some(secret) = get(&api, name, "secret", need).await? else {
                    return Ok(());
                };
                data.extend(secret.data.into_iter().flatten().map(|(key, value)| (key, value.0)));
            }
        }
        project(&data, items, need, mode, &mut self.files)
    }

    fn downward(&mut self, items: Option<&[DownwardAPIVolumeFile]>, mode: u32) {
        for item in items.unwrap_or_default() {
            let text = if let Some(reference) = &item.field_ref {
                field(&self.wanted.shape, &reference.field_path, self.wanted.sources)
            } else if let Some(reference) = &item.resource_field_ref {
                let container = reference
                    .container_name
                    .as_deref()
                    .and_then(|name| self.wanted.shape.find(name));
                let divisor = reference.divisor.as_ref().map(|divisor| divisor.0.as_str());
                container.map(|container| resource(&container, &reference.resource, divisor, self.wanted.sources))
            } else {
                None
            };
            let mode = item.mode.map_or(mode, |own| u32::try_from(own).unwrap_or(mode));
            self.files
                .insert(inside(&item.path), (text.unwrap_or_default().into_bytes(), mode));
        }
    }

    async fn token(&self, audience: Option<&str>, seconds: i64) -> Result<String, RuntimeError> {
        let wanted = tokens::Wanted {
            pod: self.wanted.shape.uid().to_owned(),
            audience: audience.map(str::to_owned),
            seconds,
        };
        let now = self.objects.clock.now();
        if let Some(held) = self.objects.tokens.get(&wanted, now) {
            return Ok(held);
        }
        let account = self
            .wanted
            .shape
            .spec
            .service_account_name
            .as_deref()
            .unwrap_or("default");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.wanted.shape.namespace());
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: audience.map(|audience| vec![audience.to_owned()]),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: self.wanted.shape.pod.metadata.name.clone(),
                    uid: self.wanted.shape.pod.metadata.uid.clone(),
                }),
            }),
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await;
        let answer = answer.map_err(|error| mount_error(format!("failed to fetch token: {error}")))?;
        let status = answer.status.unwrap_or_default();
        let token = status.token.unwrap_or_default();
        let expires = status.expiration_timestamp.map(|time| time.0);
        self.objects.tokens.put(wanted, token.clone(), now, expires);
        Ok(token)
    }
}

async fn get<K>(api: &Api<K>, name: &str, kind: &str, need: Need) -> Result<Option<K>, RuntimeError>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    match api.get_opt(name).await {
        Ok(None) if need == Need::Required => Err(mount_error(format!("{kind} \"{name}\" not found"))),
        Ok(found) => Ok(found),
        Err(error) => Err(mount_error(format!("{kind} \"{name}\": {error}"))),
    }
}

fn mode(wanted: Option<i32>) -> u32 {
    wanted.and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0o644) & 0o777
}

fn project(
    data: &BTreeMap<String, Vec<u8>>,
    items: Option<&[KeyToPath]>,
    need: Need,
    mode: u32,
    files: &mut Files,
) -> Result<(), RuntimeError> {
    let Some(items) = items.filter(|items| !items.is_empty()) else {
        files.extend(data.iter().map(|(key, value)| (inside(key), (value.clone(), mode))));
        return Ok(());
    };
    for item in items {
        let own = item.mode.map_or(mode, |own| u32::try_from(own).unwrap_or(mode));
        match data.get(&item.key) {
            Some(value) => {
                files.insert(inside(&item.path), (value.clone(), own));
            }
            None if need == Need::Optional => {}
            None => return Err(mount_error(format!("references non-existent config key: {}", item.key))),
        }
    }
    Ok(())
}

/// Whether the volume shows fields of the pod itself.
pub fn shows_pod(volume: &Volume) -> bool {
    let projected = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    volume.downward_api.is_some() || projected.into_iter().any(|source| source.downward_api.is_some())
}
