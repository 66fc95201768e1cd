//! The `stead` binary.
//!
//! Everything that it can do is a module of [`commands`]; what people and scripts see of it is described
//! there and nowhere else.

mod commands;
mod failure;
mod home;
mod places;
mod terminal;

use std::process::ExitCode;

use stead_cluster::node::process::entry;

fn main() -> ExitCode {
    // Pods are run by this same binary, under a name that no person types.
    let mut arguments = std::env::args();
    if arguments.nth(1).as_deref() == Some(entry::VERB) {
        return entry::main(&arguments.collect::<Vec<_>>(), jiff::Timestamp::now);
    }
    commands::run(std::env::args_os())
}
