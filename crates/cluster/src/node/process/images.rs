//! What an image's name means on a machine without containers.
//!
//! A node runs programs, not images: the built-in ones are this binary, and a catalogue maps well-known names to
//! programs that the machine has. Anything else cannot be pulled, and the pod says so as on Kubernetes.

use super::entry::VERB;
use crate::node::runtime::RuntimeError;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What to run for an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    /// Runs unless the container names a command.
    pub entrypoint: Vec<String>,
    /// Follow the entrypoint unless the container names arguments.
    pub arguments: Vec<String>,
    pub image_id: String,
    /// Words for an event, where the name says more than was honoured.
    pub remark: Option<String>,
}

/// Names and the programs they stand for.
#[derive(Clone, Debug)]
pub struct Catalogue {
    /// This binary.
    pub own: PathBuf,
    /// Name without registry and tag, to a command line.
    pub entries: BTreeMap<String, Vec<String>>,
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

impl Catalogue {
    /// The catalogue that comes with the binary at `own`.
    pub fn new(own: PathBuf) -> Catalogue {
        let entries = KNOWN.iter().map(|(name, line)| {
            let line = line.iter().map(|word| (*word).to_owned()).collect();
            ((*name).to_owned(), line)
        });
        Catalogue {
            own,
            entries: entries.collect(),
        }
    }

    /// Finds what to run for an image.
    pub fn resolve(&self, image: &str) -> Result<Resolved, RuntimeError> {
        let (repository, tag) = split(image)?;
        let name = short(repository);
        if let Some(program) = built_in(repository, name) {
            let own = self.own.display().to_string();
            return Ok(Resolved {
                entrypoint: if program.is_empty() {
                    vec![own]
                } else {
                    vec![own, VERB.to_owned(), program.to_owned()]
                },
                arguments: Vec::new(),
                image_id: format!("stead/{name}@{}", env!("CARGO_PKG_VERSION")),
                remark: None,
            });
        }
        let Some(line) = self.entries.get(repository).or_else(|| self.entries.get(name)) else {
            return Err(RuntimeError::Image {
                reason: "ErrImagePull",
                message: format!(
                    "failed to pull image \"{image}\": this node runs programs of the machine, and neither the image \
                     store nor the catalogue knows \"{name}\"; load it with `stead image load`"
                ),
            });
        };
        let program = line.first().map(String::as_str).unwrap_or_default();
        let found = find(program).ok_or_else(|| RuntimeError::Image {
            reason: "ErrImagePull",
            message: format!(
                "failed to pull image \"{image}\": the catalogue maps it to the program \"{program}\", which is not on \
                 this machine; install it"
            ),
        })?;
        let remark = tag.map(|tag| {
            format!(
                "Image \"{image}\" is the program {} of this machine; the tag \"{tag}\" is ignored",
                found.display()
            )
        });
        // Shells are arguments, not entrypoints: `args` alone replaces them, as in the images of that name.
        let (entrypoint, arguments) = if program == "sh" {
            (Vec::new(), line.clone())
        } else {
            (line.clone(), Vec::new())
        };
        Ok(Resolved {
            entrypoint,
            arguments,
            image_id: format!("machine:{}", found.display()),
            remark,
        })
    }
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
        return Err(RuntimeError::Image {
            reason: "InvalidImageName",
            message: format!("Failed to apply default image tag \"{image}\": couldn't parse image name"),
        });
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
        Catalogue::new(PathBuf::from("/stead"))
    }

    #[test]
    fn the_built_in_web_server_is_this_binary() {
        let found = catalogue().resolve("stead/hello:1.2").unwrap();
        assert_eq!(found.entrypoint, ["/stead", "run-container", "hello"]);
        assert_eq!(
            catalogue().resolve("registry.k8s.io/pause:3.10").unwrap().entrypoint[2],
            "pause"
        );
        assert_eq!(
            catalogue()
                .resolve("registry.k8s.io/e2e-test-images/agnhost:2.59")
                .unwrap()
                .entrypoint[2],
            "agnhost"
        );
    }

    #[test]
    fn an_unknown_image_says_what_to_do() {
        let error = catalogue().resolve("example.com:5000/team/app:v1").unwrap_err();
        assert_eq!(error.reason(), "ErrImagePull");
        assert!(error.to_string().contains("stead image load"), "{error}");
        assert_eq!(
            catalogue().resolve("two words").unwrap_err().reason(),
            "InvalidImageName"
        );
    }

    #[test]
    fn a_tag_that_is_ignored_is_remarked() {
        let found = catalogue().resolve("busybox:1.36").unwrap();
        assert!(found.remark.unwrap().contains("\"1.36\" is ignored"));
        assert_eq!(found.arguments, ["sh"]);
    }
}
