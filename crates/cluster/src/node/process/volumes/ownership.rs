//! `fsGroup`: volumes that a group of the pod's own may use.
//!
//! All of the pod's processes are in the group; what its volumes hold becomes the group's too. A volume whose root is
//! the group's already is left as it is: a large one would otherwise be walked through at each start.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown};
use std::path::Path;

/// New files of a directory with this bit belong to the directory's group.
const SET_GROUP: u32 = 0o2000;

/// Gives a directory and all that it holds to a group, which may then read and write it.
pub fn give(place: &Path, group: u32) -> io::Result<()> {
    let root = std::fs::symlink_metadata(place)?;
    if root.gid() == group && root.mode() & SET_GROUP != 0 {
        return Ok(());
    }
    // The root is last: one that was interrupted half-way is done again.
    if root.is_dir() {
        for entry in std::fs::read_dir(place)? {
            each(&entry?.path(), group)?;
        }
    }
    one(place, group)
}

fn each(path: &Path, group: u32) -> io::Result<()> {
    let found = std::fs::symlink_metadata(path)?;
    if found.is_dir() {
        for entry in std::fs::read_dir(path)? {
            each(&entry?.path(), group)?;
        }
    }
    one(path, group)
}

/// Links are given, and never followed: they may lead anywhere.
fn one(path: &Path, group: u32) -> io::Result<()> {
    lchown(path, None, Some(group))?;
    let found = std::fs::symlink_metadata(path)?;
    if found.is_symlink() {
        return Ok(());
    }
    let wanted = match found.is_dir() {
        true => 0o770 | SET_GROUP,
        false => 0o660,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(found.mode() | wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

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
