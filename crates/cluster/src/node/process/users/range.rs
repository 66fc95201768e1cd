//! More users than one: the range of numbers that an administrator has given to a user, in /etc/subuid and /etc/subgid.
//!
//! Only root may map numbers that are not one's own. The programs `newuidmap` and `newgidmap`, which many machines have,
//! do that for those whom the files name, and only from outside of the new namespace.

use super::super::entry::VERB;
use super::Refusal;
use nix::sched::{CloneFlags, unshare};
use nix::unistd::{Uid, User, getegid, geteuid, getpid};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Numbers of users and groups beside one's own: the first, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    users: (u32, u32),
    groups: (u32, u32),
}

impl Range {
    /// What this user has been given, if also the programs are there that map it.
    pub fn given() -> Option<Range> {
        let path = std::env::var_os("PATH")?;
        let is_there = |name: &str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
        let own = |file: &str| of(&std::fs::read_to_string(Path::new("/etc").join(file)).ok()?, geteuid());
        Some(Range {
            users: own("subuid")?,
            groups: own("subgid")?,
        })
        .filter(|_| is_there("newuidmap") && is_there("newgidmap"))
    }

    /// Makes a user namespace in which one's own numbers are 0 and these follow, and moves into it.
    pub fn enter(self) -> Result<(), Refusal> {
        let (users, groups) = (self.users, self.groups);
        let numbers = [
            geteuid().as_raw(),
            users.0,
            users.1,
            getegid().as_raw(),
            groups.0,
            groups.1,
        ];
        let mut outside = Command::new("/proc/self/exe")
            .args([VERB, "map-users"])
            .arg(getpid().to_string())
            .args(numbers.map(|number| number.to_string()))
            .stdin(Stdio::piped())
            .spawn()
            .map_err(Refusal::Before)?;
        let go = outside.stdin.take();
        if let Err(error) = unshare(CloneFlags::CLONE_NEWUSER) {
            // Without the byte it ends and does nothing.
            drop(go);
            let _ = outside.wait();
            return Err(Refusal::Before(error.into()));
        }
        let told = go.map_or(Ok(()), |mut go| go.write_all(b"."));
        let mapped = outside.wait().and_then(|mapped| told.map(|()| mapped));
        match mapped.map_err(Refusal::Halfway)?.success() {
            true => Ok(()),
            false => Err(Refusal::Halfway(io::Error::other(
                "newuidmap or newgidmap failed for the numbers of /etc/subuid and /etc/subgid",
            ))),
        }
    }
}

/// The first range that a file gives to a user, who is named or numbered in it.
fn of(text: &str, user: Uid) -> Option<(u32, u32)> {
    let name = User::from_uid(user).ok().flatten().map(|user| user.name);
    text.lines().find_map(|line| {
        let mut parts = line.split(':');
        let whose = parts.next()?;
        let his = name.as_deref() == Some(whose) || whose == user.to_string();
        let range = (parts.next()?.parse().ok()?, parts.next()?.trim().parse().ok()?);
        (his && range.1 > 0).then_some(range)
    })
}

/// Maps the users of a process that has just made its namespace, from outside of it. The arguments are the process and
/// the numbers of its range.
pub fn map(arguments: &[String]) -> ExitCode {
    let [process, user, users, user_count, group, groups, group_count] = arguments else {
        return ExitCode::from(2);
    };
    if io::stdin().read_exact(&mut [0; 1]).is_err() {
        return ExitCode::FAILURE;
    }
    let run = |program: &str, numbers: [&String; 3]| {
        let [own, first, count] = numbers.map(String::as_str);
        let status = Command::new(program)
            .arg(process)
            .args(["0", own, "1", "1", first, count])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    };
    match run("newuidmap", [user, users, user_count]) && run("newgidmap", [group, groups, group_count]) {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_found_by_name_or_by_number() {
        let text = "somebody:1:2\n4242424:100000:65536\nroot:200000:65536\n4242424:7:7\n";
        assert_eq!(of(text, Uid::from_raw(4_242_424)), Some((100_000, 65536)));
        assert_eq!(of(text, Uid::from_raw(0)), Some((200_000, 65536)));
        assert_eq!(of(text, Uid::from_raw(4_242_425)), None);
    }
}
