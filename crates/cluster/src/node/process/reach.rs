//! Reaching into running containers: commands inside them, and their own input and output.

use super::{Process, attach, entry};
use std::io;
use std::path::PathBuf;
use std::process::{Output, Stdio};
use tokio::process::Command;

/// What a command inside a container has for input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Plain,
    /// Its standard input is a terminal, which it is to have as its own.
    Terminal,
}

impl Mode {
    /// The word that tells `enter`.
    fn word(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Terminal => "terminal",
        }
    }
}

impl Process {
    /// A command that runs inside a container.
    pub fn command(&self, uid: &str, container: &str, argv: &[String], mode: Mode) -> io::Result<Command> {
        let (pid, spec) = self.current(uid, container)?;
        let mut command = Command::new(&self.catalogue.own);
        command
            .args([entry::VERB, "enter", &pid.to_string()])
            .arg(spec)
            .arg(mode.word())
            .args(argv);
        command.kill_on_drop(true);
        Ok(command)
    }

    /// Runs a command inside a container to its end.
    pub async fn output(&self, uid: &str, container: &str, argv: &[String]) -> io::Result<Output> {
        let mut command = self.command(uid, container, argv, Mode::Plain)?;
        command.stdin(Stdio::null()).output().await
    }

    /// Joins the program of a container.
    pub async fn attach(&self, uid: &str, container: &str) -> io::Result<attach::Joined> {
        let (_, spec) = self.current(uid, container)?;
        attach::join(&attach::socket(&spec)).await
    }

    /// The first process of a container that runs, and the file that says how it was started.
    fn current(&self, uid: &str, container: &str) -> io::Result<(i32, PathBuf)> {
        let runs = self.runs.lock();
        let run = runs
            .get(&(uid.to_owned(), container.to_owned()))
            .filter(|run| run.started.main.is_alive())
            .ok_or_else(|| io::Error::other(format!("container {container} is not running")))?;
        Ok((run.started.main.pid, run.spec.clone()))
    }
}
