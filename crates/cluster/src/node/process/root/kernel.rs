//! What a container sees of the machine's kernel: /sys, and what of /proc is settings or secrets.

use super::super::spec::Kernel;
use super::super::users::{self, Standing};
use super::{NONE, mounts};
use nix::mount::{MsFlags, mount};
use std::io;
use std::path::Path;

/// What of the kernel is for reading only, below /proc.
const SETTINGS: &[&str] = &["sys", "sysrq-trigger", "irq", "bus", "fs"];
/// What is none of a container's business, below /proc.
const SECRETS: &[&str] = &["kcore", "keys", "timer_list"];

/// The machine's /sys. Unless the container is privileged it is for reading, and of what is mounted there only the
/// control groups are seen.
pub fn system(root: &Path, kernel: Kernel) -> io::Result<()> {
    let target = root.join("sys");
    std::fs::create_dir_all(&target)?;
    if kernel == Kernel::Open {
        return mount(Some("/sys"), &target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE).map_err(io::Error::from);
    }
    match users::standing() {
        // Without what is mounted in it the machine's may be had by its own root only; the pod's own is new.
        Standing::Mapped(_) => new_system(&target)?,
        Standing::Root | Standing::Ordinary => mount(Some("/sys"), &target, NONE, MsFlags::MS_BIND, NONE)?,
    }
    let groups = Path::new("/sys/fs/cgroup");
    if groups.exists() {
        let target = root.join("sys/fs/cgroup");
        mount(Some(groups), &target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    }
    // Each mount is made read-only by itself; where they are is the same as on the machine.
    let points = mounts::now()?.into_iter().map(|mounted| mounted.point);
    for point in points.filter(|point| point.starts_with(groups)) {
        match read_only(&root.join(point.strip_prefix("/").unwrap_or(&point))) {
            // One that is hidden by a later mount is listed all the same, and nobody sees it.
            Err(error) if point != groups && is_hidden(&error) => {}
            made => made?,
        }
    }
    read_only(&target)
}

/// The kernel's own view of a pod's devices. One on the machine's network sees the machine's, with all that is mounted.
fn new_system(target: &Path) -> nix::Result<()> {
    mount(
        Some("sysfs"),
        target,
        Some("sysfs"),
        harmless() | MsFlags::MS_RDONLY,
        NONE,
    )
    .or_else(|_| mount(Some("/sys"), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE))
}

fn harmless() -> MsFlags {
    MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC
}

fn is_hidden(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(nix::errno::Errno::from_raw);
    matches!(code, Some(nix::errno::Errno::ENOENT | nix::errno::Errno::EINVAL))
}

/// Keeps a container from the settings and secrets of the kernel, which all containers and the machine share.
pub fn guard(root: &Path) -> io::Result<()> {
    let proc = root.join("proc");
    for place in SETTINGS
        .iter()
        .map(|name| proc.join(name))
        .filter(|place| place.exists())
    {
        mount(Some(&place), &place, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
        read_only(&place)?;
    }
    let nothing = root.join("dev/null");
    for place in SECRETS
        .iter()
        .map(|name| proc.join(name))
        .filter(|place| place.exists())
    {
        mount(Some(&nothing), &place, NONE, MsFlags::MS_BIND, NONE)?;
    }
    let firmware = root.join("sys/firmware");
    if firmware.exists() {
        mount(Some("stead"), &firmware, Some("tmpfs"), MsFlags::MS_RDONLY, NONE)?;
    }
    Ok(())
}

fn read_only(place: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | harmless();
    mount(NONE, place, NONE, flags, NONE).map_err(io::Error::from)
}
