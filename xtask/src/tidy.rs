//! The rules of the tree that the compiler cannot check.
//!
//! Each rule prints every place that breaks it, and what to do there. They are checked from the first
//! commit on, because a cap on a file's length is cheap only while no file is over it.

use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Lines of code (blank lines, comments and tests not counted) that a file may have.
const LONGEST_FILE: usize = 400;

/// Which of our crates each crate may depend on, dev-dependencies too. Arrows point down only.
const MAY_USE: &[(&str, &[&str])] = &[
    ("stead-machinery", &[]),
    ("stead-cel", &["stead-machinery"]),
    ("stead-apis", &["stead-machinery"]),
    ("stead-apiserver", &["stead-machinery", "stead-cel"]),
    ("stead", &["stead-machinery"]),
    ("stead-cluster", &["stead", "stead-cel", "stead-machinery"]),
    ("stead-webapp", &["stead", "stead-apis", "stead-machinery"]),
    (
        "stead-test",
        &["stead", "stead-apiserver", "stead-cluster", "stead-machinery"],
    ),
    (
        "stead-cli",
        &[
            "stead",
            "stead-apis",
            "stead-apiserver",
            "stead-cluster",
            "stead-machinery",
            "stead-webapp",
            "stead-test",
        ],
    ),
    (
        "stead-e2e",
        &[
            "stead",
            "stead-apis",
            "stead-apiserver",
            "stead-cluster",
            "stead-machinery",
            "stead-webapp",
            "stead-test",
        ],
    ),
    (
        "stead-examples",
        &["stead", "stead-apis", "stead-machinery", "stead-test", "stead-webapp"],
    ),
    ("xtask", &["stead-machinery", "stead-apis", "stead-cel"]),
];

/// Files that only compute: no async, client, clock or randomness.
const PURE: &[&str] = &["/plan.rs", "/resources/", "/scheduler/filter", "/scheduler/score"];
const IMPURE_WORDS: &[&str] = &[
    "async ",
    ".await",
    "kube::Client",
    "Instant::now",
    "SystemTime",
    "Timestamp::now",
    "rand::",
];

/// Runs every rule and fails with the list of what is broken.
pub fn run() -> Result<()> {
    let mut broken = Vec::new();
    for file in tracked_files()? {
        let path = file.to_string_lossy().replace('\\', "/");
        if path.ends_with("/mod.rs") {
            broken.push(format!("{path}: use `name.rs` beside `name/`, not `mod.rs`"));
        }
        let stem = file.file_stem().and_then(|s| s.to_str()).unwrap_or_default();
        if path.ends_with(".rs") && ["utils", "common", "helpers"].contains(&stem) {
            broken.push(format!("{path}: name the module after what it does"));
        }
        if path.ends_with(".rs") {
            let text = std::fs::read_to_string(&file).with_context(|| format!("reading {path}"))?;
            check_source(&path, &text, &mut broken);
        }
        if path.ends_with("Cargo.toml") && path != "Cargo.toml" {
            let text = std::fs::read_to_string(&file).with_context(|| format!("reading {path}"))?;
            check_arrows(&path, &text, &mut broken);
        }
    }
    if broken.is_empty() {
        return Ok(());
    }
    for line in &broken {
        eprintln!("{line}");
    }
    bail!("{} rules of the tree are broken", broken.len())
}

fn tracked_files() -> Result<Vec<PathBuf>> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .output()
        .context("git ls-files: is this a checkout?")?;
    let listing = String::from_utf8(output.stdout).context("file names must be UTF-8")?;
    Ok(listing
        .lines()
        .map(PathBuf::from)
        .filter(|path| path.exists())
        .collect())
}

fn check_source(path: &str, text: &str, broken: &mut Vec<String>) {
    let is_test = path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs");
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or(text);
    let lines = code
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count();
    if !is_test && lines > LONGEST_FILE {
        broken.push(format!(
            "{path}: {lines} lines of code; over {LONGEST_FILE} a reader loses the one reason to exist"
        ));
    }
    if !is_test && !text.starts_with("//!") && !text.starts_with("#!") {
        broken.push(format!("{path}: the first line says what the module is (`//! ...`)"));
    }
    if PURE.iter().any(|pure| path.contains(pure)) && path.starts_with("crates/") {
        for word in IMPURE_WORDS.iter().filter(|word| code.contains(*word)) {
            broken.push(format!(
                "{path}: `{}` in a file that only computes; pass the value in",
                word.trim()
            ));
        }
    }
    if text.contains(concat!("allow(unsafe", "_code)")) && !text.contains("SAFETY") {
        broken.push(format!(
            "{path}: allows unsafe code without a SAFETY comment that says why"
        ));
    }
}

fn check_arrows(path: &str, text: &str, broken: &mut Vec<String>) {
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("name = "))
        .unwrap_or_default()
        .trim_matches('"');
    let Some((_, allowed)) = MAY_USE.iter().find(|(from, _)| *from == name) else {
        broken.push(format!(
            "{path}: crate {name} is not in xtask's list of who may use whom"
        ));
        return;
    };
    for line in text.lines() {
        let dependency = line.split(['.', ' ', '=']).next().unwrap_or_default();
        let ours = dependency == "stead" || dependency.starts_with("stead-");
        if ours && dependency != name && !allowed.contains(&dependency) {
            broken.push(format!("{path}: {name} must not depend on {dependency}"));
        }
    }
}

/// The root of the workspace, wherever the command was started.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new("."))
}
