//! The machine's root for one who is root by a user namespace only.
//!
//! The kernel lets him lay nothing over a directory that has mounts of the machine below it: they might hide something.
//! So the root is put together from pieces, each a directory without mounts and with a layer of its own over it. What
//! belongs to others cannot be written to there, but where a directory is also in the layer, it is the user's own.

use super::super::spec::Inside;
use super::{NONE, layers, only_read, strange_devices};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{File, ReadDir};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// What every container has of its own, and where it is mounted later.
const OWN: &[&str] = &["/proc", "/sys", "/dev", "/tmp", "/run"];
/// Where programs write that believe to be root.
const WRITTEN_TO: &[&str] = &[
    "/usr/local",
    "/var/cache",
    "/var/lib",
    "/var/log",
    "/var/spool",
    "/var/tmp",
];

/// Puts a root together from the machine's.
pub struct Patches<'a> {
    /// Where layers are kept.
    pub base: &'a Path,
    pub root: &'a Path,
    pub inside: &'a Inside,
    /// Where the machine has mounts, read before any of ours is made.
    pub points: Vec<PathBuf>,
    /// Those of them where nothing answers.
    pub silent: Vec<PathBuf>,
    /// The directories that have layers, as the container names them.
    pub laid: Vec<PathBuf>,
}

/// Whether anything of a place of the machine is looked at here.
pub fn matters(place: &Path) -> bool {
    place != Path::new("/") && !OWN.iter().any(|own| place.starts_with(own))
}

impl Patches<'_> {
    /// Lays everything below the machine's root.
    pub fn lay(&mut self) -> io::Result<()> {
        self.lay_all(std::fs::read_dir("/")?)
    }

    /// Lays what is in a directory. Whatever cannot be read, or has gone since, is not there: only what fails on our own
    /// side keeps a container from its start.
    fn lay_all(&mut self, entries: ReadDir) -> io::Result<()> {
        for entry in entries.filter_map(Result::ok) {
            let source = entry.path();
            // Not even what kind of thing it is can be asked without an answer.
            if self.silent.contains(&source) {
                continue;
            }
            let target = self.root.join(source.strip_prefix("/").unwrap_or(&source));
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                if let Ok(to) = std::fs::read_link(&source) {
                    symlink(to, &target)?;
                }
            } else if kind.is_dir() {
                std::fs::create_dir(&target)?;
                self.lay_directory(&source, &target)?;
            } else if kind.is_file() {
                File::create_new(&target)?;
                if shown(&source, &target)? == Shown::Nothing {
                    std::fs::remove_file(&target)?;
                }
            }
        }
        Ok(())
    }

    fn lay_directory(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        if OWN.iter().any(|own| source == Path::new(own)) {
            return Ok(());
        }
        // What the user may not read is an empty directory of his own.
        let Ok(entries) = std::fs::read_dir(source) else {
            return Ok(());
        };
        let mut below = self.points.iter().filter(|point| point.starts_with(source));
        if below.any(|point| point != source) {
            return self.lay_all(entries);
        }
        let [upper, work] = ["upper", "work"].map(|name| self.base.join(name).join(self.laid.len().to_string()));
        std::fs::create_dir_all(&work)?;
        std::fs::create_dir_all(&upper)?;
        like(source, &upper)?;
        self.claim(source, &upper)?;
        let laid = mount(
            Some("overlay"),
            target,
            Some("overlay"),
            strange_devices(self.inside),
            Some(layers(source, &upper, &work).as_str()),
        );
        // A file system that takes no layer, as a network's, is for reading.
        if laid.is_ok() || shown(source, target)? == Shown::ForReading {
            self.laid.push(source.to_owned());
        }
        Ok(())
    }

    /// Makes directories the user's own that something is to be mounted in, or that programs expect to write to.
    fn claim(&self, source: &Path, upper: &Path) -> io::Result<()> {
        let mounts = self.inside.mounts.iter().filter_map(|wanted| wanted.target.parent());
        for wanted in mounts.chain(WRITTEN_TO.iter().map(Path::new)) {
            let Ok(way) = wanted.strip_prefix(source) else { continue };
            let (mut below, mut own) = (source.to_owned(), upper.to_owned());
            for part in way.components() {
                below.push(part);
                own.push(part);
                // What is not there yet is made in its turn; a link leads to another place.
                if below.is_symlink() || !below.is_dir() {
                    break;
                }
                std::fs::create_dir_all(&own)?;
                like(&below, &own)?;
            }
        }
        Ok(())
    }
}

/// What of something of the machine a container finds in its place.
#[derive(Debug, PartialEq, Eq)]
enum Shown {
    ForReading,
    /// What the user may not even see, and what has gone.
    Nothing,
}

/// Shows something of the machine for reading, or not at all: to the machine a container is the user, and would write to
/// the user's own files. Only one that can be neither closed nor taken away again is a failure.
fn shown(source: &Path, target: &Path) -> io::Result<Shown> {
    if mount(Some(source), target, NONE, MsFlags::MS_BIND, NONE).is_err() {
        return Ok(Shown::Nothing);
    }
    if only_read(target).is_ok() {
        return Ok(Shown::ForReading);
    }
    umount2(target, MntFlags::MNT_DETACH)?;
    Ok(Shown::Nothing)
}

/// Gives a directory of a layer the mode of the one below it, if that is still there.
fn like(below: &Path, own: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::metadata(below) else {
        return Ok(());
    };
    let mode = found.permissions().mode();
    std::fs::set_permissions(own, std::fs::Permissions::from_mode(mode & 0o1777 | 0o700))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{inside, with_mounts};
    use super::*;

    #[test]
    fn what_does_not_answer_or_has_gone_is_not_there_and_the_rest_is() {
        let place = tempfile::tempdir().unwrap();
        let (machine, base) = (place.path().join("machine"), place.path().join("base"));
        let root = base.join("root");
        for folder in ["dead", "mounts/one"] {
            std::fs::create_dir_all(machine.join(folder)).unwrap();
        }
        std::fs::write(machine.join("file"), "the machine's").unwrap();
        symlink("nowhere", machine.join("link")).unwrap();
        let below = root.join(machine.strip_prefix("/").unwrap());
        std::fs::create_dir_all(&below).unwrap();
        with_mounts(move || {
            let inside = inside(root.clone());
            let mut patches = Patches {
                base: &base,
                root: &root,
                inside: &inside,
                points: vec![machine.join("dead"), machine.join("mounts/one")],
                silent: vec![machine.join("dead")],
                laid: Vec::new(),
            };
            let entries = std::fs::read_dir(&machine).unwrap();
            patches.lay_all(entries).unwrap();
            assert!(!below.join("dead").exists());
            assert!(below.join("mounts/one").is_dir());
            assert_eq!(std::fs::read_link(below.join("link")).unwrap(), Path::new("nowhere"));
            assert_eq!(std::fs::read(below.join("file")).unwrap(), b"the machine's");
            std::fs::write(below.join("file"), "a container's").unwrap_err();
            std::fs::create_dir(below.join("gone")).unwrap();
            patches
                .lay_directory(&machine.join("gone"), &below.join("gone"))
                .unwrap();
            assert_eq!(patches.laid, [machine.join("mounts/one")]);
            let nothing = shown(&machine.join("gone"), &below.join("gone")).unwrap();
            assert_eq!(nothing, Shown::Nothing);
        });
    }
}
