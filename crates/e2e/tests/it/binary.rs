//! The `stead` binary and kubectl as child processes.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use stead_test::kubernetes::{Kubernetes, Parts, StartError};
use stead_test::skip::skipped;
use stead_test::tools::Tool;
use tempfile::TempDir;

/// Nothing here takes this long unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// How long a cluster may take to end when its story is over.
const GRACE: Duration = Duration::from_secs(20);

/// The binary: `STEAD_BIN`, else the one built beside this test.
pub fn stead() -> Option<PathBuf> {
    let path = match std::env::var_os("STEAD_BIN") {
        Some(path) => PathBuf::from(path),
        None => {
            let test = std::env::current_exe().expect("this test has a path");
            let target = test
                .parent()
                .and_then(Path::parent)
                .expect("tests are in target/PROFILE/deps");
            target.join("stead")
        }
    };
    if !path.exists() {
        skipped(format_args!(
            "no stead binary at {}; `cargo build --workspace --bin stead` builds it",
            path.display()
        ));
        return None;
    }
    Some(path)
}

/// kubectl: `STEAD_KUBECTL`, else ours, else one on the PATH that is new enough.
pub fn kubectl() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("STEAD_KUBECTL") {
        return Some(path.into());
    }
    let missing = match Tool::Kubectl.find() {
        Ok(path) => return Some(path),
        Err(missing) => missing,
    };
    let version = Command::new("kubectl")
        .args(["version", "--client", "-o", "json"])
        .output()
        .ok();
    let minor = version.and_then(|output| {
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
        let minor = json["clientVersion"]["minor"].as_str()?;
        minor.trim_end_matches('+').parse::<u32>().ok()
    });
    if minor.is_some_and(|minor| minor >= 32) {
        return Some("kubectl".into());
    }
    skipped(missing);
    None
}

/// Where the stories run that are the same on both: `embedded` (the default) or `kubernetes`.
const ON: &str = "STEAD_E2E_ON";

/// A running cluster: a `stead up` that has printed that it is ready, or the real control plane.
pub struct Up {
    behind: Behind,
    pub place: TempDir,
    pub kubeconfig: PathBuf,
    pub server: String,
}

/// What the cluster is.
enum Behind {
    Stead { child: Child, lines: Receiver<String> },
    Kubernetes { _ends_with_it: Kubernetes },
}

impl Up {
    /// Starts a cluster with these arguments and waits until it serves. `None` without a binary.
    pub fn start(arguments: &[&str]) -> Option<Up> {
        Self::start_in(tempfile::tempdir().expect("a directory"), arguments)
    }

    /// An API server for a story that is the same on both: ours, or the real one where `STEAD_E2E_ON` says so.
    pub fn either() -> Option<Up> {
        Self::either_with(Parts::Api)
    }

    /// The same with these parts of the control plane.
    pub fn either_with(parts: Parts) -> Option<Up> {
        match (Self::asks_for_kubernetes(), parts) {
            (true, parts) => Self::kubernetes(parts),
            (false, Parts::Api) => Self::start(&["--ephemeral"]),
            (false, Parts::All) => Self::whole(&["--ephemeral", "--parts", "api,controllers,scheduler"]),
        }
    }

    /// Whether `STEAD_E2E_ON` asks for the real API server.
    pub fn asks_for_kubernetes() -> bool {
        match std::env::var(ON).as_deref() {
            Ok("kubernetes") => true,
            Ok("embedded") | Err(_) => false,
            Ok(other) => panic!("{ON}={other}: it is `embedded` or `kubernetes`"),
        }
    }

    fn kubernetes(parts: Parts) -> Option<Up> {
        // A story that is asynchronous itself cannot wait for another runtime on its own thread.
        let starting = std::thread::spawn(move || {
            let runtime = tokio::runtime::Runtime::new().expect("a runtime");
            runtime.block_on(Kubernetes::start(parts))
        });
        match starting.join().expect("it does not panic") {
            Ok(cluster) => Some(Up {
                place: tempfile::tempdir().expect("a directory"),
                kubeconfig: cluster.kubeconfig(),
                server: cluster.server().to_string(),
                behind: Behind::Kubernetes { _ends_with_it: cluster },
            }),
            Err(StartError::Missing(missing)) => {
                skipped(format_args!("no real Kubernetes: {missing}"));
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether the cluster is ours.
    pub fn is_embedded(&self) -> bool {
        matches!(self.behind, Behind::Stead { .. })
    }

    pub fn start_in(place: TempDir, arguments: &[&str]) -> Option<Up> {
        Self::launch(place, &[&["--parts", "api"], arguments].concat())
    }

    /// The same with every part.
    pub fn whole(arguments: &[&str]) -> Option<Up> {
        Self::launch(tempfile::tempdir().expect("a directory"), arguments)
    }

    /// The same in a place that exists.
    pub fn whole_in(place: TempDir, arguments: &[&str]) -> Option<Up> {
        Self::launch(place, arguments)
    }

    /// The next line that it prints.
    pub fn next_line(&self) -> String {
        self.program().1.recv_timeout(PATIENCE).expect("another line")
    }

    fn launch(place: TempDir, arguments: &[&str]) -> Option<Up> {
        let program = command(&stead()?, place.path());
        Some(Self::whole_by(program, place, arguments))
    }

    /// The same by a command that runs the program, as somebody else or elsewhere.
    pub fn whole_by(mut program: Command, place: TempDir, arguments: &[&str]) -> Up {
        let mut child = program
            .args(["up", "--output", "json"])
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the binary starts");
        let output = child.stdout.take().expect("a pipe");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let line = lines.recv_timeout(PATIENCE).expect("a line when it is ready");
        let ready: serde_json::Value = serde_json::from_str(&line).expect("one JSON object a line");
        assert_eq!(ready["event"], "ready");
        let text = |field: &str| ready[field].as_str().expect("a string").to_string();
        Up {
            kubeconfig: text("kubeconfig").into(),
            server: text("server"),
            behind: Behind::Stead { child, lines },
            place,
        }
    }

    /// The program, and the lines that it prints.
    fn program(&self) -> (&Child, &Receiver<String>) {
        match &self.behind {
            Behind::Stead { child, lines } => (child, lines),
            Behind::Kubernetes { .. } => panic!("this story is about our own program"),
        }
    }

    /// Sends a signal, and gives the exit code and what else was printed.
    pub fn stop(mut self, signal: Signal) -> (Option<i32>, Vec<String>, TempDir) {
        self.signal(signal);
        let deadline = Instant::now() + PATIENCE;
        let Behind::Stead { child, lines } = &mut self.behind else {
            panic!("this story is about our own program");
        };
        let status = loop {
            match child.try_wait().expect("a child") {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("it does not end"),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        let rest = lines.iter().collect();
        let place = std::mem::replace(&mut self.place, tempfile::tempdir().expect("a directory"));
        (status.code(), rest, place)
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.pid().try_into().expect("a process number"));
        kill(pid, signal).expect("the process is there");
    }

    pub fn pid(&self) -> u32 {
        self.program().0.id()
    }

    /// Runs kubectl against the cluster.
    pub fn kubectl(&self, arguments: &[&str]) -> Command {
        let program = kubectl().expect("the story asked for kubectl before");
        let mut command = command(&program, self.place.path());
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        command
    }

    /// Runs kubectl, which has to succeed, and gives what it printed.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> String {
        succeeded(&mut self.kubectl(arguments))
    }

    /// Runs kubectl, which has to fail, and gives its complaint.
    #[track_caller]
    pub fn refused(&self, arguments: &[&str]) -> String {
        let output = self.kubectl(arguments).output().expect("kubectl starts");
        assert!(
            !output.status.success(),
            "{arguments:?} should fail: {}",
            shown(&output)
        );
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Applies a manifest given as text.
    #[track_caller]
    pub fn apply(&self, manifest: &str) -> String {
        let file = self.file("manifest.yaml", manifest);
        self.run(&["apply", "-f", &file])
    }

    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.place.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        let Behind::Stead { child, .. } = &mut self.behind else {
            return;
        };
        // Politely: a cluster that is killed leaves its pods behind, and who would end them?
        if let Ok(pid) = child.id().try_into() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let deadline = Instant::now() + GRACE;
        while Instant::now() < deadline {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        // Pods outlive the process that started them; nothing of a story may outlive the story.
        if let Some(program) = stead() {
            let _ = command(&program, self.place.path()).arg("down").output();
        }
    }
}

/// A program that sees nothing of the user's own files.
pub fn command(program: &Path, home: &Path) -> Command {
    let mut command = Command::new(program);
    command
        .env("HOME", home)
        .env("XDG_DATA_HOME", home.join("share"))
        .env("XDG_RUNTIME_DIR", home)
        .env_remove("KUBECONFIG");
    command
}

#[track_caller]
pub fn succeeded(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", shown(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Reads lines from a child's pipe until one satisfies.
pub fn line_that(reader: &mut impl BufRead, wanted: impl Fn(&str) -> bool) -> Option<String> {
    let mut line = String::new();
    while reader.read_line(&mut line).ok()? > 0 {
        if wanted(&line) {
            return Some(line);
        }
        line.clear();
    }
    None
}

/// Everything that is left in a pipe.
pub fn rest(mut reader: impl Read) -> String {
    let mut text = String::new();
    let _ = reader.read_to_string(&mut text);
    text
}

/// Looks again and again until `look` gives a value, and fails with its last complaint.
#[track_caller]
pub fn eventually<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<T, String>) -> T {
    let deadline = Instant::now() + limit;
    loop {
        match look() {
            Ok(value) => return value,
            Err(last) if Instant::now() > deadline => panic!("{what}: not within {limit:?}; last seen: {last}"),
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

/// What a server answers to a GET; empty if it does not.
pub fn http(address: &str, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let _ = write!(
            stream,
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
        );
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}
