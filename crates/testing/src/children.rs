//! Programs that a test runs beside itself, and that never outlive it.
//!
//! A test may be killed at any point, so a destructor is not enough: each child asks the kernel for a
//! signal when its parent thread ends (`setpriv --pdeathsig`), and one thread, which lives as long as the
//! process, starts them all. Without that thread a child would die with whichever worker started it.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

/// A running program; dropping it ends it.
#[derive(Debug)]
pub struct Process {
    child: Child,
    log: PathBuf,
}

/// What to run, and where its output goes.
pub struct Program {
    /// The program.
    pub path: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// What its environment has besides ours.
    pub environment: Vec<(OsString, OsString)>,
    /// The file that its output goes to.
    pub log: PathBuf,
}

impl Process {
    /// Starts the program; its output goes to the log file.
    pub fn start(program: Program) -> io::Result<Process> {
        let (answer, started) = channel();
        let log = program.log.clone();
        let request = Request { program, answer };
        keeper()
            .send(request)
            .map_err(|_| io::Error::other("the thread that starts programs is gone"))?;
        let child = started
            .recv()
            .map_err(|_| io::Error::other("the thread that starts programs is gone"))??;
        Ok(Process { child, log })
    }

    /// Its process number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it still runs; if not, how it ended.
    pub fn check(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(format!("ended with {status}: {}", self.last_words())),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The end of its output.
    pub fn last_words(&self) -> String {
        last_lines(&self.log, 12)
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        // It may have ended by itself; either way it is gone and waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

struct Request {
    program: Program,
    answer: Sender<io::Result<Child>>,
}

fn keeper() -> &'static Sender<Request> {
    static KEEPER: OnceLock<Sender<Request>> = OnceLock::new();
    KEEPER.get_or_init(|| {
        let (requests, inbox) = channel::<Request>();
        std::thread::spawn(move || {
            for request in inbox {
                // The asker may be gone; the child then ends when its handle is dropped here.
                let _ = request.answer.send(spawn(&request.program));
            }
        });
        requests
    })
}

fn spawn(program: &Program) -> io::Result<Child> {
    let log = File::create(&program.log)?;
    Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "--"])
        .arg(&program.path)
        .args(&program.arguments)
        .envs(program.environment.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

fn last_lines(path: &Path, count: usize) -> String {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
