//! The machine's root for one who is root by a user namespace only.
//!
//! The kernel lets him lay nothing over a directory that has mounts of the machine below it: they might hide something.
//! So the root is put together from pieces, each a directory without mounts and with a layer of its own over it. What
//! belongs to others cannot be written to there, but where a directory is also in the layer, it is the user's own.

use super::super::spec::{Access, Inside};
use super::{bind, layers, strange_devices};
use nix::mount::mount;
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
    /// The directories that have layers, as the container names them.
    pub laid: Vec<PathBuf>,
}

/// The places where something is mounted now.
pub fn points() -> io::Result<Vec<PathBuf>> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4));
    Ok(points.map(|point| PathBuf::from(unescaped(point))).collect())
}

/// Blanks and the like are written as `\040`.
fn unescaped(point: &str) -> String {
    let mut parts = point.split('\\');
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part.get(..3).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (code, part.get(3..)) {
            (Some(code), Some(rest)) => {
                text.push(char::from(code));
                text.push_str(rest);
            }
            _ => text.push_str(part),
        }
    }
    text
}

impl Patches<'_> {
    /// Lays everything below a directory of the machine.
    pub fn lay(&mut self, place: &Path) -> io::Result<()> {
        for entry in std::fs::read_dir(place)?.filter_map(Result::ok) {
            let source = entry.path();
            let target = self.root.join(source.strip_prefix("/").unwrap_or(&source));
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_symlink() {
                symlink(std::fs::read_link(&source)?, &target)?;
            } else if kind.is_dir() {
                std::fs::create_dir(&target)?;
                self.lay_directory(&source, &target)?;
            } else if kind.is_file() {
                // One that the user may not even see is not there.
                let _ = bind(&source, &target, Access::ReadOnly);
            }
        }
        Ok(())
    }

    fn lay_directory(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        // What the user may not read is an empty directory of his own.
        if OWN.iter().any(|own| source == Path::new(own)) || std::fs::read_dir(source).is_err() {
            return Ok(());
        }
        let mut below = self.points.iter().filter(|point| point.starts_with(source));
        if below.any(|point| point != source) {
            return self.lay(source);
        }
        let [upper, work] = ["upper", "work"].map(|name| self.base.join(name).join(self.laid.len().to_string()));
        self.laid.push(source.to_owned());
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
        match laid {
            Ok(()) => Ok(()),
            // A file system that takes no layer, as a network's: it is for reading.
            Err(_) => bind(source, target, Access::ReadOnly),
        }
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

/// Gives a directory of a layer the mode of the one below it.
fn like(below: &Path, own: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(below)?.permissions().mode();
    std::fs::set_permissions(own, std::fs::Permissions::from_mode(mode & 0o1777 | 0o700))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_of_mounts_are_read_as_they_are() {
        assert_eq!(unescaped("/media/a\\040b\\134c"), "/media/a b\\c");
        assert_eq!(unescaped("/plain"), "/plain");
        assert!(points().unwrap().contains(&PathBuf::from("/proc")));
    }
}
