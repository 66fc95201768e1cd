//! `cargo xtask e2e --on embedded|kubernetes [FILTER]`: the stories, on the embedded cluster or on the real one.
//!
//! Stories that are the same on both are written once and told where to run. Those that need what only one of the two
//! has (our commands and nodes, or the real control plane itself) run there alone.

use crate::kubernetes;
use anyhow::{Context, Result, bail};
use clap::{Args, ValueEnum};
use std::process::Command;

/// Modules whose stories are the same on both.
pub const SAME: &[&str] = &["kubectl::", "extension::", "webapp::without_webhooks::"];
/// Stories that are the same on both and long: on the real control plane they run when they are asked for.
const ASKED_FOR: &[&str] = &["w12_"];
/// Parts of the names of stories that start the real control plane themselves.
const REAL: &[&str] = &["on_the_real", "of_the_real"];
/// A story of those modules about a flag that only our program has.
const OURS: &str = "the_audit_log_says_who_did_what_but_never_a_secret";

#[derive(Args)]
pub struct Options {
    /// Where the stories run
    #[arg(long, value_enum)]
    on: On,
    /// Only stories whose names contain this
    filter: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum On {
    /// `stead up`
    Embedded,
    /// etcd, kube-apiserver, controller manager and scheduler, with our nodes
    Kubernetes,
}

pub fn run(options: &Options) -> Result<()> {
    kubernetes::ensure("kubectl")?;
    cargo(On::Embedded, &["build", "--quiet", "--workspace", "--bin", "stead"])?;
    let chosen: Vec<&str> = options.filter.as_deref().into_iter().collect();
    match options.on {
        On::Embedded => {
            let without = REAL.iter().flat_map(|name| ["--skip", name]);
            stories(On::Embedded, without.chain(chosen))
        }
        On::Kubernetes if chosen.is_empty() => on_kubernetes(&[SAME, REAL].concat()),
        On::Kubernetes => {
            // A story that knows nothing of the real control plane would run on ours, and say that it passed.
            let all = [SAME, REAL, ASKED_FOR].concat();
            let known = |name: &str| all.iter().any(|part| name.contains(part));
            if !chosen.iter().all(|name| known(name)) {
                bail!(
                    "a filter for the real control plane holds one of these: {}",
                    all.join(", ")
                );
            }
            on_kubernetes(&chosen)
        }
    }
}

/// Runs stories on the real control plane, for which the binary is built.
pub fn on_kubernetes(filters: &[&str]) -> Result<()> {
    for name in kubernetes::CONTROL_PLANE {
        kubernetes::ensure(name)?;
    }
    let chosen = ["--skip", OURS].into_iter().chain(filters.iter().copied());
    stories(On::Kubernetes, chosen)
}

fn stories<'a>(on: On, chosen: impl Iterator<Item = &'a str>) -> Result<()> {
    // Of the whole workspace, because one crate alone would be built anew with other features; no other crate has
    // tests of these names.
    let test = ["test", "--workspace", "--test", "it", "--"];
    let arguments: Vec<&str> = test.into_iter().chain(chosen).collect();
    cargo(on, &arguments)
}

fn cargo(on: On, arguments: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let place = match on {
        On::Embedded => "embedded",
        On::Kubernetes => "kubernetes",
    };
    let status = Command::new(cargo)
        .args(arguments)
        .env("STEAD_E2E_ON", place)
        .status()
        .context("running cargo")?;
    match status.success() {
        true => Ok(()),
        false => bail!("cargo {}: {status}", arguments.join(" ")),
    }
}
