//! The tests that kube's client has for a cluster, built from its sources as they were published.
//!
//! Publishing takes the dependency on `kube` itself out of the manifest, which one of the tests uses; it is put back.
//! The sources stay as they are. Versions of everything else are those of our own lock file.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the tests of a cluster need; those of a kubelet's fixed port are left out.
const FEATURES: &str = "client,config,rustls-tls,ring,ws,jsonpatch,unstable-client";

/// What a package needs to be one of its own inside our tree, and to use `kube` as its sources do.
const MANIFEST: &str = "
[dev-dependencies.kube]
version = \"5\"
default-features = false
features = [\"client\", \"ring\"]

[workspace]
";

/// Builds the tests into `ecosystems/kube-client-tests` of the target directory.
pub fn build(target: &Path) -> Result<()> {
    let place = target.join("ecosystems");
    let (sources, tests) = (place.join("kube-client"), place.join("kube-client-tests"));
    let published = published()?;
    let marker = place.join("kube-client-version");
    if tests.exists() && fs::read_to_string(&marker).is_ok_and(|built| Path::new(&built) == published) {
        return Ok(());
    }
    if sources.exists() {
        fs::remove_dir_all(&sources)?;
    }
    copy(&published, &sources)?;
    let manifest = sources.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    fs::write(&manifest, text + MANIFEST)?;
    fs::copy("Cargo.lock", sources.join("Cargo.lock"))?;
    fs::copy(compiled(&manifest, &place.join("build"))?, &tests)?;
    fs::write(marker, published.as_os_str().as_encoded_bytes())?;
    Ok(())
}

/// Where cargo keeps the sources of the client that we use.
fn published() -> Result<PathBuf> {
    let output = cargo().args(["metadata", "--format-version", "1"]).output()?;
    if !output.status.success() {
        bail!("cargo metadata: {}", output.status);
    }
    let metadata: Value = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let client = packages.into_iter().find(|package| package["name"] == "kube-client");
    let manifest = client.and_then(|client| client["manifest_path"].as_str());
    let folder = manifest.and_then(|manifest| Path::new(manifest).parent());
    Ok(folder
        .context("kube-client is not among the dependencies")?
        .to_path_buf())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => {
                fs::copy(entry.path(), target)?;
            }
        }
    }
    Ok(())
}

/// Compiles the tests, and tells where cargo put them.
fn compiled(manifest: &Path, target: &Path) -> Result<PathBuf> {
    let output = cargo()
        .args(["test", "--quiet", "--lib", "--no-run", "--message-format", "json"])
        .args(["--features", FEATURES])
        .arg("--manifest-path")
        .arg(manifest)
        .env("CARGO_TARGET_DIR", target)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !output.status.success() {
        bail!("cargo test of kube-client: {}", output.status);
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let mut programs = text.lines().filter_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        message["executable"].as_str().map(PathBuf::from)
    });
    programs.next_back().context("cargo built no tests of kube-client")
}

fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}
