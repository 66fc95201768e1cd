//! The definitions of our custom resources against those of the last release.
//!
//! `manifests/released/crds.yaml` is a copy of `manifests/crds.yaml` as it was released; from 0.1.0 on a release
//! replaces it, and nothing else does. That `manifests/crds.yaml` is what the code prints is a test of the binary.

use anyhow::{Context, Result, bail};
use serde_json::Value;
use stead_machinery::compatibility::breakages;

const RELEASED: &str = "manifests/released/crds.yaml";
const CURRENT: &str = "manifests/crds.yaml";

/// Fails when a definition is gone, or accepts or keeps less than the released one did.
pub fn run() -> Result<()> {
    let (released, current) = (read(RELEASED)?, read(CURRENT)?);
    let mut broken = Vec::new();
    for old in &released {
        let name = &old["metadata"]["name"];
        match current.iter().find(|new| new["metadata"]["name"] == *name) {
            None => broken.push(format!("{name}: the definition is gone")),
            Some(new) => broken.extend(breakages(old, new).into_iter().map(|line| format!("{name}: {line}"))),
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    for line in &broken {
        eprintln!("{line}");
    }
    bail!(
        "{} changes against {RELEASED} break what users have: add a new field or version instead",
        broken.len()
    )
}

fn read(path: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let documents = text.split("---\n").filter(|document| !document.trim().is_empty());
    let parsed: Result<Vec<Value>, _> = documents.map(serde_saphyr::from_str).collect();
    let parsed = parsed.with_context(|| format!("reading {path}"))?;
    match parsed.is_empty() {
        true => bail!("{path} has no definitions"),
        false => Ok(parsed),
    }
}
