//! The embedded cluster that is judged: started from our binary, ended with the value.

use super::Runtime;
use anyhow::{Context, Result, bail};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long a cluster may take to end its pods before it is killed.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Between two looks at a cluster that is ending.
const GLANCE: Duration = Duration::from_millis(50);

/// A running `stead up`.
pub struct Cluster {
    pub kubeconfig: PathBuf,
    process: Child,
}

/// Where a run leaves its logs, its reports and the audit log: under `target`, for a look afterwards.
pub fn folder() -> Result<PathBuf> {
    let folder = std::env::current_dir()?.join("target/conformance");
    std::fs::create_dir_all(&folder).with_context(|| format!("making {}", folder.display()))?;
    Ok(folder)
}

/// Starts two nodes without operators: upstream's tests want an empty cluster.
pub fn start(program: Option<PathBuf>, runtime: Runtime, folder: &Path) -> Result<Cluster> {
    let program = match program {
        Some(program) => program,
        None => build()?,
    };
    let audit = folder.join("audit.log");
    // The log grows at its end, and this one is about this run.
    let _ = std::fs::remove_file(&audit);
    let mut process = Command::new(program)
        .args([
            "up",
            "--ephemeral",
            "--parts",
            "api,controllers,scheduler,nodes",
            "--nodes",
            "2",
        ])
        .args(["--runtime", runtime.flag()])
        .arg("--audit-log")
        .arg(&audit)
        .stdout(Stdio::piped())
        .stderr(File::create(folder.join("stead.log"))?)
        .spawn()
        .context("starting stead")?;
    let lines = BufReader::new(process.stdout.take().context("its output is a pipe")?).lines();
    let kubeconfig = lines
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("ready ").map(PathBuf::from));
    let Some(kubeconfig) = kubeconfig else {
        let _ = process.kill();
        let _ = process.wait();
        bail!(
            "stead ended before it was ready; see {}",
            folder.join("stead.log").display()
        );
    };
    Ok(Cluster { kubeconfig, process })
}

fn build() -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // With `--workspace`, as the tests are built, so that nothing is compiled twice.
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "stead"])
        .status()?;
    if !built.success() {
        bail!("the build of stead failed");
    }
    let target = std::env::var("CARGO_TARGET_DIR").unwrap_or_else(|_| "target".to_string());
    Ok(Path::new(&target).join("debug/stead"))
}

impl Runtime {
    fn flag(self) -> &'static str {
        match self {
            Runtime::Process => "process",
            Runtime::Hollow => "hollow",
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Asked to end first: a cluster that is killed leaves the processes of its pods behind.
        let _ = Command::new("kill").arg(self.process.id().to_string()).status();
        let deadline = Instant::now() + END_LIMIT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(GLANCE);
        }
        // It may have ended by itself; either way it is gone and waited for.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
