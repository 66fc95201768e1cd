//! `cargo xtask schemas`: Kubernetes' published API description as the compact data that the API server embeds.
//!
//! The sources are the Go modules that `tools/kubernetes` pins, so a new Kubernetes release is a new pin
//! and one run of this chore. The data is kept in the tree: building Stead needs no Go.

mod documents;
mod gotypes;
mod messages;
mod modules;
mod openapi;
mod protos;
mod resources;

use anyhow::{Context, Result};
use flate2::{Compression, write::DeflateEncoder};
use serde::Serialize;
use std::io::Write;
use std::path::Path;

/// Where the API server embeds its data from.
const DATA: &str = "crates/apiserver/data";

/// Reads the published description and writes the data.
pub fn run() -> Result<()> {
    let kubernetes = modules::locate("k8s.io/kubernetes")?;
    let published = kubernetes.folder.join("api");
    let groups = resources::read(&published.join("discovery"))?;
    let files = openapi::read(&published.join("openapi-spec/v3"), &groups)?;
    let api = openapi::convert(&files, groups, kubernetes.version)?;
    write("api.bin", &deflate(&encode(&api)?)?)?;
    write("documents.bin", &encode(&documents::cut(&files)?)?)?;
    write("messages.bin", &deflate(&encode(&messages::read()?)?)?)?;
    Ok(())
}

fn write(name: &str, bytes: &[u8]) -> Result<()> {
    let path = Path::new(DATA).join(name);
    std::fs::create_dir_all(DATA).context("creating the data folder")?;
    std::fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
    println!("{}: {} bytes", path.display(), bytes.len());
    Ok(())
}

fn encode(value: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).context("encoding")
}

fn deflate(bytes: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes)?;
    Ok(encoder.finish()?)
}
