//! A container's own view of the file system.
//!
//! Programs come from the machine, so the root is the machine's own root with a throw-away layer over it: what a
//! container writes is gone with it, and never reaches the machine. Volumes are mounted over that. All of it lives
//! in a mount namespace and vanishes with the container's last process: there is nothing to unmount.

mod kernel;
pub mod mounts;
mod patches;

use super::spec::{Access, Inside, Kernel, Mount, Processes};
use super::users::{self, Standing};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use patches::Patches;
use rustix::fs::{Mode, OFlags, ResolveFlags, StatVfsMountFlags};
use rustix::io::Errno;
use std::ffi::OsString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

const NONE: Option<&str> = None;
/// Links that are followed on one path before it is taken for a circle, as the kernel does.
const MOST_LINKS: usize = 40;

/// Builds the root and moves this process into it.
pub fn enter(inside: &Inside) -> io::Result<()> {
    unshare(CloneFlags::CLONE_NEWNS)?;
    // Without this, mounts made here would appear on the machine.
    mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE)?;
    let mounts = mounts::now()?;
    let hidden = mounts::everywhere(&inside.hidden, &mounts);
    let base = &inside.root;
    mount(Some("stead"), base, Some("tmpfs"), MsFlags::empty(), Some("mode=0755"))?;
    let [upper, work, root] = ["upper", "work", "root"].map(|name| base.join(name));
    for folder in [&upper, &work, &root] {
        std::fs::create_dir(folder)?;
    }
    let standing = users::standing();
    let mut layered = vec![PathBuf::from("/")];
    match &inside.image {
        None if matches!(standing, Standing::Mapped(_)) => {
            // A root has to be a mount, which a directory is that is mounted on itself.
            mount(Some(&root), &root, NONE, MsFlags::MS_BIND, NONE)?;
            let mut patches = Patches {
                base,
                root: &root,
                inside,
                silent: mounts::silent(&mounts, patches::matters),
                points: mounts.into_iter().map(|mounted| mounted.point).collect(),
                laid: Vec::new(),
            };
            patches.lay()?;
            layered.extend(patches.laid);
        }
        image => {
            let lower = image.as_deref().unwrap_or(Path::new("/"));
            let layers = layers(lower, &upper, &work);
            let flags = strange_devices(inside);
            mount(Some("overlay"), &root, Some("overlay"), flags, Some(layers.as_str()))?;
        }
    }
    kernel::system(&root, inside.kernel)?;
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
            strange_devices(inside),
            Some("mode=1777"),
        )?;
    }
    if inside.image.is_none() {
        hide(&root, &hidden, &inside.mounts)?;
    }
    for wanted in &inside.mounts {
        let target = under(&root, &wanted.target);
        match opened(wanted)? {
            Some(part) => bind(&seen_as(&part), &target, wanted.access)?,
            None => bind(&wanted.source, &target, wanted.access)?,
        }
    }
    let target = root.join("proc");
    std::fs::create_dir_all(&target)?;
    match (inside.processes, standing) {
        // Those of the machine are shown as it shows them: only its own root may mount them once more.
        (Processes::Host, Standing::Mapped(_)) => bind(Path::new("/proc"), &target, Access::ReadWrite)?,
        _ => mount(Some("proc"), &target, Some("proc"), MsFlags::empty(), NONE)?,
    }
    if inside.kernel == Kernel::Guarded {
        kernel::guard(&root)?;
    }
    std::env::set_current_dir(&root)?;
    nix::unistd::pivot_root(".", ".")?;
    umount2(".", MntFlags::MNT_DETACH)?;
    if inside.access == Access::ReadOnly {
        let covers = || inside.mounts.iter().map(|wanted| &wanted.target).chain(&hidden);
        // What is mounted over a layer is not the root's.
        layered.retain(|place| !covers().any(|cover| place.starts_with(cover)));
        for place in &layered {
            only_read(place)?;
        }
    }
    std::env::set_current_dir("/")
}

/// The options of a throw-away layer over a directory.
pub fn layers(lower: &Path, upper: &Path, work: &Path) -> String {
    // Notes on files that only the machine's root may make are made as every user may.
    let notes = match users::standing() {
        Standing::Mapped(_) => ",userxattr",
        Standing::Root | Standing::Ordinary => "",
    };
    let [lower, upper, work] = [lower, upper, work].map(Path::display);
    format!("lowerdir={lower},upperdir={upper},workdir={work}{notes}")
}

/// Whether devices work that are not among those of its /dev: for a privileged container only.
fn strange_devices(inside: &Inside) -> MsFlags {
    match inside.kernel {
        Kernel::Guarded => MsFlags::MS_NODEV,
        Kernel::Open => MsFlags::empty(),
    }
}

/// Covers what of the machine's files no container may see. It comes before the volumes, whose sources are found
/// outside of this root: those of the cluster's own directory are mounted all the same.
fn hide(root: &Path, hidden: &[PathBuf], volumes: &[Mount]) -> io::Result<()> {
    let nothing = root.join("dev/null");
    for hidden in hidden {
        let place = under(root, hidden);
        let found = match std::fs::symlink_metadata(&place) {
            Ok(found) => found,
            // What is not there, or not for this process, is not for its container either.
            Err(error) if is_out_of_reach(&error) => continue,
            Err(error) => return Err(error),
        };
        if found.is_dir() {
            let mut targets = volumes.iter().map(|wanted| under(root, &wanted.target));
            // A volume can be mounted only where its place can be made.
            let flags = match targets.any(|target| target.starts_with(&place)) {
                true => MsFlags::MS_NODEV,
                false => MsFlags::MS_NODEV | MsFlags::MS_RDONLY,
            };
            mount(Some("stead"), &place, Some("tmpfs"), flags, Some("mode=0755"))?;
        } else if found.is_file() {
            mount(Some(&nothing), &place, NONE, MsFlags::MS_BIND, NONE)?;
        }
    }
    Ok(())
}

fn is_out_of_reach(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}

/// A part of a volume, opened so that no link leads out of it, now or later. Nothing for what is mounted as a whole.
fn opened(wanted: &Mount) -> io::Result<Option<OwnedFd>> {
    let Some(volume) = &wanted.volume else { return Ok(None) };
    let part = wanted.source.strip_prefix(volume).map_err(io::Error::other)?;
    match open_within(&open(volume)?, part) {
        Ok(part) => Ok(Some(part)),
        // A kernel from before 5.6: the agent has looked at the path, and nobody can do more.
        Err(Errno::NOSYS) => Ok(None),
        Err(error) => Err(leaves(error)),
    }
}

/// Makes the folders of a path inside of a volume that are not there yet, for everybody who may write to the volume.
/// Containers that run may turn any of them into a link at any moment, and none leads out.
pub fn make_within(volume: &Path, part: &Path) -> io::Result<()> {
    let top = open(volume)?;
    let mut parent = open_within(&top, Path::new(""));
    if parent.as_ref().is_err_and(|error| *error == Errno::NOSYS) {
        return std::fs::create_dir_all(volume.join(part));
    }
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&top)?.st_mode);
    let mut place = PathBuf::new();
    for name in part.components() {
        place.push(name);
        let mut found = open_within(&top, &place);
        if found.as_ref().is_err_and(|error| *error == Errno::NOENT) {
            make_in(&parent.map_err(leaves)?, Path::new(name.as_os_str()), mode)?;
            found = open_within(&top, &place);
        }
        parent = found;
    }
    parent.map(drop).map_err(leaves)
}

fn make_in(parent: &OwnedFd, name: &Path, mode: Mode) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
        // Another container of the pod was faster.
        Err(Errno::EXIST) => return Ok(()),
        made => made?,
    }
    let itself = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = rustix::fs::openat(parent, name, itself, Mode::empty())?;
    Ok(rustix::fs::fchmod(made, mode)?)
}

fn leaves(error: Errno) -> io::Error {
    io::Error::other(format!("a subPath cannot leave its volume: {error}"))
}

fn open(volume: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::open(volume, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn open_within(volume: &OwnedFd, part: &Path) -> rustix::io::Result<OwnedFd> {
    let part = if part.as_os_str().is_empty() {
        Path::new(".")
    } else {
        part
    };
    let within = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(volume, part, OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), within)
}

/// The path of an open file, for calls that take paths only.
fn seen_as(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
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
    let terminals = dev.join("pts");
    match users::standing() {
        // The machine's own terminals: the far ends of `exec -it` are among them.
        Standing::Root => bind(Path::new("/dev/pts"), &terminals, Access::ReadWrite)?,
        // Of an ordinary user every container is the user to the machine, and so the owner of the user's terminals: it
        // gets none of them. `exec -it` hands its own over, and only their names are not to be found.
        Standing::Mapped(_) | Standing::Ordinary => {
            std::fs::create_dir(&terminals)?;
            let flags = MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC;
            let data = Some("newinstance,ptmxmode=0666,mode=0620");
            mount(Some("devpts"), &terminals, Some("devpts"), flags, data)?;
        }
    }
    std::fs::create_dir(dev.join("shm"))?;
    mount(
        Some("shm"),
        &dev.join("shm"),
        Some("tmpfs"),
        MsFlags::MS_NOSUID | MsFlags::MS_NODEV,
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
///
/// Links on the way are followed as the container would: `/var/run` is often one to `/run`, and followed from here it
/// would lead to the machine's own directory. The last part stays a link; whoever mounts there decides.
fn under(root: &Path, path: &Path) -> PathBuf {
    let parts = |path: &Path| -> Vec<OsString> {
        path.components()
            .filter(|part| matches!(part, Component::Normal(_) | Component::ParentDir))
            .map(|part| part.as_os_str().to_owned())
            .rev()
            .collect()
    };
    let mut left = parts(path);
    let mut found: Vec<OsString> = Vec::new();
    let mut links = 0;
    while let Some(part) = left.pop() {
        if part == ".." {
            found.pop();
            continue;
        }
        found.push(part);
        let place = root.join(found.iter().collect::<PathBuf>());
        let link = std::fs::read_link(&place)
            .ok()
            .filter(|_| !left.is_empty() && links < MOST_LINKS);
        if let Some(link) = link {
            links += 1;
            found.pop();
            if link.is_absolute() {
                found.clear();
            }
            left.extend(parts(&link));
        }
    }
    root.join(found.iter().collect::<PathBuf>())
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
    match access {
        Access::ReadOnly => only_read(target),
        Access::ReadWrite => Ok(()),
    }
}

/// Makes a mount one for reading.
fn only_read(place: &Path) -> io::Result<()> {
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY | kept(place)?;
    Ok(mount(NONE, place, NONE, flags, NONE)?)
}

/// What a mount forbids already: only the machine's root may allow it again.
fn kept(place: &Path) -> io::Result<MsFlags> {
    let found = rustix::fs::statvfs(place)?.f_flag;
    let all = [
        (StatVfsMountFlags::NOSUID, MsFlags::MS_NOSUID),
        (StatVfsMountFlags::NODEV, MsFlags::MS_NODEV),
        (StatVfsMountFlags::NOEXEC, MsFlags::MS_NOEXEC),
    ];
    let forbidden = all.into_iter().filter(|(flag, _)| found.contains(*flag));
    Ok(forbidden.map(|(_, flag)| flag).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A container that asks for nothing.
    pub fn inside(root: PathBuf) -> Inside {
        Inside {
            sandbox: 0,
            mounts: Vec::new(),
            root,
            processes: Processes::Own,
            access: Access::ReadWrite,
            image: None,
            kernel: Kernel::Guarded,
            hidden: Vec::new(),
        }
    }

    /// Runs something that may mount, where this user may: mounts are of a thread of its own, and go with it.
    pub fn with_mounts(work: impl FnOnce() + Send + 'static) {
        let done = std::thread::spawn(move || {
            if unshare(CloneFlags::CLONE_NEWNS).is_err() {
                return;
            }
            mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE).unwrap();
            work();
        });
        done.join().unwrap();
    }

    #[test]
    fn a_part_of_a_volume_is_never_outside_it() {
        let place = tempfile::tempdir().unwrap();
        let volume = place.path().join("volume");
        std::fs::create_dir_all(volume.join("data")).unwrap();
        std::fs::write(volume.join("data/file"), "mine").unwrap();
        std::fs::write(place.path().join("secret"), "not mine").unwrap();
        std::os::unix::fs::symlink("data/file", volume.join("near")).unwrap();
        std::os::unix::fs::symlink("../secret", volume.join("far")).unwrap();
        let open = |part: &str| {
            opened(&Mount {
                source: volume.join(part),
                target: "/x".into(),
                access: Access::ReadOnly,
                volume: Some(volume.clone()),
            })
        };
        let near = open("near").unwrap().expect("a kernel that can");
        assert_eq!(std::fs::read_to_string(seen_as(&near)).unwrap(), "mine");
        assert!(open("far").unwrap_err().to_string().contains("cannot leave its volume"));
        assert!(open("").unwrap().is_some());
    }

    #[test]
    fn what_is_hidden_is_empty_and_takes_volumes_only() {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().to_owned();
        for folder in ["dev", "data/pki", "other"] {
            std::fs::create_dir_all(root.join(folder)).unwrap();
        }
        for file in ["dev/null", "data/pki/ca.key", "other/store", "kubeconfig"] {
            std::fs::write(root.join(file), file).unwrap();
        }
        std::fs::write(root.join("dev/null"), "").unwrap();
        let volume = Mount {
            source: "/x".into(),
            target: "/data/volume".into(),
            access: Access::ReadWrite,
            volume: None,
        };
        let hidden = ["/data", "/other", "/kubeconfig", "/absent", "/kubeconfig/absent"].map(PathBuf::from);
        with_mounts(move || {
            hide(&root, &hidden, &[volume]).unwrap();
            assert_eq!(std::fs::read_dir(root.join("data")).unwrap().count(), 0);
            assert_eq!(std::fs::read_dir(root.join("other")).unwrap().count(), 0);
            assert_eq!(std::fs::read(root.join("kubeconfig")).unwrap(), b"");
            std::fs::create_dir(root.join("data/volume")).unwrap();
            std::fs::create_dir(root.join("other/more")).unwrap_err();
            assert!(!root.join("absent").exists());
        });
    }

    #[test]
    fn folders_of_a_volume_are_made_inside_it_and_nowhere_else() {
        use std::os::unix::fs::PermissionsExt;
        let place = tempfile::tempdir().unwrap();
        let volume = place.path().join("volume");
        std::fs::create_dir_all(volume.join("data")).unwrap();
        std::fs::set_permissions(&volume, std::fs::Permissions::from_mode(0o777)).unwrap();
        std::os::unix::fs::symlink("data", volume.join("near")).unwrap();
        std::os::unix::fs::symlink("..", volume.join("far")).unwrap();
        make_within(&volume, Path::new("near/a/b")).unwrap();
        make_within(&volume, Path::new("near/a/b")).unwrap();
        let mode = std::fs::metadata(volume.join("data/a/b")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o777, "whoever may write to the volume may write there");
        let outside = make_within(&volume, Path::new("far/made")).unwrap_err();
        assert!(outside.to_string().contains("cannot leave its volume"), "{outside}");
        assert!(!place.path().join("made").exists());
    }

    #[test]
    fn links_are_followed_inside_the_root_and_never_out_of_it() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("run")).unwrap();
        std::fs::create_dir(root.path().join("var")).unwrap();
        std::os::unix::fs::symlink("/run", root.path().join("var/run")).unwrap();
        std::os::unix::fs::symlink("../../../etc", root.path().join("var/up")).unwrap();
        std::os::unix::fs::symlink("circle", root.path().join("circle")).unwrap();
        let inside = |path: &str| {
            let place = under(root.path(), Path::new(path));
            place.strip_prefix(root.path()).unwrap().display().to_string()
        };
        assert_eq!(inside("/var/run/secrets/token"), "run/secrets/token");
        assert_eq!(inside("/var/up/passwd"), "etc/passwd");
        assert_eq!(inside("/../../etc/x"), "etc/x");
        assert!(inside("/circle/x").ends_with("x"));
    }
}
