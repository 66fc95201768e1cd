//! Root's rights for an ordinary user: a user namespace in which the user's own number is root's.
//!
//! Whoever is root there may make network, mount and PID namespaces as root does, and no more of the machine than the
//! user may: files are the user's, and signals from outside reach every process. Where an administrator has given the
//! user a range of numbers, those are mapped too. A container that is to run as a user who is not mapped gets a namespace
//! of its own below, in which the one who is has that number.
//!
//! The namespace lives in its processes, as all others do. Whoever comes back to pods that run joins theirs: from a
//! second one beside it nothing of them could be reached.

pub mod range;

use super::entry::VERB;
use super::spec::{ProcessId, SandboxRecord, load};
use crate::node::network::bridge::try_here;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::{getegid, geteuid};
use range::Range;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

const USERS: &str = "/proc/self/uid_map";
const GROUPS: &str = "/proc/self/gid_map";
/// How many users a machine has.
const ALL: u64 = u32::MAX as u64;
const NONE: Option<&str> = None;
/// What is tried: a namespace with a range of users, or with one's own.
const RANGE: &str = "range";
const OWN: &str = "own";

/// What this process may do on the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The machine's own root.
    Root,
    /// Root of a user namespace: an ordinary user outside of it.
    Mapped(Users),
    Ordinary,
}

/// Who exists in a user namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Users {
    /// One's own number, as root's.
    Own,
    /// Others too: files can be given away, and processes become others.
    Range,
}

/// What this process may do on the machine, as the kernel says.
pub fn standing() -> Standing {
    match geteuid().is_root() {
        false => Standing::Ordinary,
        true => standing_of_root(&read(USERS)),
    }
}

fn standing_of_root(map: &str) -> Standing {
    let known: u64 = ranges(map).map(|(_, _, count)| count).sum();
    match known {
        ALL.. => Standing::Root,
        0 | 1 => Standing::Mapped(Users::Own),
        _ => Standing::Mapped(Users::Range),
    }
}

impl Standing {
    /// Whether this process can become others, and give files to them.
    pub fn has_others(self) -> bool {
        matches!(self, Standing::Root | Standing::Mapped(Users::Range))
    }
}

/// This user's number as the machine counts, also inside of a namespace.
pub fn number_outside() -> u32 {
    outside(&read(USERS), geteuid().as_raw())
}

fn outside(map: &str, number: u32) -> u32 {
    let own = ranges(map).find(|(inside, _, count)| (*inside..inside + count).contains(&u64::from(number)));
    let found = own.map(|(inside, outside, _)| outside + u64::from(number) - inside);
    found.and_then(|found| u32::try_from(found).ok()).unwrap_or(number)
}

/// The lines of a map: a number inside, what it is outside, and how many follow.
fn ranges(map: &str) -> impl Iterator<Item = (u64, u64, u64)> {
    map.lines().filter_map(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
    })
}

/// Why an ordinary user does not get the rights of root in a namespace.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// Nothing has changed: the process can go on as the user.
    #[error("{0}")]
    Before(io::Error),
    /// The process is in a namespace in which it is nobody, and cannot leave it: it must end.
    #[error("the users of a new namespace could not be mapped: {0}")]
    Halfway(io::Error),
}

/// Gives an ordinary user the rights that pods in namespaces need; root has them. `folder` is where the nodes of the
/// cluster keep their pods: if some run, their namespace is joined.
///
/// The process must not have a second thread yet: the kernel gives such rights to whole processes only.
pub fn become_root(folder: Option<&Path>) -> Result<(), Refusal> {
    if geteuid().is_root() {
        return Ok(());
    }
    if let Some(space) = folder.and_then(space_left_in) {
        let joined = setns(space, CloneFlags::CLONE_NEWUSER);
        return joined.map_err(|error| Refusal::Before(error.into()));
    }
    let range = Range::given();
    if let Some(range) = range.filter(|_| tried(RANGE).is_ok()) {
        return range.enter();
    }
    tried(OWN).map_err(Refusal::Before)?;
    enter_as(0, 0)
}

/// What a kernel refuses shows only after the step that cannot be taken back: somebody else tries first.
fn tried(what: &str) -> io::Result<()> {
    let tried = Command::new("/proc/self/exe")
        .args([VERB, "try-namespaces", what])
        .stdin(Stdio::null())
        .output()?;
    if tried.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&tried.stderr);
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why.trim()))
}

/// What it takes to be some user and group. It is found before a container has its root: what /proc says there may be
/// the image's own words.
pub struct Becoming {
    standing: Standing,
    /// Where one of them is not mapped: a namespace in which this process's user and group have these numbers.
    own: Option<(u32, u32)>,
}

impl Becoming {
    pub fn of(user: Option<u32>, group: Option<u32>) -> Becoming {
        let standing = standing();
        let (user, group) = (user.unwrap_or(0), group.unwrap_or(0));
        let known = Known::here();
        let known = known.has_user(user) && known.has_group(group);
        let own = (!known && matches!(standing, Standing::Mapped(_))).then_some((user, group));
        Becoming { standing, own }
    }

    /// Sees to it that this process can be that user and group. Says what it may do then.
    pub fn make_possible(self) -> io::Result<Standing> {
        let Some((user, group)) = self.own else {
            return Ok(self.standing);
        };
        enter_as(user, group).map_err(io::Error::other)?;
        Ok(Standing::Mapped(Users::Own))
    }
}

fn is_known(map: &str, number: u32) -> bool {
    ranges(map).any(|(inside, _, count)| (inside..inside + count).contains(&u64::from(number)))
}

/// The users and groups that exist in a namespace.
#[derive(Clone, Debug, Default)]
pub struct Known {
    users: String,
    groups: String,
}

impl Known {
    /// Those of this process, as the kernel says.
    pub fn here() -> Known {
        Known::in_maps(&read(USERS), &read(GROUPS))
    }

    pub fn in_maps(users: &str, groups: &str) -> Known {
        Known {
            users: users.to_owned(),
            groups: groups.to_owned(),
        }
    }

    pub fn has_user(&self, number: u32) -> bool {
        is_known(&self.users, number)
    }

    pub fn has_group(&self, number: u32) -> bool {
        is_known(&self.groups, number)
    }
}

/// Whether files and processes can be given to this group.
pub fn has_group(group: u32) -> bool {
    standing().has_others() && Known::here().has_group(group)
}

/// Those groups that exist here: what is lacking, the pod's condition says.
pub fn existing(mut groups: Vec<u32>) -> Vec<u32> {
    groups.retain(|group| has_group(*group));
    groups
}

/// The user namespace of pods that an earlier agent left running in this folder.
fn space_left_in(folder: &Path) -> Option<File> {
    let network: Option<ProcessId> = load(&folder.join("network.json"));
    let pods = std::fs::read_dir(folder.join("pods")).into_iter().flatten().flatten();
    let sandboxes = pods.filter_map(|pod| SandboxRecord::attached(&pod.path().join("sandbox.json"))?.holder);
    let mut left = network.into_iter().chain(sandboxes).filter(|holder| holder.is_alive());
    let own = std::fs::read_link("/proc/self/ns/user").ok()?;
    left.find_map(|holder| {
        let place = format!("/proc/{}/ns/user", holder.pid);
        let strange = std::fs::read_link(&place).ok()? != own;
        File::open(place).ok().filter(|_| strange)
    })
}

/// Makes a user namespace in which this process's user and group have these numbers, and moves into it.
fn enter_as(user: u32, group: u32) -> Result<(), Refusal> {
    let (own, own_group) = (geteuid(), getegid());
    unshare(CloneFlags::CLONE_NEWUSER).map_err(|error| Refusal::Before(error.into()))?;
    // Nobody but root may map groups while a process could still leave some: those may be what keeps it from a file.
    std::fs::write(USERS, format!("{user} {own} 1"))
        .and_then(|()| std::fs::write("/proc/self/setgroups", "deny"))
        .and_then(|()| std::fs::write(GROUPS, format!("{group} {own_group} 1")))
        .map_err(Refusal::Halfway)
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Does once all that pods need of a user namespace, and says on standard error what is refused.
pub fn try_namespaces(arguments: &[String]) -> ExitCode {
    let tried = match arguments.first().map(String::as_str) {
        Some(RANGE) => try_outside(|| Range::given().map_or(Ok(()), Range::enter)),
        Some(OWN) => try_outside(|| enter_as(0, 0)),
        Some(place) => mounted("proc", Path::new(place), NONE).map(|()| true),
        None => Ok(false),
    };
    match tried {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(io::stderr(), "{error}");
            ExitCode::FAILURE
        }
    }
}

fn try_outside(enter: impl FnOnce() -> Result<(), Refusal>) -> io::Result<bool> {
    let named = |what: &str, error: &dyn std::fmt::Display| io::Error::other(format!("{what}: {error}"));
    enter().map_err(|error| named("user namespaces are refused (see user.max_user_namespaces)", &error))?;
    let spaces = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWPID;
    unshare(spaces).map_err(|error| named("namespaces are refused", &error))?;
    try_here().map_err(|error| named("bridges and pairs of interfaces are refused", &error))?;
    // Any directory will do, and this one is everywhere: nobody else sees what is mounted here.
    let base = PathBuf::from("/tmp");
    mounted("tmpfs", &base, NONE)?;
    let [lower, upper, work, root] = ["lower", "upper", "work", "root"].map(|name| base.join(name));
    for folder in [&lower, &upper, &work, &root] {
        std::fs::create_dir(folder)?;
    }
    let layers = super::root::layers(&lower, &upper, &work);
    mounted("overlay", &root, Some(&layers))?;
    // The first process of the new PID namespace: only inside of it can its /proc be mounted.
    let inside = Command::new("/proc/self/exe")
        .args([VERB, "try-namespaces"])
        .arg(&lower)
        .stdin(Stdio::null())
        .status()?;
    Ok(inside.success())
}

fn mounted(kind: &str, place: &Path, options: Option<&str>) -> io::Result<()> {
    mount(Some(kind), place, Some(kind), MsFlags::empty(), options)
        .map_err(|error| io::Error::other(format!("mounting {kind} in a user namespace is refused: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_says_who_is_root_and_who_that_is_outside() {
        let machine = "         0          0 4294967295\n";
        let own = "         0       1000          1\n";
        assert_eq!(standing_of_root(machine), Standing::Root);
        assert_eq!(standing_of_root(own), Standing::Mapped(Users::Own));
        assert!(is_known(own, 0) && !is_known(own, 1000));
        assert_eq!(outside(machine, 7), 7);
        assert_eq!(outside(own, 0), 1000);
        let more = "0 1000 1\n1 100000 65536\n";
        assert_eq!(outside(more, 999), 100_998);
        assert_eq!(standing_of_root(more), Standing::Mapped(Users::Range));
        assert!(is_known(more, 999) && !is_known(more, 70_000));
    }
}
