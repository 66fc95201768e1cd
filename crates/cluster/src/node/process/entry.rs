//! The hidden side of the binary: what it does when it is started as part of a container.
//!
//! `stead run-container NAME ...` is never typed by people. The shim, the first process of a container, the holder
//! of a pod's namespaces and the built-in images are this one binary, so that nothing has to be installed.

use super::{agnhost, enter, hello, hold, root, shim, shims, users};
use jiff::Timestamp;
use std::process::ExitCode;

/// The first argument that leads here.
pub const VERB: &str = "run-container";

/// Runs one of the hidden programs. `arguments` follow the verb.
pub fn main(arguments: &[String], now: fn() -> Timestamp) -> ExitCode {
    let Some((program, rest)) = arguments.split_first() else {
        return ExitCode::from(2);
    };
    match program.as_str() {
        "shim" => shim::main(rest, now),
        "spare" => shims::main(now),
        "hold" => hold::main(rest),
        "enter" => enter::main(rest),
        "lead" => enter::lead(rest),
        "hello" => hello::main(),
        "pause" => hold::pause(),
        "reap" => hold::reap(),
        "map-users" => users::range::map(rest),
        "look" => root::mounts::look(),
        "try-namespaces" => users::try_namespaces(rest),
        "agnhost" => agnhost::main(rest),
        _ => ExitCode::from(2),
    }
}
