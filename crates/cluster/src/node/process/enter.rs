//! Runs a command inside a running container: `exec`, exec probes and exec hooks.
//!
//! `enter PID SPEC -- COMMAND...`: joins the namespaces of the container's first process and takes the
//! environment, directory and user that the container was started with.

use super::spec::{RunSpec, load};
use nix::sched::{CloneFlags, setns};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitCode};

/// Runs the command and ends with its exit code.
pub fn main(arguments: &[String]) -> ExitCode {
    match run(arguments) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot run the command in the container: {error}");
            ExitCode::from(126)
        }
    }
}

fn run(arguments: &[String]) -> io::Result<u8> {
    let [pid, spec, command @ ..] = arguments else {
        return Err(io::Error::other("not enough arguments"));
    };
    let spec: RunSpec = load(Path::new(spec)).ok_or_else(|| io::Error::other("the container's record is gone"))?;
    let (name, rest) = command.split_first().ok_or_else(|| io::Error::other("no command"))?;
    if spec.inside.is_some() {
        // All are opened before any is joined: afterwards /proc is the container's.
        let spaces = [
            ("ipc", CloneFlags::CLONE_NEWIPC),
            ("uts", CloneFlags::CLONE_NEWUTS),
            ("net", CloneFlags::CLONE_NEWNET),
            ("pid", CloneFlags::CLONE_NEWPID),
            ("mnt", CloneFlags::CLONE_NEWNS),
        ];
        let mut opened = Vec::new();
        for (name, flag) in spaces {
            opened.push((File::open(format!("/proc/{pid}/ns/{name}"))?, flag));
        }
        for (file, flag) in opened {
            setns(file, flag)?;
        }
    }
    let mut child = Command::new(name);
    child
        .args(rest)
        .env_clear()
        .envs(spec.env.iter().map(|(name, value)| (name, value)));
    child.current_dir(&spec.directory);
    if let Some(group) = spec.group {
        child.gid(group);
    }
    if let Some(user) = spec.user {
        child.uid(user);
    }
    // A child, not this process: joining a PID namespace counts for children only.
    let status = match child.status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let _ = writeln!(io::stderr(), "exec: \"{name}\": executable file not found in $PATH");
            return Ok(127);
        }
        status => status?,
    };
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(255);
    Ok(u8::try_from(code).unwrap_or(255))
}
