//! The user's store of images: what `stead image load` has unpacked, for containers to run in.
//!
//! An image is one directory with its root and a record, under the digest of its configuration; names point to
//! digests. A load that is cut short leaves a directory that nothing points to.

use super::archive::{self, Budget, Found};
use super::registry::{self, Fetched, Keys, PullError};
use crate::node::process::spec::{load, store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const NAMES: &str = "names.json";

/// Why an archive cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot use {path}", path = path.display())]
    File { path: PathBuf, source: io::Error },
    #[error("{path} is no image archive that can be used: {why}", path = path.display())]
    Archive { path: PathBuf, why: String },
}

impl StoreError {
    pub(super) fn file(path: &Path, source: io::Error) -> StoreError {
        StoreError::File {
            path: path.to_owned(),
            source,
        }
    }

    pub(super) fn archive(path: &Path, why: &str) -> StoreError {
        StoreError::Archive {
            path: path.to_owned(),
            why: why.to_owned(),
        }
    }
}

/// An image that can be run.
#[derive(Clone, Debug, Default, Serialize, Deserialize, PartialEq, Eq)]
pub struct Image {
    pub digest: String,
    pub entrypoint: Vec<String>,
    pub arguments: Vec<String>,
    pub env: Vec<(String, String)>,
    pub directory: String,
    pub user: String,
    /// Where it was pulled from, with the digest that it has there; none for one that was loaded.
    #[serde(default)]
    pub source: Option<String>,
}

/// A directory of images.
#[derive(Clone, Debug)]
pub struct Store {
    folder: PathBuf,
}

impl Store {
    pub fn new(folder: PathBuf) -> Store {
        Store { folder }
    }

    /// The image of a name, and where its root is.
    pub fn find(&self, name: &str) -> Option<(Image, PathBuf)> {
        let names = self.names();
        let wanted = full(name);
        let (_, digest) = names
            .iter()
            .find(|(known, digest)| full(known) == wanted || **digest == wanted)?;
        let folder = self.place(digest);
        Some((load(&folder.join("image.json"))?, folder.join("root")))
    }

    /// Names and the digests that they stand for.
    pub fn names(&self) -> BTreeMap<String, String> {
        load(&self.folder.join(NAMES)).unwrap_or_default()
    }

    fn place(&self, digest: &str) -> PathBuf {
        self.folder.join(digest.replace(':', "-"))
    }

    /// Whether an image is unpacked here.
    fn has(&self, digest: &str) -> bool {
        self.place(digest).join("image.json").exists()
    }

    /// Makes the directory. Roots of images have programs that run as their owner; nobody else of this machine may reach
    /// them.
    fn prepare(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o700))
    }

    /// Unpacks every image of an archive, and gives their names.
    pub fn load(&self, archive: &Path) -> Result<Vec<String>, StoreError> {
        self.prepare().map_err(|error| StoreError::file(&self.folder, error))?;
        let work = self.folder.join(format!("loading-{}", std::process::id()));
        let outcome = self.load_through(archive, &work);
        let _ = std::fs::remove_dir_all(&work);
        outcome
    }

    fn load_through(&self, archive: &Path, work: &Path) -> Result<Vec<String>, StoreError> {
        let _ = std::fs::remove_dir_all(work);
        let spread = work.join("archive");
        std::fs::create_dir_all(&spread).map_err(|error| StoreError::file(&spread, error))?;
        let budget = Budget::on_disk(work).map_err(|error| StoreError::file(work, error))?;
        let found = archive::read(archive, &spread, &budget)?;
        if found.is_empty() {
            return Err(StoreError::archive(archive, "it has no image for this machine"));
        }
        self.install(found, None, work)
    }

    /// Fetches an image from its registry and unpacks it. One that is cut short leaves nothing that is used.
    pub async fn pull(&self, name: &str, keys: &Keys) -> Result<(), PullError> {
        self.prepare()?;
        let work = own_directory(&self.folder)?;
        let parts = work.join("parts");
        let outcome = async {
            std::fs::create_dir(&parts)?;
            let known = |digest: &str| self.has(digest);
            let (image, source) = match registry::fetch(name, keys, &parts, known).await? {
                Fetched::Known(digest) => {
                    let told = BTreeMap::from([(name.to_owned(), digest)]);
                    return self.make_known(told).map_err(PullError::from);
                }
                Fetched::New { image, source } => (image, source),
            };
            let (images, into) = (self.clone(), work.clone());
            // Unpacking is work for the disk and the processor, and others wait on this thread.
            let unpack = move || images.install(vec![image], Some(source), &into);
            let unpacked = tokio::task::spawn_blocking(unpack).await;
            unpacked.map_err(std::io::Error::other)?.map_err(PullError::from)
        };
        let outcome = outcome.await;
        let _ = std::fs::remove_dir_all(&work);
        outcome.map(drop)
    }

    /// Unpacks images and makes their names known; gives the names.
    fn install(&self, found: Vec<Found>, source: Option<String>, work: &Path) -> Result<Vec<String>, StoreError> {
        let mut told = BTreeMap::new();
        for (number, image) in found.into_iter().enumerate() {
            if !self.has(&image.digest) {
                let place = self.place(&image.digest);
                let fresh = work.join(number.to_string());
                let root = fresh.join("root");
                std::fs::create_dir_all(&root).map_err(|error| StoreError::file(&root, error))?;
                let budget = Budget::on_disk(work).map_err(|error| StoreError::file(work, error))?;
                archive::unpack(&image, &root, &budget)?;
                let described = described(&image.digest, &image.config, source.clone());
                store(&fresh.join("image.json"), &described).map_err(|error| StoreError::file(&fresh, error))?;
                // What an earlier load left unfinished is in the way.
                let _ = std::fs::remove_dir_all(&place);
                std::fs::rename(&fresh, &place).map_err(|error| StoreError::file(&place, error))?;
            }
            let own = match image.names.is_empty() {
                true => vec![image.digest.clone()],
                false => image.names,
            };
            told.extend(own.into_iter().map(|name| (name, image.digest.clone())));
        }
        self.make_known(told)
    }

    fn make_known(&self, told: BTreeMap<String, String>) -> Result<Vec<String>, StoreError> {
        // Read at the last moment: others may have added names meanwhile.
        let mut names = self.names();
        names.extend(told.clone());
        let list = self.folder.join(NAMES);
        store(&list, &names).map_err(|error| StoreError::file(&list, error))?;
        Ok(told.into_keys().collect())
    }
}

/// A new directory of our own below another.
fn own_directory(folder: &Path) -> io::Result<PathBuf> {
    let path = folder.join(format!("pulling-{}", uuid::Uuid::new_v4().simple()));
    std::fs::create_dir(&path)?;
    Ok(path)
}

/// What an image's configuration says about running it.
fn described(digest: &str, config: &Value, source: Option<String>) -> Image {
    let config = &config["config"];
    let words = |value: &Value| -> Vec<String> {
        let list = value.as_array().into_iter().flatten();
        list.filter_map(|word| word.as_str().map(str::to_owned)).collect()
    };
    let env = words(&config["Env"]).into_iter().filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    });
    Image {
        digest: digest.to_owned(),
        entrypoint: words(&config["Entrypoint"]),
        arguments: words(&config["Cmd"]),
        env: env.collect(),
        directory: config["WorkingDir"].as_str().unwrap_or_default().to_owned(),
        user: config["User"].as_str().unwrap_or_default().to_owned(),
        source,
    }
}

/// A name with everything that may be left out: `nginx` is `docker.io/library/nginx:latest`.
pub(super) fn full(name: &str) -> String {
    if name.starts_with("sha256:") {
        return name.to_owned();
    }
    let (first, rest) = name.split_once('/').unwrap_or(("", name));
    let registry = first.contains('.') || first.contains(':') || first == "localhost";
    let named = match (registry, first) {
        (true, _) => name.to_owned(),
        (false, "") => format!("docker.io/library/{rest}"),
        (false, _) => format!("docker.io/{name}"),
    };
    let last = named.rsplit('/').next().unwrap_or_default();
    match last.contains(':') || last.contains('@') {
        true => named,
        false => format!("{named}:latest"),
    }
}

/// Who a name or number is in an image: user and group.
pub fn user(root: &Path, wanted: &str) -> (Option<u32>, Option<u32>) {
    let (user, group) = wanted.split_once(':').unwrap_or((wanted, ""));
    let table = |file: &str| std::fs::read_to_string(root.join("etc").join(file)).unwrap_or_default();
    let field = |line: &str, index: usize| line.split(':').nth(index).map(str::to_owned);
    let users = table("passwd");
    let entry = users
        .lines()
        .find(|line| field(line, 0).as_deref() == Some(user) || field(line, 2).as_deref() == Some(user));
    let number = user.parse().ok().or_else(|| field(entry?, 2)?.parse().ok());
    let groups = table("group");
    let of_group = || {
        field(groups.lines().find(|line| field(line, 0).as_deref() == Some(group))?, 2)?
            .parse()
            .ok()
    };
    let own_group = match group {
        "" => entry.and_then(|entry| field(entry, 3)?.parse().ok()),
        group => group.parse().ok().or_else(of_group),
    };
    (number, own_group)
}

#[cfg(test)]
#[path = "store_tests.rs"]
pub(super) mod tests;
