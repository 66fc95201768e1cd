//! The files of the spec: a ConfigMap and where its entries appear.
//!
//! The ConfigMap is named after its content. Two versions with different files have one each, so a canary's files do not
//! reach the pods beside it, and going back to a version gives it its own files again.

use super::metadata;
use crate::names;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, PodTemplateSpec, Volume, VolumeMount};
use stead_apis::WebApp;
use stead_apis::webapp::validate::FILES_VOLUME;

/// The ConfigMap with the content of all files, where there are any, for pods of this template.
pub fn config_map(app: &WebApp, template: &PodTemplateSpec) -> Option<ConfigMap> {
    let name = mounted(template)?;
    let data = app
        .spec
        .files
        .iter()
        .enumerate()
        .map(|(index, file)| (entry(index), file.content.clone()));
    Some(ConfigMap {
        metadata: metadata(app, name),
        data: Some(data.collect()),
        ..ConfigMap::default()
    })
}

/// The volume that holds them.
pub fn volume(app: &WebApp) -> Option<Volume> {
    if app.spec.files.is_empty() {
        return None;
    }
    let items = (0..app.spec.files.len()).map(|index| KeyToPath {
        key: entry(index),
        path: entry(index),
        mode: None,
    });
    let source = ConfigMapVolumeSource {
        name: name(app),
        items: Some(items.collect()),
        ..Default::default()
    };
    Some(Volume {
        name: FILES_VOLUME.to_string(),
        config_map: Some(source),
        ..Volume::default()
    })
}

/// Each file at its path.
pub fn mounts(app: &WebApp) -> Vec<VolumeMount> {
    let mount = |(index, file): (usize, &stead_apis::webapp::File)| VolumeMount {
        name: FILES_VOLUME.to_string(),
        mount_path: file.path.clone(),
        sub_path: Some(entry(index)),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    app.spec.files.iter().enumerate().map(mount).collect()
}

/// The ConfigMap that a template mounts. It was named when the template was rendered, perhaps by another version of
/// the operator.
fn mounted(template: &PodTemplateSpec) -> Option<String> {
    let mut volumes = template.spec.as_ref()?.volumes.iter().flatten();
    let files = volumes.find(|volume| volume.name == FILES_VOLUME)?;
    Some(files.config_map.as_ref()?.name.clone())
}

fn name(app: &WebApp) -> String {
    let content: String = app
        .spec
        .files
        .iter()
        .map(|file| names::hash(file.content.as_bytes()))
        .collect();
    names::suffixed(app, &format!("files-{}", names::hash(content.as_bytes())))
}

/// A path has characters that a key of a ConfigMap may not have; the position is enough.
fn entry(index: usize) -> String {
    format!("file-{index}")
}
