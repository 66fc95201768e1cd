//! The kubeconfig of a cluster: its own file, and on request a context in the user's.

use crate::failure::Hint;
use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use stead_apiserver::auth::certificates::Pki;

/// Name of the cluster, user and context.
const NAME: &str = "stead";

/// The configuration with which the admin reaches a server.
pub fn build(pki: &Pki, server: &str) -> Value {
    let encode = |text: &str| STANDARD.encode(text);
    json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": NAME, "cluster": {
            "server": format!("https://{server}"),
            "certificate-authority-data": encode(&pki.authority.certificate),
        }}],
        "users": [{"name": NAME, "user": {
            "client-certificate-data": encode(&pki.admin.certificate),
            "client-key-data": encode(&pki.admin.key),
        }}],
        "contexts": [{"name": NAME, "context": {"cluster": NAME, "user": NAME}}],
        "current-context": NAME,
        "preferences": {},
    })
}

/// Writes a configuration that only its owner can read, whole or not at all.
pub fn write(path: &Path, config: &Value) -> Result<()> {
    let text = serde_saphyr::to_string(config).context("cannot print the kubeconfig")?;
    let beside = PathBuf::from(format!("{}.{}.new", path.display(), std::process::id()));
    // One that a process of the same number left; anything else that is there is not ours to follow.
    let _ = fs::remove_file(&beside);
    let written = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&beside)
        .and_then(|mut file| {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            file.write_all(text.as_bytes())?;
            // The user's own file is replaced only by one that is on the disk.
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    written
        .inspect_err(|_| drop(fs::remove_file(&beside)))
        .with_context(|| format!("cannot write {}", path.display()))
        .hint("choose a file that you may write, with --kubeconfig FILE")
}

/// The user's own file: the first of KUBECONFIG, or `~/.kube/config`.
pub fn users_own() -> Result<PathBuf> {
    let listed = std::env::var_os("KUBECONFIG");
    let first = listed.and_then(|list| std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty()));
    match (first, std::env::var_os("HOME")) {
        (Some(path), _) => Ok(path),
        (None, Some(home)) => Ok(PathBuf::from(home).join(".kube/config")),
        (None, None) => Err(anyhow!("neither KUBECONFIG nor HOME is set")).hint("set KUBECONFIG"),
    }
}

/// Adds the context `stead` to a file that may hold others, and makes it the current one.
pub fn merge(path: &Path, ours: &Value) -> Result<()> {
    let existing = match fs::read_to_string(path) {
        Ok(text) if !text.trim().is_empty() => serde_saphyr::from_str(&text)
            .with_context(|| format!("{} is not a kubeconfig", path.display()))
            .hint("repair that file, or leave --merge-kubeconfig out")?,
        Ok(_) => json!({}),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => json!({}),
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
        fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
    }
    // A link is followed, so that the file it points to is replaced and not the link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    write(&path, &merged(existing, ours)?)
}

fn merged(mut existing: Value, ours: &Value) -> Result<Value> {
    let map = existing
        .as_object_mut()
        .ok_or_else(|| anyhow!("the kubeconfig is not a mapping"))
        .hint("repair that file, or leave --merge-kubeconfig out")?;
    for list in ["clusters", "users", "contexts"] {
        let entries = map.entry(list).or_insert_with(|| json!([]));
        if !entries.is_array() {
            *entries = json!([]);
        }
        if let (Some(entries), Some(new)) = (entries.as_array_mut(), ours[list].as_array()) {
            entries.retain(|entry| entry["name"] != NAME);
            entries.extend(new.iter().cloned());
        }
    }
    for field in ["apiVersion", "kind"] {
        map.entry(field).or_insert_with(|| ours[field].clone());
    }
    map.insert("current-context".to_string(), NAME.into());
    Ok(existing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_keeps_the_other_contexts_and_replaces_our_own() {
        let named = |server: &str| json!([{"name": NAME, "cluster": {"server": server}}]);
        let ours = json!({"clusters": named("new"), "users": [], "contexts": []});
        let other = json!({"name": "prod", "cluster": {"server": "far"}});
        let existing = json!({"clusters": [other, named("old")[0]], "contexts": null, "current-context": "prod"});
        let result = merged(existing, &ours).expect("a kubeconfig");
        assert_eq!(result["clusters"], json!([other, named("new")[0]]));
        assert_eq!(result["current-context"], NAME);
    }

    #[test]
    fn a_kubeconfig_is_readable_by_its_owner_only_even_where_it_was_open_before() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("config");
        fs::write(&path, "open").expect("a file");
        write(&path, &json!({"kind": "Config"})).expect("a kubeconfig");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    }
}
