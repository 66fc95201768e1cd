//! Reading an image archive: an OCI layout or what `docker save` writes, as a tar file, compressed or not.
//!
//! The archive is spread out first and then read: its parts come in any order. Nothing in it is trusted: blobs must
//! have the digest that they are named by, layers must be those that the configuration names, entries cannot leave the
//! directory that they are unpacked into, and what is unpacked has a bound.

use super::store::StoreError;
use crate::node::process::users;
use flate2::read::MultiGzDecoder;
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Component, Path, PathBuf};

/// The longest document (index, manifest, configuration) that is read.
const LONGEST_DOCUMENT: u64 = 4 << 20;
/// Indexes within indexes that are followed.
const DEEPEST: usize = 4;

/// The most bytes that one image or archive may unpack to.
const LARGEST_UNPACKED: u64 = 64 << 30;
/// What is left of the disk for everybody else.
const LEFT_FREE: u64 = 1 << 30;

/// How many bytes may still be unpacked. Few bytes can be compressed from very many: without a bound they fill the disk.
#[derive(Debug)]
pub struct Budget {
    left: Cell<u64>,
}

impl Budget {
    pub fn of(bytes: u64) -> Budget {
        Budget { left: Cell::new(bytes) }
    }

    /// What the disk of a directory has room for, within reason.
    pub fn on_disk(folder: &Path) -> io::Result<Budget> {
        let disk = nix::sys::statvfs::statvfs(folder)?;
        let free = disk.blocks_available().saturating_mul(disk.fragment_size());
        Ok(Budget::of(free.saturating_sub(LEFT_FREE).min(LARGEST_UNPACKED)))
    }

    /// Takes bytes off, or says that there are too few.
    pub fn spend(&self, bytes: u64) -> io::Result<()> {
        let left = self.left.get().checked_sub(bytes).ok_or_else(|| {
            let why = "it unpacks to more than the disk has room for, or to more than 64 GiB";
            io::Error::new(io::ErrorKind::StorageFull, why)
        })?;
        self.left.set(left);
        Ok(())
    }
}

/// Counts and hashes what is read.
struct Counted<'a> {
    inner: Box<dyn Read>,
    hash: Sha256,
    budget: &'a Budget,
}

impl Read for Counted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.budget.spend(count as u64)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

/// Holes of a file are not in the archive, but are written as zeros.
fn count_holes(entry: &tar::Entry<'_, impl Read>, budget: &Budget) -> io::Result<()> {
    match entry.header().entry_type().is_gnu_sparse() {
        true => budget.spend(entry.size()),
        false => Ok(()),
    }
}

/// An image in an archive.
pub struct Found {
    /// Names with tags.
    pub names: Vec<String>,
    /// The digest of the configuration, which is the image's own name.
    pub digest: String,
    pub config: Value,
    pub layers: Vec<PathBuf>,
}

impl Found {
    /// An image whose parts have been fetched one by one.
    pub fn fetched(names: Vec<String>, config: &Path, layers: Vec<PathBuf>) -> Result<Found, StoreError> {
        Ok(Found {
            names,
            digest: digest(config)?,
            config: parse(config)?,
            layers,
        })
    }
}

/// Spreads an archive out into an empty directory and lists what is in it.
pub fn read(archive: &Path, into: &Path, budget: &Budget) -> Result<Vec<Found>, StoreError> {
    let failed = |error: io::Error| StoreError::archive(archive, &told(&error));
    let mut files = tar::Archive::new(counted(archive, budget)?);
    for entry in files.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        count_holes(&entry, budget).map_err(failed)?;
        // Files bring the directories that they need; what rights these have in the archive is nobody's concern.
        if !entry.header().entry_type().is_dir() {
            entry.unpack_in(into).map_err(failed)?;
        }
    }
    let layout = Layout { root: into };
    if into.join("manifest.json").is_file() {
        return layout.docker();
    }
    if into.join("index.json").is_file() {
        return layout.oci();
    }
    Err(StoreError::archive(
        archive,
        "it has neither index.json nor manifest.json",
    ))
}

fn counted<'a>(path: &Path, budget: &'a Budget) -> Result<Counted<'a>, StoreError> {
    Ok(Counted {
        inner: decompressed(path)?,
        hash: Sha256::new(),
        budget,
    })
}

/// A file as it is, or what is in it if it is compressed.
fn decompressed(path: &Path) -> Result<Box<dyn Read>, StoreError> {
    let mut file = File::open(path).map_err(|error| StoreError::file(path, error))?;
    let mut magic = [0; 4];
    let count = file.read(&mut magic).map_err(|error| StoreError::file(path, error))?;
    file.seek(SeekFrom::Start(0))
        .map_err(|error| StoreError::file(path, error))?;
    match &magic[..count] {
        [0x1f, 0x8b, ..] => Ok(Box::new(MultiGzDecoder::new(BufReader::new(file)))),
        [0x28, 0xb5, 0x2f, 0xfd] => Err(StoreError::archive(
            path,
            "zstd compression is not understood; use gzip",
        )),
        _ => Ok(Box::new(BufReader::new(file))),
    }
}

struct Layout<'a> {
    root: &'a Path,
}

impl Layout<'_> {
    fn docker(&self) -> Result<Vec<Found>, StoreError> {
        let manifest = self.document(Path::new("manifest.json"))?;
        let images = manifest
            .as_array()
            .cloned()
            .unwrap_or_default()
            .into_iter()
            .map(|image| {
                let config = self.inside(text(&image["Config"]))?;
                let names = list(&image["RepoTags"])
                    .iter()
                    .map(|name| text(name).to_owned())
                    .collect();
                let layers = list(&image["Layers"]).iter().map(|layer| self.inside(text(layer)));
                Ok(Found {
                    names,
                    digest: digest(&config)?,
                    config: parse(&config)?,
                    layers: layers.collect::<Result<_, StoreError>>()?,
                })
            });
        images.collect()
    }

    fn oci(&self) -> Result<Vec<Found>, StoreError> {
        let mut found = Vec::new();
        self.index(&self.document(Path::new("index.json"))?, &[], 0, &mut found)?;
        Ok(found)
    }

    fn index(&self, index: &Value, names: &[String], depth: usize, found: &mut Vec<Found>) -> Result<(), StoreError> {
        if depth > DEEPEST {
            return Err(StoreError::archive(self.root, "its indexes do not end"));
        }
        for entry in list(&index["manifests"]) {
            let platform = &entry["platform"];
            let other =
                platform["os"].is_string() && (platform["os"] != "linux" || platform["architecture"] != architecture());
            if other {
                continue;
            }
            let notes = &entry["annotations"];
            let own = ["io.containerd.image.name", "org.opencontainers.image.ref.name"];
            let own = own.iter().find_map(|note| notes[*note].as_str());
            let names = own.map_or(names.to_vec(), |own| vec![own.to_owned()]);
            let document = parse(&self.blob(text(&entry["digest"]))?)?;
            if document["manifests"].is_array() {
                self.index(&document, &names, depth + 1, found)?;
                continue;
            }
            let config = self.blob(text(&document["config"]["digest"]))?;
            let layers = list(&document["layers"])
                .iter()
                .map(|layer| self.blob(text(&layer["digest"])));
            found.push(Found {
                names,
                digest: digest(&config)?,
                layers: layers.collect::<Result<_, StoreError>>()?,
                config: parse(&config)?,
            });
        }
        Ok(())
    }

    /// A blob by its digest, which must be right.
    fn blob(&self, wanted: &str) -> Result<PathBuf, StoreError> {
        let hex = wanted.strip_prefix("sha256:").unwrap_or_default();
        if hex.len() != 64 || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(StoreError::archive(
                self.root,
                &format!("{wanted:?} is no sha256 digest"),
            ));
        }
        let path = self.root.join("blobs/sha256").join(hex);
        if digest(&path)? != wanted {
            return Err(StoreError::archive(
                self.root,
                &format!("the bytes of {wanted} have another digest"),
            ));
        }
        Ok(path)
    }

    /// A path that an archive names, below its root.
    fn inside(&self, path: &str) -> Result<PathBuf, StoreError> {
        let plain = Path::new(path)
            .components()
            .all(|part| matches!(part, Component::Normal(_)));
        match plain && !path.is_empty() {
            true => Ok(self.root.join(path)),
            false => Err(StoreError::archive(self.root, &format!("{path:?} is not in it"))),
        }
    }

    fn document(&self, path: &Path) -> Result<Value, StoreError> {
        parse(&self.root.join(path))
    }
}

/// An error with its causes, which alone say what is wrong: a file that cannot be unpacked is named before the reason.
fn told(error: &io::Error) -> String {
    let causes = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn architecture() -> &'static str {
    crate::node::registration::architecture()
}

fn parse(path: &Path) -> Result<Value, StoreError> {
    let file = File::open(path).map_err(|error| StoreError::file(path, error))?;
    serde_json::from_reader(file.take(LONGEST_DOCUMENT)).map_err(|error| StoreError::archive(path, &error.to_string()))
}

fn digest(path: &Path) -> Result<String, StoreError> {
    let mut file = File::open(path).map_err(|error| StoreError::file(path, error))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash).map_err(|error| StoreError::file(path, error))?;
    Ok(named(hash))
}

/// A digest as it is written.
fn named(hash: Sha256) -> String {
    let hex: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// Puts the layers of an image over each other. The image is known by its configuration, so they must be those that the
/// configuration names: whoever has only that could otherwise put other layers under the name of a well-known image.
pub fn unpack(image: &Found, root: &Path, budget: &Budget) -> Result<(), StoreError> {
    let wanted = list(&image.config["rootfs"]["diff_ids"]);
    if wanted.len() != image.layers.len() {
        let why = format!(
            "its configuration names {} layers, and it has {}",
            wanted.len(),
            image.layers.len()
        );
        return Err(StoreError::archive(Path::new(&image.digest), &why));
    }
    for (layer, wanted) in image.layers.iter().zip(wanted) {
        apply(layer, text(wanted), root, budget)?;
    }
    Ok(())
}

/// Puts one layer over those before it.
fn apply(layer: &Path, wanted: &str, root: &Path, budget: &Budget) -> Result<(), StoreError> {
    let failed = |error: io::Error| StoreError::archive(layer, &told(&error));
    let mut files = tar::Archive::new(counted(layer, budget)?);
    files.set_preserve_permissions(true);
    files.set_preserve_ownerships(users::standing().has_others());
    files.set_overwrite(true);
    for entry in files.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        let path = entry.path().map_err(failed)?.into_owned();
        let name = path
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default();
        if let Some(hidden) = name.strip_prefix(".wh.") {
            hide(root, &path, hidden);
            continue;
        }
        // Devices need rights that this user may lack, and a container gets its own /dev anyway.
        let kind = entry.header().entry_type();
        if kind.is_block_special() || kind.is_character_special() {
            continue;
        }
        count_holes(&entry, budget).map_err(failed)?;
        entry.unpack_in(root).map_err(failed)?;
    }
    // A digest is that of everything, also of what follows the last file.
    let mut whole = files.into_inner();
    io::copy(&mut whole, &mut io::sink()).map_err(failed)?;
    match named(whole.hash) == wanted {
        true => Ok(()),
        false => Err(StoreError::archive(
            layer,
            &format!("it is not the layer {wanted} that the image's configuration names"),
        )),
    }
}

/// Removes what a layer hides: one name, or with `.wh..wh..opq` all that is in the directory.
fn hide(root: &Path, path: &Path, hidden: &str) {
    let parent = path.parent().unwrap_or(Path::new(""));
    let folder = root.join(parent);
    // A link in a lower layer must not lead the removal elsewhere.
    let stays = folder.canonicalize().ok().zip(root.canonicalize().ok());
    if !stays.is_some_and(|(folder, root)| folder.starts_with(root)) {
        return;
    }
    let remove = |path: PathBuf| {
        let folder = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        let _ = if folder {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
    };
    match hidden {
        ".wh..opq" => {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            entries.for_each(|entry| remove(entry.path()));
        }
        "" | "." | ".." => {}
        name => remove(folder.join(name)),
    }
}
