//! The Dockerfile's own build steps, as far as they need no container engine, and a check of what comes of them.

use anyhow::{Context, Result, bail};
use std::path::Path;
use std::process::Command;

const FILE: &str = "Dockerfile";
/// What the image is built with is `release`; the same steps cost minutes less so.
const PROFILE: &str = "dev";
/// Where cargo puts what it builds with that profile.
const BINARY: &str = "target/debug/stead";
const CARGO: &str = "RUN cargo ";

/// Runs the cargo lines of the Dockerfile and checks that a static binary and an image for nobody come of it.
pub fn run() -> Result<()> {
    let text = std::fs::read_to_string(FILE).with_context(|| format!("reading {FILE}"))?;
    check_final_stage(&text)?;
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(CARGO)).collect();
    if lines.is_empty() {
        bail!("{FILE} builds nothing with cargo");
    }
    for line in lines {
        let line = line.replace("${PROFILE}", PROFILE);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(line.split_whitespace())
            .status()
            .context("running cargo")?;
        if !status.success() {
            bail!("cargo {line}: {status}");
        }
    }
    let bytes = std::fs::read(Path::new(BINARY)).with_context(|| format!("reading {BINARY}"))?;
    match interpreter(&bytes)? {
        false => Ok(()),
        true => bail!("{BINARY} needs a dynamic loader, which an image from scratch does not have"),
    }
}

/// The image holds nothing but what is copied, and runs as a user that is not root.
fn check_final_stage(text: &str) -> Result<()> {
    let last = text.rsplit("\nFROM ").next().unwrap_or_default();
    if !last.starts_with("scratch") {
        bail!("{FILE}: the image is not built from scratch");
    }
    let user = last.lines().find_map(|line| line.strip_prefix("USER "));
    let number = user.and_then(|user| user.split(':').next()?.parse::<u32>().ok());
    if number.is_none_or(|number| number == 0) {
        bail!("{FILE}: USER must be a number that is not 0, which `runAsNonRoot` can check");
    }
    Ok(())
}

/// Whether an ELF file asks for a dynamic loader.
fn interpreter(bytes: &[u8]) -> Result<bool> {
    const PT_INTERP: u32 = 3;
    let number = |at: usize, length: usize| -> Result<u64> {
        let field = bytes.get(at..at + length).context("the file ends too early")?;
        Ok(field.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    if bytes.get(..5) != Some(b"\x7fELF\x02") {
        bail!("not a 64-bit ELF file");
    }
    let (headers, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let at = usize::try_from(headers + index * size).context("a header beyond the file")?;
        if number(at, 4)? == u64::from(PT_INTERP) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_test_is_not_static_and_nonsense_is_refused() {
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(interpreter(&own).unwrap());
        assert!(interpreter(b"\x7fELF\x02").is_err());
        assert!(interpreter(b"#!/bin/sh").is_err());
    }

    #[test]
    fn an_image_that_runs_as_root_is_refused() {
        let file = |user: &str| format!("FROM rust AS build\n\nFROM scratch\nUSER {user}\n");
        assert!(check_final_stage(&file("65532:65532")).is_ok());
        assert!(check_final_stage(&file("0")).is_err());
        assert!(check_final_stage(&file("root")).is_err());
        assert!(check_final_stage("FROM debian\nUSER 1\n").is_err());
    }
}
