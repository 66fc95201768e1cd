//! Runs a command inside a running container: `exec`, exec probes and exec hooks.
//!
//! `enter PID SPEC MODE COMMAND...`: joins the namespaces of the container's first process and takes the
//! environment, directory and user that the container was started with.

use super::entry::VERB;
use super::furnish::OWN_BINARY;
use super::shim::strange;
use super::spec::{RunSpec, load};
use super::users::{self, Standing, Users};
use super::{cgroups, powers, terminal};
use nix::sched::{CloneFlags, setns};
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
    let [pid, spec, mode, command @ ..] = arguments else {
        return Err(io::Error::other("not enough arguments"));
    };
    let pid = pid.parse().map_err(io::Error::other)?;
    let spec: RunSpec = load(Path::new(spec)).ok_or_else(|| io::Error::other("the container's record is gone"))?;
    let name = command.first().ok_or_else(|| io::Error::other("no command"))?;
    let own = std::env::current_exe()?;
    let own = if spec.inside.is_some() {
        Path::new(OWN_BINARY)
    } else {
        own.as_path()
    };
    // Known now: afterwards this process is not in the /proc that it sees.
    let mut standing = users::standing();
    cgroups::join(&spec.cgroups)?;
    if spec.inside.is_some() {
        // All are opened before any is joined: afterwards /proc is the container's.
        let spaces = [
            ("ipc", CloneFlags::CLONE_NEWIPC),
            ("uts", CloneFlags::CLONE_NEWUTS),
            ("net", CloneFlags::CLONE_NEWNET),
            ("pid", CloneFlags::CLONE_NEWPID),
            ("mnt", CloneFlags::CLONE_NEWNS),
            // Last, for the others are joined with the rights that this process has now.
            ("user", CloneFlags::CLONE_NEWUSER),
        ];
        let mut opened = Vec::new();
        for (name, flag) in spaces {
            opened.extend(strange(pid, name)?.map(|file| (file, flag)));
        }
        if opened.iter().any(|(_, flag)| *flag == CloneFlags::CLONE_NEWUSER) {
            // Such a namespace is for one user: see `users::Becoming`.
            standing = Standing::Mapped(Users::Own);
        }
        for (file, flag) in opened {
            setns(file, flag)?;
        }
    }
    let mut child = match mode.as_str() {
        "terminal" => {
            let mut child = Command::new(own);
            child
                .args([VERB, "lead"])
                .args(command)
                .env_clear()
                .env("TERM", "xterm");
            child
        }
        _ => {
            let mut child = Command::new(name);
            child.args(&command[1..]).env_clear();
            child
        }
    };
    child.envs(spec.env.iter().map(|(name, value)| (name, value)));
    child.current_dir(&spec.directory);
    powers::take(&spec, standing)?;
    // A child, not this process: joining a PID namespace counts for children only.
    let status = match child.status() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(not_found(name)),
        status => status?,
    };
    let code = status
        .code()
        .or_else(|| status.signal().map(|signal| 128 + signal))
        .unwrap_or(255);
    Ok(u8::try_from(code).unwrap_or(255))
}

fn not_found(name: &str) -> u8 {
    let _ = writeln!(io::stderr(), "exec: \"{name}\": executable file not found in $PATH");
    127
}

/// Becomes a command that has the terminal on its input as its own.
pub fn lead(arguments: &[String]) -> ExitCode {
    let Some((name, rest)) = arguments.split_first() else {
        return ExitCode::from(2);
    };
    let error = match terminal::lead() {
        Ok(()) => Command::new(name).args(rest).exec(),
        Err(error) => error,
    };
    if error.kind() == io::ErrorKind::NotFound {
        return ExitCode::from(not_found(name));
    }
    let _ = writeln!(io::stderr(), "cannot run the command: {error}");
    ExitCode::from(126)
}
