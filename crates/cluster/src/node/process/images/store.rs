//! The user's store of images: what `stead image load` has unpacked, for containers to run in.
//!
//! An image is one directory with its root and a record, under the digest of its configuration; names point to
//! digests. All clusters of a user share the store, so whoever changes it holds its lock. Work under way has a directory
//! of its own, locked by its owner: one that nobody holds was cut short, and the next one to come removes it.

use super::archive::{self, Budget, Found};
use super::registry::{self, Fetched, Keys, PullError};
use crate::node::process::spec::{load, store};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

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

/// A directory to work in, which goes with this.
#[derive(Debug)]
struct Workshop {
    path: PathBuf,
    /// Says that somebody works here.
    _lock: File,
}

impl Drop for Workshop {
    fn drop(&mut self) {
        // What cannot be removed now is removed by the next one to come.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// That nobody else changes the store, in this process or another.
struct Alone(#[expect(dead_code, reason = "closing the file gives the lock back")] File);

/// Names of work under way.
const PULLING: &str = "pulling-";
const LOADING: &str = "loading-";

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

    /// Waits until nobody else changes the store.
    fn lock(&self) -> io::Result<Alone> {
        let folder = File::open(&self.folder)?;
        folder.lock()?;
        Ok(Alone(folder))
    }

    /// A new directory to work in. What others left half done goes.
    fn workshop(&self, task: &str) -> io::Result<Workshop> {
        self.prepare()?;
        let _alone = self.lock()?;
        for entry in std::fs::read_dir(&self.folder)?.flatten() {
            let name = entry.file_name();
            let is_work = [PULLING, LOADING]
                .iter()
                .any(|task| name.to_string_lossy().starts_with(task));
            if is_work && File::open(entry.path()).is_ok_and(|folder| folder.try_lock().is_ok()) {
                let _ = std::fs::remove_dir_all(entry.path());
            }
        }
        let path = self.folder.join(format!("{task}{}", uuid::Uuid::new_v4().simple()));
        std::fs::create_dir(&path)?;
        let lock = File::open(&path)?;
        lock.lock()?;
        Ok(Workshop { path, _lock: lock })
    }

    /// Makes the directory. Roots of images have programs that run as their owner; nobody else of this machine may reach
    /// them.
    fn prepare(&self) -> io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        std::fs::set_permissions(&self.folder, std::fs::Permissions::from_mode(0o700))
    }

    /// Unpacks every image of an archive, and gives their names.
    pub fn load(&self, archive: &Path) -> Result<Vec<String>, StoreError> {
        let work = self.workshop(LOADING);
        let work = work.map_err(|error| StoreError::file(&self.folder, error))?;
        let work = work.path.as_path();
        let spread = work.join("archive");
        std::fs::create_dir(&spread).map_err(|error| StoreError::file(&spread, error))?;
        let budget = Budget::on_disk(work).map_err(|error| StoreError::file(work, error))?;
        let found = archive::read(archive, &spread, &budget)?;
        if found.is_empty() {
            return Err(StoreError::archive(archive, "it has no image for this machine"));
        }
        self.install(found, None, work)
    }

    /// Fetches an image from its registry and unpacks it. One that is cut short leaves nothing that is used.
    pub async fn pull(&self, name: &str, keys: &Keys) -> Result<(), PullError> {
        let images = self.clone();
        // Locks and disks make one wait, and others need this thread.
        let work = tokio::task::spawn_blocking(move || images.workshop(PULLING)).await;
        let work = Arc::new(work.map_err(io::Error::other)??);
        let parts = work.path.join("parts");
        std::fs::create_dir(&parts)?;
        let known = |digest: &str| self.has(digest);
        let fetched = registry::fetch(name, keys, &parts, known).await?;
        // The directory stays until the work is done, also if nobody waits for it any more.
        let (images, name, work) = (self.clone(), name.to_owned(), work.clone());
        let finish = move || match fetched {
            Fetched::Known(digest) => images.make_known(&images.alone()?, BTreeMap::from([(name, digest)])),
            Fetched::New { image, source } => images.install(vec![image], Some(source), &work.path),
        };
        let finished = tokio::task::spawn_blocking(finish).await;
        finished.map_err(io::Error::other)?.map(drop).map_err(PullError::from)
    }

    /// Unpacks images and makes their names known; gives the names.
    fn install(&self, found: Vec<Found>, source: Option<String>, work: &Path) -> Result<Vec<String>, StoreError> {
        let mut told = BTreeMap::new();
        let mut unpacked = Vec::new();
        for (number, image) in found.into_iter().enumerate() {
            if !self.has(&image.digest) {
                let fresh = work.join(number.to_string());
                let root = fresh.join("root");
                std::fs::create_dir_all(&root).map_err(|error| StoreError::file(&root, error))?;
                let budget = Budget::on_disk(work).map_err(|error| StoreError::file(work, error))?;
                archive::unpack(&image, &root, &budget)?;
                let described = described(&image.digest, &image.config, source.clone());
                store(&fresh.join("image.json"), &described).map_err(|error| StoreError::file(&fresh, error))?;
                unpacked.push((image.digest.clone(), fresh));
            }
            let own = match image.names.is_empty() {
                true => vec![image.digest.clone()],
                false => image.names,
            };
            told.extend(own.into_iter().map(|name| (name, image.digest.clone())));
        }
        let alone = self.alone()?;
        for (digest, fresh) in unpacked {
            // Another may have brought it meanwhile, and its containers run there.
            if self.has(&digest) {
                continue;
            }
            let place = self.place(&digest);
            // What an earlier load left unfinished is in the way.
            let _ = std::fs::remove_dir_all(&place);
            std::fs::rename(&fresh, &place).map_err(|error| StoreError::file(&place, error))?;
        }
        self.make_known(&alone, told)
    }

    fn alone(&self) -> Result<Alone, StoreError> {
        self.lock().map_err(|error| StoreError::file(&self.folder, error))
    }

    /// Adds names to those that are known.
    fn make_known(&self, _: &Alone, told: BTreeMap<String, String>) -> Result<Vec<String>, StoreError> {
        let mut names = self.names();
        names.extend(told.clone());
        let list = self.folder.join(NAMES);
        store(&list, &names).map_err(|error| StoreError::file(&list, error))?;
        Ok(told.into_keys().collect())
    }
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
