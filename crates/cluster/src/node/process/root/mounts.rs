//! What the machine has mounted, and where, as the kernel tells it.
//!
//! Nothing here looks at a mounted file system itself, except in a process of its own: one whose server is gone answers
//! nobody, and would hold up the start of every container.

use super::super::entry::VERB;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

/// Kinds of file systems that are on this machine, and so answer. All others are asked first.
const LOCAL: &[&str] = &[
    "bcachefs", "btrfs", "erofs", "exfat", "ext2", "ext3", "ext4", "f2fs", "iso9660", "jfs", "ntfs3", "overlay",
    "ramfs", "squashfs", "tmpfs", "udf", "vfat", "xfs", "zfs",
];
/// How long one of those may take to answer, in seconds.
const PATIENCE: u32 = 2;

/// Something that is mounted.
#[derive(Debug, PartialEq, Eq)]
pub struct Mounted {
    /// The file system, by the number of its device.
    device: Vec<u8>,
    /// What of it is mounted.
    part: PathBuf,
    pub point: PathBuf,
    kind: Vec<u8>,
}

/// What is mounted now, in its order.
pub fn now() -> io::Result<Vec<Mounted>> {
    Ok(read(&std::fs::read("/proc/self/mountinfo")?))
}

/// Names are bytes: a disk may have one in any alphabet.
fn read(table: &[u8]) -> Vec<Mounted> {
    let lines = table.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| {
            let mut fields = line.split(|byte| *byte == b' ').skip(2);
            let path = |field: &[u8]| PathBuf::from(OsString::from_vec(unescaped(field)));
            Some(Mounted {
                device: fields.next()?.to_owned(),
                part: path(fields.next()?),
                point: path(fields.next()?),
                // The fields before the dash are as many as the kernel likes.
                kind: fields.skip_while(|field| *field != b"-").nth(1)?.to_owned(),
            })
        })
        .collect()
}

/// Blanks and the like are written as `\040`.
fn unescaped(field: &[u8]) -> Vec<u8> {
    let mut parts = field.split(|byte| *byte == b'\\');
    let mut name = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let digits = part.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                name.push(byte);
                name.extend(&part[3..]);
            }
            None => name.extend(part),
        }
    }
    name
}

/// Places, and where else the same is to be found: what is mounted in several places is in each of them.
pub fn everywhere(places: &[PathBuf], mounts: &[Mounted]) -> Vec<PathBuf> {
    let mut found = places.to_vec();
    for place in places {
        // Of mounts one over another only the last is seen. All are followed: rather too much is found than too little.
        let seen = mounts.iter().filter_map(|mounted| {
            let way = place.strip_prefix(&mounted.point).ok()?;
            Some((&mounted.device, joined(&mounted.part, way)))
        });
        for (device, inner) in seen {
            let same = mounts.iter().filter(|mounted| mounted.device == *device);
            let elsewhere = same.filter_map(|mounted| match inner.strip_prefix(&mounted.part) {
                Ok(way) => Some(joined(&mounted.point, way)),
                // Not the place, but something in it.
                Err(_) => mounted.part.starts_with(&inner).then(|| mounted.point.clone()),
            });
            // What contains a place is not covered for it: it would take all else along, up to the root.
            found.extend(elsewhere.filter(|other| !place.starts_with(other)));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A path that ends without a slash also where the way is none.
fn joined(base: &Path, way: &Path) -> PathBuf {
    match way.as_os_str().is_empty() {
        true => base.to_owned(),
        false => base.join(way),
    }
}

/// Where file systems are mounted that do not answer, among those that `matter`.
pub fn silent(mounts: &[Mounted], matter: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let strange = mounts
        .iter()
        .filter(|mounted| !LOCAL.iter().any(|kind| mounted.kind == kind.as_bytes()));
    // All are asked at once, so that several cost no more than one. Who cannot be asked is taken for silent.
    let asked: Vec<_> = strange
        .filter(|mounted| matter(&mounted.point))
        .map(|mounted| {
            let mut look = Command::new("/proc/self/exe");
            look.args([VERB, "look"]).arg(&mounted.point);
            (&mounted.point, look.stdin(Stdio::null()).spawn())
        })
        .collect();
    let silent = asked.into_iter().filter_map(|(point, looking)| {
        let answered = looking.and_then(|mut looking| looking.wait());
        (!answered.is_ok_and(|status| status.success())).then(|| point.clone())
    });
    silent.collect()
}

/// Looks at the path that is the last argument, and ends well if there was any answer at all.
pub fn look() -> ExitCode {
    // Nobody has to watch over this process: without an answer the kernel ends it.
    nix::unistd::alarm::set(PATIENCE);
    // Not from the arguments that are passed on, which are text.
    if let Some(path) = std::env::args_os().next_back() {
        let _ = std::fs::metadata(path);
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    const TABLE: &[u8] = b"27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n\
        28 27 254:1 / /home rw shared:1 master:2 - ext4 /dev/vdb rw\n\
        29 27 254:1 /me /mnt/me rw - ext4 /dev/vdb rw\n\
        30 27 254:1 /me/.kube /srv/kube rw - ext4 /dev/vdb rw\n\
        31 27 254:1 /you /srv/you rw - ext4 /dev/vdb rw\n\
        32 27 0:40 / /media/a\\040b\\134\xff rw - nfs4 far:/x rw\n\
        33 27 254:0 /home/me /srv/covered rw - ext4 /dev/vda rw\n";

    #[test]
    fn places_of_mounts_are_read_as_they_are() {
        let mounts = read(TABLE);
        assert_eq!(mounts.len(), 7);
        assert_eq!(mounts[1].kind, b"ext4");
        assert_eq!(mounts[5].kind, b"nfs4");
        assert_eq!(mounts[5].point.as_os_str().as_bytes(), b"/media/a b\\\xff");
        assert_eq!(unescaped(b"/a\\9\\12"), b"/a912");
        let points: Vec<PathBuf> = now().unwrap().into_iter().map(|mounted| mounted.point).collect();
        assert!(points.contains(&PathBuf::from("/proc")));
    }

    #[test]
    fn what_is_mounted_twice_is_found_in_both_places() {
        let check = |place: &str, expected: &[&str]| {
            let expected: Vec<PathBuf> = expected.iter().map(PathBuf::from).collect();
            assert_eq!(everywhere(&[place.into()], &read(TABLE)), expected);
        };
        check(
            "/home/me/.kube/config",
            &[
                "/home/me/.kube/config",
                "/mnt/me/.kube/config",
                "/srv/covered/.kube/config",
                "/srv/kube/config",
            ],
        );
        check("/mnt/me/.kube", &["/home/me/.kube", "/mnt/me/.kube", "/srv/kube"]);
        check("/home", &["/home", "/mnt/me", "/srv/covered", "/srv/kube", "/srv/you"]);
        check("/etc/x", &["/etc/x"]);
    }
}
