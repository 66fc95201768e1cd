//! `cargo xtask test`: everything that must hold, with all set-up it needs.
//!
//! The README names this command and CI runs the same one. Every step is a line of the closing table; a step
//! that cannot run here says why in a line of its own and never counts as passed.

use crate::{capabilities, conformance, definitions, e2e, image, kube_tests, kubernetes, tidy};
use anyhow::{Context, Result, bail};
use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

/// How one step ended.
enum End {
    Passed,
    Failed(String),
    Skipped(String),
}

/// Runs every step, prints the table, and fails if any step did.
pub fn run() -> Result<()> {
    let mut table = Table::default();
    table.step("tidy", || tidy::run().map(|()| End::Passed));
    table.step("definitions", || definitions::run().map(|()| End::Passed));
    table.step("rustfmt", || cargo(&["fmt", "--all", "--check"]));
    table.step("clippy", || {
        cargo(&[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ])
    });
    table.step("real Kubernetes", control_plane);
    table.clients();
    table.step("the binary", || {
        cargo(&["build", "--quiet", "--workspace", "--bin", "stead"])
    });
    let mut ran = None;
    table.step("tests", || {
        let arguments = ["test", "--workspace", "--no-fail-fast"];
        let (status, seen) = capabilities::cargo_test(&arguments)?;
        ran = Some(seen);
        Ok(match status.success() {
            true => End::Passed,
            false => End::Failed(format!("cargo {}: {status}", arguments.join(" "))),
        })
    });
    table.step("capabilities", || {
        let ran = ran.context("the tests did not run")?;
        capabilities::check(&ran).map(|()| End::Passed)
    });
    table.step("stories on Kubernetes", stories_on_kubernetes);
    table.step("conformance", upstream_tests);
    // Last, because it puts the image's binary in the place of the one that the stories run.
    table.step("the image's binary", || image::run().map(|()| End::Passed));
    table.close()
}

/// Prepares the clients of other projects, which the stories run.
pub fn clients() -> Result<()> {
    let mut table = Table::default();
    table.clients();
    table.close()
}

/// Runs the search for differences, which is a program of the test crate: this one stays quick to build.
pub fn differential(options: &[String]) -> Result<()> {
    for name in ["kube-apiserver", "etcd"] {
        kubernetes::ensure(name)?;
    }
    let mut arguments = vec!["run", "--quiet", "-p", "stead-test", "--bin", "differential", "--"];
    arguments.extend(options.iter().map(String::as_str));
    match cargo(&arguments)? {
        End::Failed(why) => bail!(why),
        End::Passed | End::Skipped(_) => Ok(()),
    }
}

/// Programs that the tests drive and compare with. Their absence is no failure, but it is said.
fn control_plane() -> Result<End> {
    for name in kubernetes::CONTROL_PLANE {
        if let Err(error) = kubernetes::ensure(name) {
            return Ok(End::Skipped(format!("{error:#}")));
        }
    }
    Ok(End::Passed)
}

/// The programs on client-go and controller-runtime that the stories run. Go's own cache makes the second time quick.
fn go_clients() -> Result<End> {
    let go = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command
            .current_dir("tools/clients")
            .env("CGO_ENABLED", "0")
            .args(arguments);
        command
    };
    match go(&["mod", "download"]).status() {
        Ok(status) if status.success() => {}
        Ok(status) => {
            return Ok(End::Skipped(format!(
                "no client-go: `go mod download` ended with {status}"
            )));
        }
        Err(error) => return Ok(End::Skipped(format!("no client-go: no Go toolchain ({error})"))),
    }
    let output = std::path::absolute(target().join("clients"))?;
    let status = go(&["build", "-trimpath", "-ldflags", "-s -w", "-o"])
        .arg(format!("{}/", output.display()))
        .arg("./...")
        .status()?;
    Ok(if status.success() {
        End::Passed
    } else {
        End::Failed(format!("go build of tools/clients: {status}"))
    })
}

/// The stories of kubectl and of extensions once more, on the real API server: what they expect must be true there.
fn stories_on_kubernetes() -> Result<End> {
    if let Err(error) = kubernetes::ensure("kube-apiserver") {
        return Ok(End::Skipped(format!("no real Kubernetes: {error:#}")));
    }
    e2e::on_kubernetes(e2e::SAME).map(|()| End::Passed)
}

/// The bounded part of Kubernetes' own tests.
fn upstream_tests() -> Result<End> {
    if let Err(error) = conformance::ensure() {
        return Ok(End::Skipped(format!("{error:#}")));
    }
    conformance::run_quick_part().map(|()| End::Passed)
}

/// The official Python client, in an environment of its own beside the build.
fn python_client() -> Result<End> {
    let environment = target().join("python");
    if environment.join("complete").exists() {
        return Ok(End::Passed);
    }
    let skipped = |why: String| Ok(End::Skipped(format!("no Python client: {why}")));
    match Command::new("python3").args(["-m", "venv"]).arg(&environment).status() {
        Ok(status) if status.success() => {}
        Ok(status) => return skipped(format!("`python3 -m venv` ended with {status}")),
        Err(error) => return skipped(format!("no python3 ({error})")),
    }
    let installed = Command::new(environment.join("bin/pip"))
        .args(["install", "--quiet", "--requirement", "tools/python/requirements.txt"])
        .status()?;
    if !installed.success() {
        return skipped(format!("`pip install` ended with {installed}"));
    }
    std::fs::write(environment.join("complete"), "")?;
    Ok(End::Passed)
}

/// Where cargo builds.
fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| "target".into(), PathBuf::from)
}

fn cargo(arguments: &[&str]) -> Result<End> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo).args(arguments).status().context("running cargo")?;
    Ok(if status.success() {
        End::Passed
    } else {
        End::Failed(format!("cargo {}: {status}", arguments.join(" ")))
    })
}

/// The steps so far, for the closing table.
#[derive(Default)]
struct Table {
    rows: Vec<(&'static str, End, u64)>,
}

impl Table {
    fn step(&mut self, name: &'static str, work: impl FnOnce() -> Result<End>) {
        eprintln!("== {name}");
        let started = Instant::now();
        let end = work().unwrap_or_else(|error| End::Failed(format!("{error:#}")));
        if let End::Skipped(why) = &end {
            println!("skipped: {why}");
        }
        self.rows.push((name, end, started.elapsed().as_secs()));
    }

    fn clients(&mut self) {
        self.step("clients in Go", go_clients);
        self.step("client in Python", python_client);
        self.step("client in Rust", || kube_tests::build(&target()).map(|()| End::Passed));
    }

    fn close(self) -> Result<()> {
        let (mut passed, mut failed, mut skipped) = (0, 0, 0);
        println!("\n{:<24} {:>8}  result", "step", "seconds");
        for (name, end, seconds) in &self.rows {
            let result = match end {
                End::Passed => {
                    passed += 1;
                    "passed".to_string()
                }
                End::Failed(why) => {
                    failed += 1;
                    format!("FAILED: {why}")
                }
                End::Skipped(why) => {
                    skipped += 1;
                    format!("skipped: {why}")
                }
            };
            println!("{name:<24} {seconds:>8}  {result}");
        }
        println!("steps: {passed} passed, {failed} failed, {skipped} skipped");
        if failed > 0 {
            bail!("{failed} steps failed");
        }
        Ok(())
    }
}
