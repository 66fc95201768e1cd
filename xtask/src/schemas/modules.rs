//! Where the pinned Go modules lie on this machine.

use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::path::PathBuf;
use std::process::Command;

/// A Go module in the module cache.
pub struct Module {
    pub version: String,
    pub folder: PathBuf,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "Version", default)]
    version: String,
    #[serde(rename = "Dir", default)]
    folder: PathBuf,
    #[serde(rename = "Replace")]
    replace: Option<Box<Listed>>,
}

/// Finds a module that `tools/kubernetes` depends on.
pub fn locate(name: &str) -> Result<Module> {
    let output = Command::new("go")
        .args(["list", "-m", "-json", name])
        .current_dir("tools/kubernetes")
        .output()
        .context("running `go list`; the schemas are read from Go modules, so Go must be installed")?;
    if !output.status.success() {
        bail!(
            "go list -m {name} failed; `go mod download` in tools/kubernetes fetches it: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let listed: Listed = serde_json::from_slice(&output.stdout).context("reading the answer of go list")?;
    let listed = listed
        .replace
        .map_or_else(|| (listed.version, listed.folder), |r| (r.version, r.folder));
    let (version, folder) = listed;
    if !folder.is_dir() {
        bail!("{name} {version} is not in the module cache; run `go mod download` in tools/kubernetes");
    }
    Ok(Module { version, folder })
}
