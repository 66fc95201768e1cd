//! The holder of namespaces: a process that does nothing but keep them alive.
//!
//! Namespaces end with their last process, so a pod's live exactly as long as its holder, and taking a sandbox down
//! is one kill. The same wait is the whole program of the `pause` image.

use super::entry::VERB;
use nix::sched::{CloneFlags, unshare};
use std::io::{Read, Write};
use std::process::{Command, ExitCode, Stdio};

/// Makes the namespaces named in the first argument, takes the host name in the third, says `ok`, and waits. The second
/// is the folder of its cluster, for people who look for what belongs to it.
pub fn main(arguments: &[String]) -> ExitCode {
    let mut flags = CloneFlags::empty();
    for name in arguments.first().map(String::as_str).unwrap_or_default().split(',') {
        flags |= match name {
            "net" => CloneFlags::CLONE_NEWNET,
            "ipc" => CloneFlags::CLONE_NEWIPC,
            "uts" => CloneFlags::CLONE_NEWUTS,
            "pid" => CloneFlags::CLONE_NEWPID,
            _ => CloneFlags::empty(),
        };
    }
    let _ = nix::unistd::setsid();
    if unshare(flags).is_err() {
        return ExitCode::FAILURE;
    }
    // A PID namespace lives as long as its first process, which is of this process's group and goes with it.
    let first = flags.contains(CloneFlags::CLONE_NEWPID).then(|| {
        Command::new("/proc/self/exe")
            .args([VERB, "reap"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
    });
    if matches!(first, Some(Err(_))) {
        return ExitCode::FAILURE;
    }
    if let Some(name) = arguments.get(2)
        && nix::unistd::sethostname(name).is_err()
    {
        return ExitCode::FAILURE;
    }
    let mut out = std::io::stdout();
    if writeln!(out, "ok").and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    if !is_let_go(&mut std::io::stdin()) {
        // The first process of a PID namespace goes with the group.
        let own = nix::unistd::getpid();
        if nix::unistd::getpgrp() == own {
            let _ = nix::sys::signal::killpg(own, nix::sys::signal::Signal::SIGKILL);
        }
        return ExitCode::FAILURE;
    }
    pause()
}

/// Waits until the agent has written this process down, and says so by one byte, or ends before it could.
fn is_let_go(leash: &mut impl Read) -> bool {
    leash.read_exact(&mut [0; 1]).is_ok()
}

/// Waits for a signal to end.
pub fn pause() -> ExitCode {
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    if set.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    match set.wait() {
        Ok(_) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The first process of a PID namespace that containers share: takes the exit codes of those who have no parent left.
pub fn reap() -> ExitCode {
    use nix::sys::signal::{SigSet, Signal};
    use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
    let mut set = SigSet::empty();
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGCHLD] {
        set.add(signal);
    }
    if set.thread_block().is_err() {
        return ExitCode::FAILURE;
    }
    loop {
        match set.wait() {
            Ok(Signal::SIGCHLD) => {
                while let Ok(status) = waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                    if status == WaitStatus::StillAlive {
                        break;
                    }
                }
            }
            Ok(_) => return ExitCode::SUCCESS,
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
