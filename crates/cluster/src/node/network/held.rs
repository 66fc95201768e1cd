//! Processes that hold namespaces, on a leash until somebody has written them down.
//!
//! A holder lives on when its agent ends, and is then found by a record. One that has no record yet would be found by
//! nobody: it holds the other end of a pipe, and ends with whoever started it, killed or not, unless it was let go.

use crate::node::process::entry::VERB;
use crate::node::process::spec::ProcessId;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::process::Stdio;
use tokio::io::AsyncReadExt;

/// A process that ends when this is dropped.
#[derive(Debug)]
pub struct Held {
    pub process: ProcessId,
    /// Closed without a byte it means the end.
    leash: File,
}

impl Held {
    /// Lets the process live on by itself, now that a record names it.
    pub fn let_go(mut self) -> io::Result<()> {
        self.leash.write_all(b".")
    }

    /// Ends it now, rather than when it notices.
    pub fn end(self) {
        self.process.kill_group();
    }
}

/// Starts a process that holds new namespaces. Its command line names the folder of its cluster.
pub async fn hold(own: &Path, folder: &Path, spaces: &str, hostname: Option<&str>) -> io::Result<Held> {
    let mut command = tokio::process::Command::new(own);
    command.args([VERB, "hold", spaces]).arg(folder).args(hostname);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut child = command.spawn()?;
    let lost = || io::Error::other("the holder of a namespace has no input and output");
    let leash = child.stdin.take().ok_or_else(lost)?.into_owned_fd()?;
    let mut out = child.stdout.take().ok_or_else(lost)?;
    let mut answer = [0; 3];
    if out.read_exact(&mut answer).await.is_err() {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            "namespaces are not permitted",
        ));
    }
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    // Somebody has to take its exit code, or it stays in the process table.
    tokio::spawn(async move { child.wait().await });
    let process = pid.and_then(ProcessId::of);
    let process = process.ok_or_else(|| io::Error::other("the holder of a namespace ended at once"))?;
    Ok(Held {
        process,
        leash: File::from(leash),
    })
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::process::{Child, Command};

    /// A process that waits, in the place of a holder.
    pub fn sleeper() -> (Child, Held) {
        use std::os::unix::process::CommandExt;
        let child = Command::new("sleep").arg("1000").process_group(0).spawn().unwrap();
        let process = ProcessId::of(i32::try_from(child.id()).unwrap()).unwrap();
        let leash = File::options().write(true).open("/dev/null").unwrap();
        (child, Held { process, leash })
    }
}
