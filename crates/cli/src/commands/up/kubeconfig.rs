//! The kubeconfig of a cluster: its own file, or a context in a file of the user's that may hold others.

mod lock;

use crate::failure::Hint;
use anyhow::{Context, Result, anyhow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lock::Lock;
use serde_json::{Map, Value, json};
use std::fs;
use std::io::{ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use stead_apiserver::auth::certificates::Pki;

/// Name of the cluster, user and context.
const NAME: &str = "stead";
/// What a kubeconfig holds by name.
const LISTS: [&str; 3] = ["clusters", "users", "contexts"];

/// Links that are followed before they are taken for a circle, as the kernel does.
const MOST_LINKS: usize = 40;

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

/// A file of the user's. It may hold other clusters, and those stay.
pub struct Shared {
    path: PathBuf,
    /// What to do instead where the file is none that we can add to.
    instead: &'static str,
}

impl Shared {
    /// The file that the command line names.
    pub fn given(path: PathBuf) -> Self {
        Shared {
            path,
            instead: "choose another file with --kubeconfig FILE",
        }
    }

    /// The user's own file: the first of KUBECONFIG, or `~/.kube/config`.
    pub fn users_own() -> Result<Self> {
        let listed = std::env::var_os("KUBECONFIG");
        let first = listed.and_then(|list| std::env::split_paths(&list).find(|path| !path.as_os_str().is_empty()));
        let path = match (first, std::env::var_os("HOME")) {
            (Some(path), _) => path,
            (None, Some(home)) => PathBuf::from(home).join(".kube/config"),
            (None, None) => return Err(anyhow!("neither KUBECONFIG nor HOME is set")).hint("set KUBECONFIG"),
        };
        if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
            fs::create_dir_all(directory).with_context(|| format!("cannot create {}", directory.display()))?;
        }
        Ok(Shared {
            path,
            instead: "leave --merge-kubeconfig out",
        })
    }

    /// Where it really is.
    pub fn place(&self) -> PathBuf {
        let path = self.followed();
        std::path::absolute(&path).unwrap_or(path)
    }

    /// Fails as [`Shared::merge`] would, so that a wrong file is told of before anything runs.
    pub fn check(&self) -> Result<()> {
        drop(Lock::take(&self.path, lock::ATTEMPTS)?);
        self.existing()?;
        let path = self.followed();
        let beside = beside(&path);
        let tried = create(&beside).inspect(|_| drop(fs::remove_file(&beside)));
        tried
            .map(drop)
            .with_context(|| format!("cannot write {}", path.display()))
            .hint(self.instead)
    }

    /// Adds the context `stead`, and makes it the current one.
    pub fn merge(&self, ours: &Value) -> Result<()> {
        self.merge_after(lock::ATTEMPTS, ours)
    }

    fn merge_after(&self, attempts: u32, ours: &Value) -> Result<()> {
        // What others add between our reading and our writing would be lost.
        let _lock = Lock::take(&self.path, attempts)?;
        write(&self.followed(), &merged(self.existing()?, ours)).hint(self.instead)
    }

    /// A link is followed, so that the file it points to is replaced and not the link, also if that file is still to be
    /// made.
    fn followed(&self) -> PathBuf {
        let mut path = self.path.clone();
        for _ in 0..MOST_LINKS {
            let Ok(to) = fs::read_link(&path) else { break };
            // One that is not absolute is seen from where the link is.
            path = path.parent().unwrap_or(Path::new("")).join(to);
        }
        let directory = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.canonicalize(),
            _ => Path::new(".").canonicalize(),
        };
        match (directory, path.file_name()) {
            (Ok(directory), Some(name)) => directory.join(name),
            _ => path,
        }
    }

    fn existing(&self) -> Result<Map<String, Value>> {
        let shown = self.path.display();
        match fs::metadata(&self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Map::new()),
            // Reading from a pipe would wait for its writer, and a device would be replaced by a file.
            Ok(found) if !found.is_file() => return Err(anyhow!("{shown} is not a file")).hint(self.instead),
            _ => {}
        }
        let text = fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read {shown}"))
            .hint(self.instead)?;
        read(&text)
            .with_context(|| format!("{shown} is not a kubeconfig, and was left as it is"))
            .hint(format!("repair that file, or {}", self.instead))
    }
}

/// Writes a configuration that only its owner can read, whole or not at all.
pub fn write(path: &Path, config: &Value) -> Result<()> {
    let text = serde_saphyr::to_string(config).context("cannot print the kubeconfig")?;
    let beside = beside(path);
    let written = create(&beside)
        .and_then(|mut file| {
            file.set_permissions(fs::Permissions::from_mode(0o600))?;
            if let Ok(replaced) = fs::metadata(path) {
                // Root writes the file of a user, who must be able to read it afterwards. Others have only their own.
                let _ = std::os::unix::fs::fchown(&file, Some(replaced.uid()), Some(replaced.gid()));
            }
            file.write_all(text.as_bytes())?;
            // The user's own file is replaced only by one that is on the disk.
            file.sync_all()
        })
        .and_then(|()| fs::rename(&beside, path));
    written
        .inspect_err(|_| drop(fs::remove_file(&beside)))
        .with_context(|| format!("cannot write {}", path.display()))
}

fn beside(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.{}.new", path.display(), std::process::id()))
}

fn create(beside: &Path) -> std::io::Result<fs::File> {
    // One that a process of the same number left; anything else that is there is not ours to follow.
    let _ = fs::remove_file(beside);
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(beside)
}

/// What a file holds, if it is a kubeconfig. Whatever else it is would be destroyed by adding to it.
fn read(text: &str) -> Result<Map<String, Value>> {
    if text.trim().is_empty() {
        return Ok(Map::new());
    }
    let Value::Object(map) = serde_saphyr::from_str(text)? else {
        return Err(anyhow!("it is not a mapping"));
    };
    if map.get("kind").is_some_and(|kind| !kind.is_null() && kind != "Config") {
        return Err(anyhow!("its kind is not Config"));
    }
    match LISTS.iter().find(|list| {
        map.get(**list)
            .is_some_and(|found| !found.is_null() && !found.is_array())
    }) {
        Some(list) => Err(anyhow!("its {list} are not a list")),
        None => Ok(map),
    }
}

fn merged(mut existing: Map<String, Value>, ours: &Value) -> Value {
    for list in LISTS {
        let entries = existing.entry(list).or_insert(Value::Null);
        let others = entries
            .as_array()
            .into_iter()
            .flatten()
            .filter(|entry| entry["name"] != NAME);
        let new = ours[list].as_array().into_iter().flatten();
        *entries = others.chain(new).cloned().collect();
    }
    for field in ["apiVersion", "kind"] {
        existing.entry(field).or_insert_with(|| ours[field].clone());
    }
    existing.insert("current-context".to_string(), NAME.into());
    existing.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ours() -> Value {
        let named = |field: &str| json!([{"name": NAME, field: {"server": "new"}}]);
        json!({"apiVersion": "v1", "kind": "Config", "current-context": NAME,
            "clusters": named("cluster"), "users": named("user"), "contexts": named("context")})
    }

    /// A file with a text, and what becomes of it.
    fn after_merging(text: &str) -> (Result<()>, String) {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("config");
        fs::write(&path, text).expect("a file");
        let shared = Shared::given(path.clone());
        let done = shared.check().and_then(|()| shared.merge(&ours()));
        let only = fs::read_dir(place.path()).expect("a directory").count() == 1;
        assert!(only, "something was left beside the file");
        (done, fs::read_to_string(&path).expect("a file"))
    }

    #[test]
    fn merging_keeps_the_others_and_replaces_our_own() {
        let existing = json!({"clusters": [{"name": "prod", "cluster": {"server": "far"}}, {"name": NAME, "cluster": {"server": "old"}}],
            "users": [{"name": "me", "user": {"token": "t"}}], "contexts": null,
            "current-context": "prod", "preferences": {"colors": true}, "extensions": []});
        let (done, text) = after_merging(&existing.to_string());
        done.expect("a kubeconfig");
        let result: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(result["clusters"][0], existing["clusters"][0]);
        assert_eq!(result["clusters"][1], ours()["clusters"][0]);
        assert_eq!(result["clusters"].as_array().map(Vec::len), Some(2));
        assert_eq!(result["users"], json!([existing["users"][0], ours()["users"][0]]));
        assert_eq!(result["contexts"], ours()["contexts"]);
        assert_eq!(result["current-context"], NAME);
        assert_eq!(result["preferences"], json!({"colors": true}));
    }

    #[test]
    fn an_empty_file_is_filled() {
        let (done, text) = after_merging("\n");
        done.expect("a kubeconfig");
        assert_eq!(serde_saphyr::from_str::<Value>(&text).expect("YAML"), ours());
    }

    #[test]
    fn what_is_no_kubeconfig_is_refused_with_a_way_out_and_stays() {
        for text in [
            "my notes",
            "- a\n- b\n",
            "a: [",
            "kind: Pod\nmetadata: {}\n",
            "clusters: many\n",
        ] {
            let (done, left) = after_merging(text);
            let (what, hint) = crate::failure::describe(&done.expect_err(text));
            assert!(what.contains("is not a kubeconfig"), "{what}");
            assert!(hint.is_some_and(|hint| hint.contains("--kubeconfig FILE")));
            assert_eq!(left, text);
        }
    }

    #[test]
    fn what_cannot_be_written_is_known_before_it_is_tried() {
        let place = tempfile::tempdir().expect("a directory");
        for (path, why) in [
            (place.path().join("no/such/place"), "cannot write"),
            (place.path().to_path_buf(), "is not a file"),
        ] {
            let refused = Shared::given(path).check().expect_err("no such place");
            let (what, hint) = crate::failure::describe(&refused);
            assert!(what.contains(why), "{what}");
            assert!(hint.is_some());
        }
        assert!(Shared::given(place.path().join("new")).check().is_ok());
        assert!(!place.path().join("new").exists());
    }

    #[test]
    fn a_link_stays_one_also_where_its_file_is_not_there_yet() {
        let place = tempfile::tempdir().expect("a directory");
        let [link, other] = ["link", "other"].map(|name| place.path().join(name));
        fs::create_dir(place.path().join("real")).expect("a directory");
        std::os::unix::fs::symlink("other", &link).expect("a link");
        std::os::unix::fs::symlink("real/config", &other).expect("a link");
        let shared = Shared::given(link.clone());
        let file = place.path().canonicalize().expect("a directory").join("real/config");
        assert_eq!(shared.place(), file);
        for _ in 0..2 {
            shared
                .check()
                .and_then(|()| shared.merge(&ours()))
                .expect("a kubeconfig");
            assert!(link.is_symlink() && other.is_symlink());
            assert!(fs::symlink_metadata(&file).expect("a file").is_file());
        }
    }

    #[test]
    fn merging_waits_for_whoever_writes_the_file() {
        let place = tempfile::tempdir().expect("a directory");
        let [path, other] = ["config", "config.lock"].map(|name| place.path().join(name));
        fs::write(&other, "").expect("a lock");
        let shared = Shared::given(path.clone());
        shared.merge_after(2, &ours()).expect_err("somebody has it");
        assert!(other.exists() && !path.exists());
        let merging = std::thread::spawn(move || shared.merge(&ours()));
        fs::write(&path, "current-context: kept\npreferences: {colors: true}\n").expect("a file");
        fs::remove_file(&other).expect("let go");
        merging.join().expect("no panic").expect("merged");
        let text = fs::read_to_string(&path).expect("a file");
        let result: Value = serde_saphyr::from_str(&text).expect("YAML");
        assert_eq!(result["preferences"], json!({"colors": true}));
        assert!(!other.exists());
    }

    #[test]
    fn a_kubeconfig_is_readable_by_its_owner_only_even_where_it_was_open_before() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("config");
        fs::write(&path, "").expect("a file");
        Shared::given(path.clone()).merge(&ours()).expect("a kubeconfig");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    }
}
