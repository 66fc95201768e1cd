//! What an image's name means on a machine without containers.
//!
//! A node runs programs, not images: the built-in ones are this binary, and a catalogue maps well-known names to
//! programs that the machine has. Anything else is pulled from its registry (see `pull`); if that cannot be, the pod
//! says so as on Kubernetes.

mod archive;
mod file;
mod pull;
pub mod registry;
pub mod store;

use super::entry::VERB;
use crate::node::runtime::RuntimeError;
use file::Program;
use std::path::{Path, PathBuf};
use store::Store;

/// What to run for an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Runs unless the container names a command.
    pub entrypoint: Vec<String>,
    /// Follow the entrypoint unless the container names arguments.
    pub arguments: Vec<String>,
    pub image_id: String,
    /// Words for an event, where the name says more than was honoured.
    pub remark: Option<String>,
    /// What the image brings along, where it is one of the store.
    pub content: Option<Content>,
}

/// What an unpacked image brings along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Content {
    pub root: PathBuf,
    pub env: Vec<(String, String)>,
    pub directory: String,
    pub user: String,
}

/// Where names of images are looked up.
#[derive(Clone, Debug, Default)]
pub struct Places {
    /// The user's own entries.
    pub entries: Option<PathBuf>,
    /// The directory of images that were loaded.
    pub store: Option<PathBuf>,
}

/// Names and what they stand for.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// This binary.
    pub own: PathBuf,
    entries: Option<PathBuf>,
    store: Option<Store>,
    turn: pull::Turn,
}

/// Programs from Debian's packages, under the names of their usual images.
const KNOWN: &[(&str, &[&str])] = &[
    ("busybox", &["sh"]),
    ("alpine", &["sh"]),
    ("debian", &["sh"]),
    ("ubuntu", &["sh"]),
    ("nginx", &["nginx", "-g", "daemon off;"]),
    ("postgres", &["postgres"]),
    ("etcd", &["etcd"]),
    ("redis", &["redis-server"]),
];

/// Whether an image that is not here may be fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// If it is not there.
    Allowed,
    /// Also if it is, where it came from a registry (`imagePullPolicy: Always`).
    Always,
    /// `imagePullPolicy: Never`.
    Never,
}

impl Catalogue {
    /// The catalogue that comes with the binary at `own`, and what the user has added.
    pub fn new(own: PathBuf, places: Places) -> Catalogue {
        Catalogue {
            own,
            entries: places.entries,
            store: places.store.map(Store::new),
            turn: pull::Turn::default(),
        }
    }

    /// Finds what to run for an image: one that was loaded, a user's entry, a built-in program, a program of this
    /// machine.
    pub fn resolve(&self, image: &str, pull: Pull) -> Result<Resolved, RuntimeError> {
        let (repository, tag) = split(image)?;
        let name = short(repository);
        if let Some((found, root)) = self.store.as_ref().and_then(|store| store.find(image)) {
            return Ok(Resolved {
                entrypoint: found.entrypoint,
                arguments: found.arguments,
                image_id: found.source.unwrap_or(found.digest),
                remark: None,
                content: Some(Content {
                    root,
                    env: found.env,
                    directory: found.directory,
                    user: found.user,
                }),
            });
        }
        let own = self.own_entry(repository, name)?;
        if let (None, Some(program)) = (&own, built_in(repository, name)) {
            let own = self.own.display().to_string();
            return Ok(Resolved {
                entrypoint: if program.is_empty() {
                    vec![own]
                } else {
                    vec![own, VERB.to_owned(), program.to_owned()]
                },
                image_id: format!("stead/{name}@{}", env!("CARGO_PKG_VERSION")),
                ..Resolved::default()
            });
        }
        let Some(program) = own.or_else(|| known(name)) else {
            return Err(match pull {
                Pull::Never => RuntimeError::Image {
                    reason: "ErrImageNeverPull",
                    message: format!("Container image \"{image}\" is not present with pull policy of Never"),
                },
                Pull::Allowed | Pull::Always => unknown(image, "it is not looked for elsewhere"),
            });
        };
        machine_program(image, tag, program)
    }

    fn own_entry(&self, repository: &str, name: &str) -> Result<Option<Program>, RuntimeError> {
        let Some(path) = &self.entries else { return Ok(None) };
        let mut entries = file::read(path).map_err(|message| RuntimeError::Image {
            reason: "ErrImagePull",
            message,
        })?;
        Ok(entries.remove(repository).or_else(|| entries.remove(name)))
    }
}

/// The error for what is no name of an image.
fn misnamed(image: &str) -> RuntimeError {
    RuntimeError::Image {
        reason: "InvalidImageName",
        message: format!("Failed to apply default image tag \"{image}\": couldn't parse image name"),
    }
}

/// The error for an image that is nowhere to be had.
fn unknown(image: &str, why: &str) -> RuntimeError {
    RuntimeError::Image {
        reason: "ErrImagePull",
        message: format!(
            "failed to pull image \"{image}\": neither the image store nor the catalogue of this node knows it, and \
             {why}; load it with `stead image load`, or map it to a program in images.yaml"
        ),
    }
}

/// A program that usually comes in an image of this name.
fn known(name: &str) -> Option<Program> {
    let (_, line) = KNOWN.iter().find(|(known, _)| *known == name)?;
    let line: Vec<String> = line.iter().map(|word| (*word).to_owned()).collect();
    // Shells are arguments, not entrypoints: `args` alone replaces them, as in the images of that name.
    Some(match line.first().map(String::as_str) {
        Some("sh") => Program {
            command: Vec::new(),
            args: line,
        },
        _ => Program {
            command: line,
            args: Vec::new(),
        },
    })
}

fn machine_program(image: &str, tag: Option<&str>, program: Program) -> Result<Resolved, RuntimeError> {
    let first = program.command.first().or(program.args.first());
    let first = first.map(String::as_str).unwrap_or_default();
    let found = find(first).ok_or_else(|| RuntimeError::Image {
        reason: "ErrImagePull",
        message: format!(
            "failed to pull image \"{image}\": the catalogue maps it to the program \"{first}\", which is not on this \
             machine; install it"
        ),
    })?;
    let remark = tag.map(|tag| {
        format!(
            "Image \"{image}\" is the program {} of this machine; the tag \"{tag}\" is ignored",
            found.display()
        )
    });
    Ok(Resolved {
        entrypoint: program.command,
        arguments: program.args,
        image_id: format!("machine:{}", found.display()),
        remark,
        content: None,
    })
}

/// The hidden program for a built-in image; empty for the binary itself.
fn built_in(repository: &str, name: &str) -> Option<&'static str> {
    match (repository, name) {
        ("stead/hello", _) => Some("hello"),
        ("stead/operator" | "stead", _) => Some(""),
        (_, "pause") => Some("pause"),
        (_, "agnhost") => Some("agnhost"),
        _ if repository.ends_with("/stead/operator") || repository.ends_with("/stead") => Some(""),
        _ => None,
    }
}

/// Splits an image's name from its tag or digest.
fn split(image: &str) -> Result<(&str, Option<&str>), RuntimeError> {
    let invalid = image.is_empty()
        || image
            .chars()
            .any(|letter| letter.is_whitespace() || letter.is_control());
    if invalid {
        return Err(misnamed(image));
    }
    let name = image.split_once('@').map_or(image, |(name, _)| name);
    Ok(match name.rsplit_once(':') {
        // A colon before a slash is a registry's port.
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (name, None),
    })
}

fn short(repository: &str) -> &str {
    repository.rsplit('/').next().unwrap_or(repository)
}

/// Where programs are looked for, besides the path of this process.
const FOLDERS: &[&str] = &[
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

fn find(program: &str) -> Option<PathBuf> {
    if program.starts_with('/') {
        return Some(PathBuf::from(program)).filter(|path| path.is_file());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    folders.extend(FOLDERS.iter().map(PathBuf::from));
    folders
        .into_iter()
        .map(|folder| folder.join(program))
        .find(|path| Path::is_file(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        Catalogue::new(PathBuf::from("/stead"), Places::default())
    }

    #[test]
    fn the_built_in_web_server_is_this_binary() {
        let found = catalogue().resolve("stead/hello:1.2", Pull::Allowed).unwrap();
        assert_eq!(found.entrypoint, ["/stead", "run-container", "hello"]);
        assert_eq!(
            catalogue()
                .resolve("registry.k8s.io/pause:3.10", Pull::Allowed)
                .unwrap()
                .entrypoint[2],
            "pause"
        );
        assert_eq!(
            catalogue()
                .resolve("registry.k8s.io/e2e-test-images/agnhost:2.59", Pull::Allowed)
                .unwrap()
                .entrypoint[2],
            "agnhost"
        );
    }

    #[test]
    fn an_unknown_image_says_what_to_do() {
        let error = catalogue()
            .resolve("example.com:5000/team/app:v1", Pull::Allowed)
            .unwrap_err();
        assert_eq!(error.reason(), "ErrImagePull");
        assert!(error.to_string().contains("stead image load"), "{error}");
        assert_eq!(
            catalogue().resolve("two words", Pull::Allowed).unwrap_err().reason(),
            "InvalidImageName"
        );
    }

    #[test]
    fn a_tag_that_is_ignored_is_remarked() {
        let found = catalogue().resolve("busybox:1.36", Pull::Allowed).unwrap();
        assert!(found.remark.unwrap().contains("\"1.36\" is ignored"));
        assert_eq!(found.arguments, ["sh"]);
    }

    #[test]
    fn a_users_entry_comes_before_what_is_built_in() {
        let place = tempfile::tempdir().unwrap();
        let entries = place.path().join("images.yaml");
        let own = Catalogue::new(
            PathBuf::from("/stead"),
            Places {
                entries: Some(entries.clone()),
                store: None,
            },
        );
        assert_eq!(own.resolve("pause", Pull::Allowed).unwrap().entrypoint[2], "pause");
        std::fs::write(
            &entries,
            "images:\n  example.com/team/app: {command: [sh, -c], args: [date]}\n  pause: {command: [cat]}\n",
        )
        .unwrap();
        let found = own.resolve("example.com/team/app:2", Pull::Allowed).unwrap();
        assert_eq!(
            (found.entrypoint, found.arguments),
            (vec!["sh".to_owned(), "-c".to_owned()], vec!["date".to_owned()])
        );
        assert_eq!(own.resolve("pause", Pull::Allowed).unwrap().entrypoint, ["cat"]);
        std::fs::write(&entries, "images: [nonsense").unwrap();
        assert!(
            own.resolve("pause", Pull::Allowed)
                .unwrap_err()
                .to_string()
                .contains("images.yaml")
        );
        let never = catalogue().resolve("example.com/none", Pull::Never).unwrap_err();
        assert_eq!(never.reason(), "ErrImageNeverPull");
    }
}
