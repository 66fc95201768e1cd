//! A pod's volumes, as directories of the machine: the place where a storage driver attaches.
//!
//! Config maps, secrets, tokens and the downward API are written the way a kubelet writes them: a new directory,
//! then one rename of the link `..data`, so that a reader sees the old files or the new ones and never a mixture.

pub(super) mod memory;
mod ownership;
pub mod tokens;

use super::environment::{Sources, field, resource};
use super::users;
use crate::controllers::volumes::protection;
use crate::node::runtime::RuntimeError;
use crate::node::shape::Shape;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{
    ConfigMap, DownwardAPIVolumeFile, KeyToPath, PersistentVolume, PersistentVolumeClaim, Secret, ServiceAccount,
    Volume,
};
use kube::api::PostParams;
use kube::{Api, Client};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};
use tokens::{Tokens, Wanted};

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

/// A file's content and mode.
type Files = BTreeMap<PathBuf, (Vec<u8>, u32)>;

fn mount_error(message: String) -> RuntimeError {
    RuntimeError::Configuration {
        reason: "FailedMount",
        message,
    }
}

/// What fills volumes.
pub struct Volumes<'a> {
    /// Of the pod's node.
    pub client: Client,
    pub shape: Shape<'a>,
    pub sources: &'a Sources,
    /// Where the pod's own volumes are.
    pub folder: PathBuf,
    pub tokens: &'a Tokens,
    pub now: Timestamp,
}

/// The kinds whose data can be a volume's files.
#[derive(Clone, Copy)]
enum Kept {
    ConfigMap,
    Secret,
}

impl Volumes<'_> {
    /// Makes every volume of the pod, or brings those that can change up to date.
    pub async fn prepare(&self) -> Result<BTreeMap<String, PathBuf>, RuntimeError> {
        let mut places = BTreeMap::new();
        for volume in self.shape.spec.volumes.iter().flatten() {
            places.insert(volume.name.clone(), self.volume(volume).await?);
        }
        Ok(places)
    }

    async fn volume(&self, volume: &Volume) -> Result<PathBuf, RuntimeError> {
        let place = self.folder.join(&volume.name);
        if let Some(host) = &volume.host_path {
            return host_path(Path::new(&host.path), host.type_.as_deref().unwrap_or_default());
        }
        if let Some(used) = protection::claim_of(self.shape.pod, volume) {
            let place = self.claim(&used).await?;
            self.share(&place).await?;
            return Ok(place);
        }
        let in_memory = volume.empty_dir.as_ref().and_then(|empty| empty.medium.as_deref()) == Some("Memory");
        let place = match in_memory.then(|| memory::of(self.shape.uid())).flatten() {
            Some(memory) => memory.join(&volume.name),
            None => place,
        };
        std::fs::create_dir_all(&place).map_err(|error| mount_error(format!("volume {}: {error}", volume.name)))?;
        if volume.empty_dir.is_some() {
            // Any user of the pod may write here.
            let _ = std::fs::set_permissions(&place, std::fs::Permissions::from_mode(0o777));
            self.share(&place).await?;
            return Ok(place);
        }
        let mut files = Files::new();
        if let Some(source) = &volume.config_map {
            let (need, mode) = (Need::of(source.optional), mode(source.default_mode));
            let items = source.items.as_deref();
            self.data(Kept::ConfigMap, &source.name, items, need, mode, &mut files)
                .await?;
        } else if let Some(source) = &volume.secret {
            let (need, mode) = (Need::of(source.optional), mode(source.default_mode));
            let (name, items) = (source.secret_name.as_deref(), source.items.as_deref());
            self.data(Kept::Secret, name.unwrap_or_default(), items, need, mode, &mut files)
                .await?;
        } else if let Some(source) = &volume.downward_api {
            self.downward(source.items.as_deref(), mode(source.default_mode), &mut files);
        } else if let Some(source) = &volume.projected {
            let mode = mode(source.default_mode);
            for part in source.sources.iter().flatten() {
                if let Some(map) = &part.config_map {
                    let (need, items) = (Need::of(map.optional), map.items.as_deref());
                    self.data(Kept::ConfigMap, &map.name, items, need, mode, &mut files)
                        .await?;
                }
                if let Some(secret) = &part.secret {
                    let (need, items) = (Need::of(secret.optional), secret.items.as_deref());
                    self.data(Kept::Secret, &secret.name, items, need, mode, &mut files)
                        .await?;
                }
                if let Some(downward) = &part.downward_api {
                    self.downward(downward.items.as_deref(), mode, &mut files);
                }
                if let Some(token) = &part.service_account_token {
                    let seconds = token.expiration_seconds.unwrap_or(3600);
                    let text = self.token(token.audience.as_deref(), seconds).await?;
                    files.insert(inside(&token.path), (text.into_bytes(), mode));
                }
            }
        } else {
            let name = &volume.name;
            return Err(mount_error(format!(
                "volume \"{name}\" is of a kind that this node does not have"
            )));
        }
        write(&place, &files, self.group()).map_err(|error| mount_error(format!("volume {}: {error}", volume.name)))?;
        Ok(place)
    }

    /// The group that the pod's volumes are for.
    fn group(&self) -> Option<u32> {
        let security = self.shape.spec.security_context.as_ref();
        let group = security.and_then(|security| security.fs_group);
        group.and_then(|group| u32::try_from(group).ok())
    }

    /// Gives a volume that pods write to the pod's group. Only root can give files away.
    async fn share(&self, place: &Path) -> Result<(), RuntimeError> {
        let Some(group) = self.group().filter(|group| users::has_group(*group)) else {
            return Ok(());
        };
        let own = place.to_owned();
        // It may be a walk through millions of files, and other pods wait on this thread.
        let given = tokio::task::spawn_blocking(move || ownership::give(&own, group)).await;
        given
            .unwrap_or_else(|error| Err(error.into()))
            .map_err(|error| mount_error(format!("fsGroup of {}: {error}", place.display())))
    }

    /// Adds the data of an object to the files.
    async fn data(
        &self,
        kept: Kept,
        name: &str,
        items: Option<&[KeyToPath]>,
        need: Need,
        mode: u32,
        files: &mut Files,
    ) -> Result<(), RuntimeError> {
        let namespace = self.shape.namespace();
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
        project(&data, items, need, mode, files)
    }

    fn downward(&self, items: Option<&[DownwardAPIVolumeFile]>, mode: u32, files: &mut Files) {
        for item in items.unwrap_or_default() {
            let text = if let Some(reference) = &item.field_ref {
                field(&self.shape, &reference.field_path, self.sources)
            } else if let Some(reference) = &item.resource_field_ref {
                let container = reference
                    .container_name
                    .as_deref()
                    .and_then(|name| self.shape.find(name));
                let divisor = reference.divisor.as_ref().map(|divisor| divisor.0.as_str());
                container.map(|container| resource(&container, &reference.resource, divisor, self.sources))
            } else {
                None
            };
            let mode = item.mode.map_or(mode, |own| u32::try_from(own).unwrap_or(mode));
            files.insert(inside(&item.path), (text.unwrap_or_default().into_bytes(), mode));
        }
    }

    async fn token(&self, audience: Option<&str>, seconds: i64) -> Result<String, RuntimeError> {
        let wanted = Wanted {
            pod: self.shape.uid().to_owned(),
            audience: audience.map(str::to_owned),
            seconds,
        };
        if let Some(held) = self.tokens.get(&wanted, self.now) {
            return Ok(held);
        }
        let account = self.shape.spec.service_account_name.as_deref().unwrap_or("default");
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.shape.namespace());
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: audience.map(|audience| vec![audience.to_owned()]),
                expiration_seconds: Some(seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".to_owned()),
                    kind: Some("Pod".to_owned()),
                    name: self.shape.pod.metadata.name.clone(),
                    uid: self.shape.pod.metadata.uid.clone(),
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
        self.tokens.put(wanted, token.clone(), self.now, expires);
        Ok(token)
    }

    /// A claim's directory: that of the local or hostPath volume it is bound to.
    async fn claim(&self, used: &protection::Use) -> Result<PathBuf, RuntimeError> {
        let name = used.name();
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), self.shape.namespace());
        let claim = claims
            .get(name)
            .await
            .map_err(|error| mount_error(format!("persistentvolumeclaim: {error}")))?;
        used.check(self.shape.pod, &claim).map_err(mount_error)?;
        let bound = claim
            .spec
            .and_then(|spec| spec.volume_name)
            .filter(|volume| !volume.is_empty());
        let bound = bound.ok_or_else(|| mount_error(format!("persistentvolumeclaim \"{name}\" is not bound")))?;
        let volumes: Api<PersistentVolume> = Api::all(self.client.clone());
        let volume = volumes
            .get(&bound)
            .await
            .map_err(|error| mount_error(format!("persistentvolume: {error}")))?;
        let spec = volume.spec.unwrap_or_default();
        let local = spec
            .local
            .map(|local| local.path)
            .or_else(|| spec.host_path.map(|host| host.path));
        let path =
            local.ok_or_else(|| mount_error(format!("persistentvolume \"{bound}\" is not a local directory")))?;
        host_path(Path::new(&path), "DirectoryOrCreate")
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

/// A path of a volume's file that cannot leave the volume.
fn inside(path: &str) -> PathBuf {
    Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
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

fn host_path(path: &Path, kind: &str) -> Result<PathBuf, RuntimeError> {
    let failed = |error: std::io::Error| mount_error(format!("hostPath {}: {error}", path.display()));
    match kind {
        "DirectoryOrCreate" => std::fs::create_dir_all(path).map_err(failed)?,
        "FileOrCreate" if !path.exists() => std::fs::write(path, "").map_err(failed)?,
        "Directory" if !path.is_dir() => {
            return Err(mount_error(format!(
                "hostPath type check failed: {} is not a directory",
                path.display()
            )));
        }
        "File" if !path.is_file() => {
            return Err(mount_error(format!(
                "hostPath type check failed: {} is not a file",
                path.display()
            )));
        }
        // Docker and containerd make a missing directory; so does everyone who relies on that.
        "" if !path.exists() => std::fs::create_dir_all(path).map_err(failed)?,
        _ => {}
    }
    Ok(path.to_owned())
}

/// Whether the volume's files are those of objects, and follow them.
pub fn follows(volume: &Volume) -> bool {
    volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.projected.is_some()
        || volume.downward_api.is_some()
}

/// Whether the volume shows fields of the pod itself.
pub fn shows_pod(volume: &Volume) -> bool {
    let projected = volume
        .projected
        .iter()
        .flat_map(|projected| projected.sources.iter().flatten());
    volume.downward_api.is_some() || projected.into_iter().any(|source| source.downward_api.is_some())
}

/// Writes the files as one step, if they differ from what is there. A group that is given may read them.
fn write(place: &Path, files: &Files, group: Option<u32>) -> std::io::Result<()> {
    let data = place.join("..data");
    let same = data.exists()
        && files
            .iter()
            .all(|(path, (content, _))| std::fs::read(data.join(path)).is_ok_and(|found| found == *content))
        && count(&data) == files.len();
    if same {
        return Ok(());
    }
    let before = std::fs::read_link(&data).ok();
    let number = before
        .as_ref()
        .and_then(|link| link.to_str()?.strip_prefix("..")?.parse::<u64>().ok())
        .unwrap_or(0)
        + 1;
    let fresh_name = format!("..{number}");
    let fresh = place.join(&fresh_name);
    // A half-written one of an agent that died.
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir(&fresh)?;
    for (path, (content, mode)) in files {
        let target = fresh.join(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&target, content)?;
        let shared = group.filter(|group| users::has_group(*group));
        std::os::unix::fs::chown(&target, None, shared)?;
        let mode = mode | if shared.is_some() { 0o440 } else { 0 };
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode))?;
    }
    let link = place.join("..data_tmp");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&fresh_name, &link)?;
    std::fs::rename(&link, &data)?;
    let tops: std::collections::BTreeSet<&std::ffi::OsStr> = files
        .keys()
        .filter_map(|path| path.components().next())
        .map(Component::as_os_str)
        .collect();
    for top in &tops {
        let visible = place.join(top);
        if !visible.is_symlink() {
            std::os::unix::fs::symlink(Path::new("..data").join(top), &visible)?;
        }
    }
    for entry in std::fs::read_dir(place)?.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b"..") && !tops.contains(name.as_os_str()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    // Only what we named ourselves: whoever can write to the volume could point the link at anything.
    if let Some(before) = before.filter(|before| is_generation(before)) {
        std::fs::remove_dir_all(place.join(before))?;
    }
    Ok(())
}

/// Whether this is the name of a generation of files, `..7`.
fn is_generation(link: &Path) -> bool {
    let number = link.to_str().and_then(|name| name.strip_prefix(".."));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn count(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_replaces_all_files_in_one_step() {
        let folder = tempfile::tempdir().unwrap();
        let files = |pairs: &[(&str, &str)]| -> Files {
            pairs
                .iter()
                .map(|(path, text)| (inside(path), (text.as_bytes().to_vec(), 0o644)))
                .collect()
        };
        write(folder.path(), &files(&[("a", "1"), ("sub/b", "2")]), None).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("sub/b")).unwrap(), "2");
        let link = std::fs::read_link(folder.path().join("..data")).unwrap();
        write(folder.path(), &files(&[("a", "1"), ("sub/b", "2")]), None).unwrap();
        assert_eq!(
            std::fs::read_link(folder.path().join("..data")).unwrap(),
            link,
            "unchanged files are left alone"
        );
        write(folder.path(), &files(&[("a", "3")]), None).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a")).unwrap(), "3");
        assert!(!folder.path().join("sub").exists());
        assert!(!folder.path().join(link).exists());
    }

    #[test]
    fn a_link_that_somebody_turned_elsewhere_takes_nothing_along() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(elsewhere.path().join("precious"), "kept").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("..data")).unwrap();
        let files: Files = [(inside("a"), (b"1".to_vec(), 0o644))].into_iter().collect();
        write(folder.path(), &files, None).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a")).unwrap(), "1");
        assert_eq!(
            std::fs::read_to_string(elsewhere.path().join("precious")).unwrap(),
            "kept"
        );
    }

    #[test]
    fn a_path_cannot_leave_its_volume() {
        assert_eq!(inside("../../etc/passwd"), PathBuf::from("etc/passwd"));
        assert_eq!(inside("/abs"), PathBuf::from("abs"));
    }
}
