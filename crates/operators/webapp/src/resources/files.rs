//! The files of the spec: a ConfigMap and where its entries appear.

use super::metadata;
use crate::names;
use k8s_openapi::api::core::v1::{ConfigMap, ConfigMapVolumeSource, KeyToPath, Volume, VolumeMount};
use stead_apis::WebApp;
use stead_apis::webapp::validate::FILES_VOLUME;

/// The ConfigMap with the content of all files, where there are any.
pub fn config_map(app: &WebApp) -> Option<ConfigMap> {
    if app.spec.files.is_empty() {
        return None;
    }
    let data = app
        .spec
        .files
        .iter()
        .enumerate()
        .map(|(index, file)| (entry(index), file.content.clone()));
    Some(ConfigMap {
        metadata: metadata(app, name(app)),
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

fn name(app: &WebApp) -> String {
    names::suffixed(app, "files")
}

/// A path has characters that a key of a ConfigMap may not have; the position is enough.
fn entry(index: usize) -> String {
    format!("file-{index}")
}
