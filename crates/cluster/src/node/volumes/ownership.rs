//! `fsGroup`: volumes that a group of the pod's own may use.
//!
//! All of the pod's processes are in the group; what its volumes hold becomes the group's too. A volume whose root is
//! the group's already is left as it is: a large one would otherwise be walked through at each start.
//!
//! Other pods may have the volume at the same time, and put a link where a file was. So nothing is reached by its path:
//! each file is opened below its directory, never through a link, and changed as opened.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{self, AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat};
use std::io;
use std::path::Path;

/// New files of a directory with this bit belong to the directory's group.
const SET_GROUP: Mode = Mode::SGID;

/// Gives a directory and all that it holds to a group, which may then read and write it.
pub fn give(place: &Path, group: u32) -> io::Result<()> {
    let root = fs::open(place, flags(), Mode::empty())?;
    let found = fs::fstat(&root)?;
    if found.st_gid == group && mode(&found).contains(SET_GROUP) {
        return Ok(());
    }
    // The root is last: one that was interrupted half-way is done again.
    if is(&found, FileType::Directory) {
        inside(&root, Gid::from_raw(group))?;
    }
    one(&root, &found, Gid::from_raw(group))
}

/// Not through a link, and not waiting for the other end of a pipe.
fn flags() -> OFlags {
    OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC
}

fn inside(directory: &OwnedFd, group: Gid) -> io::Result<()> {
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        // The link itself, whatever it leads to; and sockets and pipes, which are opened by those who use them.
        fs::chownat(directory, name, None, Some(group), AtFlags::SYMLINK_NOFOLLOW)?;
        let found = fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?;
        if !is(&found, FileType::Directory) && !is(&found, FileType::RegularFile) {
            continue;
        }
        let opened = fs::openat(directory, name, flags(), Mode::empty())?;
        let found = fs::fstat(&opened)?;
        if is(&found, FileType::Directory) {
            inside(&opened, group)?;
        }
        one(&opened, &found, group)?;
    }
    Ok(())
}

fn one(opened: impl AsFd, found: &Stat, group: Gid) -> io::Result<()> {
    fs::fchown(&opened, None, Some(group))?;
    let wanted = match is(found, FileType::Directory) {
        true => Mode::RWXU | Mode::RWXG | SET_GROUP,
        false => Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP,
    };
    Ok(fs::fchmod(&opened, mode(found) | wanted)?)
}

fn is(found: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(found.st_mode) == kind
}

fn mode(found: &Stat) -> Mode {
    Mode::from_raw_mode(found.st_mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    #[test]
    fn a_volume_becomes_the_groups_and_is_not_walked_through_again() {
        let volume = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        std::fs::create_dir(volume.path().join("sub")).unwrap();
        let file = volume.path().join("sub/file");
        std::fs::write(&file, "x").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink(outside.path(), volume.path().join("link")).unwrap();
        let before = std::fs::metadata(outside.path()).unwrap().mode();
        // A group that this user has, for those who may not give files to any other.
        let group = std::fs::metadata(volume.path()).unwrap().gid();
        give(volume.path(), group).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!(mode(&file), 0o660);
        assert_eq!(mode(&volume.path().join("sub")) & 0o2770, 0o2770);
        assert_eq!(std::fs::metadata(outside.path()).unwrap().mode(), before);
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
        give(volume.path(), group).unwrap();
        assert_eq!(mode(&file), 0o600);
    }
}
