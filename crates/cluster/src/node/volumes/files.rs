//! Files of a volume that change together.
//!
//! They are written the way a kubelet writes them: a new directory, then one rename of the link `..data`, so that a
//! reader sees the old files or the new ones and never a mixture.

use crate::node::process::users;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

/// A file's content and mode, by its path.
pub type Files = BTreeMap<PathBuf, (Vec<u8>, u32)>;

/// A path of a volume's file that cannot leave the volume.
pub fn inside(path: &str) -> PathBuf {
    Path::new(path)
        .components()
        .filter(|part| matches!(part, Component::Normal(_)))
        .collect()
}

/// Writes the files as one step, if they differ from what is there. A group that is given may read them.
pub fn write(place: &Path, files: &Files, group: Option<u32>) -> std::io::Result<()> {
    let data = place.join("..data");
    let same = data.exists()
        && files
            .iter()
            .all(|(path, (content, _))| std::fs::read(data.join(path)).is_ok_and(|found| found == *content))
        && count(&data) == files.len();
    if same {
        return Ok(());
    }
    let before = std::fs::read_link(&data).ok();
    let number = before
        .as_ref()
        .and_then(|link| link.to_str()?.strip_prefix("..")?.parse::<u64>().ok())
        .unwrap_or(0)
        + 1;
    let fresh_name = format!("..{number}");
    let fresh = place.join(&fresh_name);
    // A half-written one of an agent that died.
    let _ = std::fs::remove_dir_all(&fresh);
    std::fs::create_dir(&fresh)?;
    for (path, (content, mode)) in files {
        let target = fresh.join(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(&target, content)?;
        let shared = group.filter(|group| users::has_group(*group));
        std::os::unix::fs::chown(&target, None, shared)?;
        let mode = mode | if shared.is_some() { 0o440 } else { 0 };
        std::fs::set_permissions(&target, std::fs::Permissions::from_mode(mode))?;
    }
    let link = place.join("..data_tmp");
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(&fresh_name, &link)?;
    std::fs::rename(&link, &data)?;
    let tops: BTreeSet<&OsStr> = files
        .keys()
        .filter_map(|path| path.components().next())
        .map(Component::as_os_str)
        .collect();
    for top in &tops {
        let visible = place.join(top);
        if !visible.is_symlink() {
            std::os::unix::fs::symlink(Path::new("..data").join(top), &visible)?;
        }
    }
    for entry in std::fs::read_dir(place)?.flatten() {
        let name = entry.file_name();
        if !name.as_encoded_bytes().starts_with(b"..") && !tops.contains(name.as_os_str()) {
            std::fs::remove_file(entry.path())?;
        }
    }
    // Only what we named ourselves: whoever can write to the volume could point the link at anything.
    if let Some(before) = before.filter(|before| is_generation(before)) {
        std::fs::remove_dir_all(place.join(before))?;
    }
    Ok(())
}

/// Whether this is the name of a generation of files, `..7`.
fn is_generation(link: &Path) -> bool {
    let number = link.to_str().and_then(|name| name.strip_prefix(".."));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

fn count(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .map(|entry| if entry.path().is_dir() { count(&entry.path()) } else { 1 })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_replaces_all_files_in_one_step() {
        let folder = tempfile::tempdir().unwrap();
        let files = |pairs: &[(&str, &str)]| -> Files {
            pairs
                .iter()
                .map(|(path, text)| (inside(path), (text.as_bytes().to_vec(), 0o644)))
                .collect()
        };
        write(folder.path(), &files(&[("a", "1"), ("sub/b", "2")]), None).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("sub/b")).unwrap(), "2");
        let link = std::fs::read_link(folder.path().join("..data")).unwrap();
        write(folder.path(), &files(&[("a", "1"), ("sub/b", "2")]), None).unwrap();
        assert_eq!(
            std::fs::read_link(folder.path().join("..data")).unwrap(),
            link,
            "unchanged files are left alone"
        );
        write(folder.path(), &files(&[("a", "3")]), None).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a")).unwrap(), "3");
        assert!(!folder.path().join("sub").exists());
        assert!(!folder.path().join(link).exists());
    }

    #[test]
    fn a_link_that_somebody_turned_elsewhere_takes_nothing_along() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(elsewhere.path().join("precious"), "kept").unwrap();
        std::os::unix::fs::symlink(elsewhere.path(), folder.path().join("..data")).unwrap();
        let files: Files = [(inside("a"), (b"1".to_vec(), 0o644))].into_iter().collect();
        write(folder.path(), &files, None).unwrap();
        assert_eq!(std::fs::read_to_string(folder.path().join("a")).unwrap(), "1");
        assert_eq!(
            std::fs::read_to_string(elsewhere.path().join("precious")).unwrap(),
            "kept"
        );
    }

    #[test]
    fn a_path_cannot_leave_its_volume() {
        assert_eq!(inside("../../etc/passwd"), PathBuf::from("etc/passwd"));
        assert_eq!(inside("/abs"), PathBuf::from("abs"));
    }
}
