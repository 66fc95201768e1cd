//! A container's own view of the file system.
//!
//! Programs come from the machine, so the root is the machine's own root with a throw-away layer over it: what a
//! container writes is gone with it, and never reaches the machine. Volumes are mounted over that. All of it lives
//! in a mount namespace and vanishes with the container's last process: there is nothing to unmount.

use super::spec::{Access, Inside};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::io;
use std::path::{Path, PathBuf};

const NONE: Option<&str> = None;

/// Builds the root and moves this process into it.
pub fn enter(inside: &Inside) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Without this, mounts made here would appear on the machine.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    let base = &inside.root;
    mount(Some("stead"), base, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?;
    let [upper, work, root] = ["upper", "work", "root"].map(|name| base.join(name));
    for folder in [&upper, &work, &root] {
        std::fs::create_dir(folder)?;
    }
    let lower = inside.image.as_deref().unwrap_or(Path::new("/"));
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    mount(
        Some("overlay"),
        &root,
        Some("overlay"),
        MsFlags::empty(),
        Some(layers.as_str()),
    )?;
    let target = root.join("sys");
    std::fs::create_dir_all(&target)?;
    mount(Some("/sys"), &target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    devices(&root)?;
    let scratch: &[&str] = match inside.access {
        Access::ReadWrite => &["tmp", "run"],
        Access::ReadOnly => &[],
    };
    for folder in scratch {
        let target = root.join(folder);
        std::fs::create_dir_all(&target)?;
        mount(
            Some("stead"),
            &target,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=1777"),
        )?;
    }
    for wanted in &inside.mounts {
        let target = under(&root, &wanted.target);
        bind(&wanted.source, &target, wanted.access)?;
    }
    let target = root.join("proc");
    std::fs::create_dir_all(&target)?;
    mount(Some("proc"), &target, Some("proc"), MsFlags::empty(), NONE)?;
    std::env::set_current_dir(&root)?;
    nix::unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    if inside.access == Access::ReadOnly {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(NONE, "/", NONE, flags, NONE)?;
    }
    std::env::set_current_dir("/")
}

/// A /dev of its own: the devices that every program may use, and room for what it makes itself.
fn devices(root: &Path) -> io::Result<()> {
    let dev = root.join("dev");
    std::fs::create_dir_all(&dev)?;
    mount(
        Some("stead"),
        &dev,
        Some("tmpfs"),
        MsFlags::MS_NOSUID,
        Some("mode=0755"),
    )?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        bind(&Path::new("/dev").join(name), &dev.join(name), Access::ReadWrite)?;
    }
    // The machine's own terminals: the far ends of `exec -it` are among them.
    bind(Path::new("/dev/pts"), &dev.join("pts"), Access::ReadWrite)?;
    std::fs::create_dir(dev.join("shm"))?;
    mount(
        Some("shm"),
        &dev.join("shm"),
        Some("tmpfs"),
        MsFlags::MS_NOSUID,
        Some("mode=1777"),
    )?;
    let links = [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ];
    for (name, to) in links {
        std::os::unix::fs::symlink(to, dev.join(name))?;
    }
    Ok(())
}

/// The place of an absolute path of the container below its root, whatever it looks like.
fn under(root: &Path, path: &Path) -> PathBuf {
    let parts = path
        .components()
        .filter(|part| matches!(part, std::path::Component::Normal(_)));
    parts.fold(root.to_owned(), |whole, part| whole.join(part))
}

fn bind(source: &Path, target: &Path, access: Access) -> io::Result<()> {
    if source.is_dir() {
        std::fs::create_dir_all(target)?;
    } else {
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }
        // A link in the machine's root (such as /etc/resolv.conf) must not lead the mount elsewhere.
        if target.is_symlink() {
            std::fs::remove_file(target)?;
        }
        if !target.exists() {
            std::fs::write(target, "")?;
        }
    }
    mount(Some(source), target, NONE, MsFlags::MS_BIND | MsFlags::MS_REC, NONE)?;
    if access == Access::ReadOnly {
        let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
        mount(NONE, target, NONE, flags, NONE)?;
    }
    Ok(())
}
