//! The `stead` binary.
//!
//! Everything that it can do is a module of [`commands`]; what people and scripts see of it is described
//! there and nowhere else.

mod commands;
mod failure;
mod places;
mod terminal;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run(std::env::args_os())
}
