//! Shims that are started before a container needs them.
//!
//! Loading this binary is a large part of what a small container's start takes, and is the same for all of them. So a few
//! shims are loaded when nothing else is going on (see `stock`), and wait on their input for the file that says what to
//! run. Until then they end with this process, however it ends: nobody is left then who holds the other end.

use super::entry::VERB;
use super::{Process, shim};
use crate::node::stock::Stock;
use jiff::Timestamp;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::process::{ExitCode, Stdio};
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// Those that wait.
pub type Shims = Stock<Child>;

/// The longest path that is waited for; the kernel takes no longer ones.
const LONGEST_PATH: u64 = 4096;

impl Process {
    /// Keeps a few shims ready until `stop`; those that are left end then.
    pub async fn keep_shims(&self, stop: &CancellationToken) {
        let make = || std::future::ready(self.start(&["spare".as_ref(), &self.folder], Stdio::piped()));
        self.shims.keep(make, stop).await;
        self.shims.clear();
    }

    /// A shim for what a file says: one that waits, or else a new one.
    pub(super) fn shim(&self, path: &Path) -> io::Result<Child> {
        while let Some(mut spare) = self.shims.take() {
            // One that has ended is no use, and does not read.
            if tell(&mut spare, path).is_ok() {
                return Ok(spare);
            }
        }
        self.start(&["shim".as_ref(), path], Stdio::null())
    }

    /// The command line names the folder of the cluster, for people who look for what belongs to it.
    fn start(&self, arguments: &[&Path], input: Stdio) -> io::Result<Child> {
        let mut command = Command::new(&self.catalogue.own);
        command.arg(VERB).args(arguments);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::null());
        command.spawn()
    }
}

/// Says what to run. It is far less than a pipe holds, so that nobody waits for it to be read.
fn tell(spare: &mut Child, path: &Path) -> io::Result<()> {
    let input = spare.stdin.take().ok_or(io::ErrorKind::BrokenPipe)?;
    let line = [path.as_os_str().as_bytes(), b"\n"].concat();
    File::from(input.into_owned_fd()?).write_all(&line)
}

/// Waits for what to run, and is its shim from then on.
pub fn main(now: fn() -> Timestamp) -> ExitCode {
    // A signal to the agent's terminal is none of its business: it ends with the agent.
    let _ = nix::unistd::setsid();
    match awaited(io::stdin().lock()) {
        Some(path) => shim::run_file(Path::new(&path), now),
        None => ExitCode::SUCCESS,
    }
}

/// The path that somebody sends, or nothing when it was not all of one.
fn awaited(input: impl BufRead) -> Option<std::ffi::OsString> {
    let mut line = Vec::new();
    input.take(LONGEST_PATH).read_until(b'\n', &mut line).ok()?;
    let path = line.strip_suffix(b"\n")?;
    Some(std::ffi::OsString::from_vec(path.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_taken_as_a_whole_or_not_at_all() {
        let heard = |bytes: &[u8]| awaited(bytes).map(|path| path.into_string().expect("text"));
        assert_eq!(heard(b"/pods/a b/0.json\n").as_deref(), Some("/pods/a b/0.json"));
        assert_eq!(heard(b""), None, "the agent has ended");
        assert_eq!(heard(b"/pods/a"), None, "it ended in the middle of a word");
    }

    #[tokio::test]
    async fn a_shim_that_has_ended_is_not_told_anything() {
        let sleeper = |seconds: &str| {
            let mut command = Command::new("sleep");
            command.arg(seconds).stdin(Stdio::piped()).kill_on_drop(true);
            command.spawn().expect("a process")
        };
        let mut alive = sleeper("60");
        assert!(tell(&mut alive, Path::new("/x")).is_ok());
        let mut ended = sleeper("0");
        let input = ended.stdin.take();
        ended.wait().await.expect("an end");
        ended.stdin = input;
        assert!(tell(&mut ended, Path::new("/x")).is_err());
    }
}
