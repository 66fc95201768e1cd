//! The `stead` binary.
//!
//! Everything that it can do is a module of [`commands`], which describes what people and scripts see of it.

mod commands;
mod failure;
mod home;
mod places;
mod terminal;

use std::process::ExitCode;

use mimalloc::MiMalloc;
use stead_cluster::node::process::entry;

/// Objects are trees of small pieces: with the system's allocator that is a fifth of the server's time.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    // Pods are run by this same binary, under a name that no person types.
    if std::env::args_os().nth(1).is_some_and(|verb| verb == entry::VERB) {
        let arguments: Vec<String> = std::env::args_os()
            .skip(2)
            .map(|argument| argument.to_string_lossy().into_owned())
            .collect();
        return entry::main(&arguments, jiff::Timestamp::now);
    }
    commands::run(std::env::args_os())
}
