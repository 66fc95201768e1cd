//! The holder of namespaces: a process that does nothing but keep them alive.
//!
//! Namespaces end with their last process, so a pod's live exactly as long as its holder, and taking a sandbox down
//! is one kill. The same wait is the whole program of the `pause` image.

use nix::sched::{CloneFlags, unshare};
use std::io::Write;
use std::process::ExitCode;

/// Makes the namespaces named in the first argument, takes the host name in the second, says `ok`, and waits.
pub fn main(arguments: &[String]) -> ExitCode {
    let mut flags = CloneFlags::empty();
    for name in arguments.first().map(String::as_str).unwrap_or_default().split(',') {
        flags |= match name {
            "net" => CloneFlags::CLONE_NEWNET,
            "ipc" => CloneFlags::CLONE_NEWIPC,
            "uts" => CloneFlags::CLONE_NEWUTS,
            _ => CloneFlags::empty(),
        };
    }
    let _ = nix::unistd::setsid();
    if unshare(flags).is_err() {
        return ExitCode::FAILURE;
    }
    if let Some(name) = arguments.get(1)
        && nix::unistd::sethostname(name).is_err()
    {
        return ExitCode::FAILURE;
    }
    let mut out = std::io::stdout();
    if writeln!(out, "ok").and_then(|()| out.flush()).is_err() {
        return ExitCode::FAILURE;
    }
    pause()
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
