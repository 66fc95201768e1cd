//! The engine beside the real control plane: how soon pods are bound and ready, how many a second, at what cost.
//!
//! Both sides keep their objects on the same disk and make every write durable. The real one has no nodes of its
//! own: hollow ones of ours join it, and what they cost is not counted there. In ours the nodes are part of the
//! process that is measured.

mod planes;
mod rollout;
mod scale;

use super::servers::{self, Server};
use super::table::{Better, compared};
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

/// How long a cluster is watched while it has nothing to do.
const IDLE: Duration = Duration::from_secs(10);
/// Before that: what a start leaves to be done is done.
const REST: Duration = Duration::from_secs(20);

#[derive(clap::Args)]
pub struct Options {
    #[command(flatten)]
    sides: super::Sides,
    /// How many times a Deployment of three is rolled out; the median counts
    #[arg(long, default_value_t = 15)]
    rounds: usize,
    /// Hollow pods, created through Deployments of a hundred each
    #[arg(long, default_value_t = 10_000)]
    pods: usize,
    /// Hollow nodes for them
    #[arg(long, default_value_t = 100)]
    nodes: usize,
}

/// How one side did.
struct Results {
    rollout: rollout::Times,
    scale: scale::Figures,
    /// Percent of a core.
    idle: f64,
}

pub fn run(options: Options) -> Result<()> {
    let program = servers::program(options.sides.program.clone())?;
    eprintln!("measuring stead");
    let ours = measure(&options, &|nodes| planes::stead(&program, nodes))?;
    let theirs = if options.sides.alone {
        None
    } else {
        eprintln!("measuring the real control plane");
        Some(measure(&options, &|nodes| planes::kubernetes(&program, nodes))?)
    };
    print!("{}", render(&options, &ours, theirs.as_ref()));
    Ok(())
}

/// Which nodes a cluster shall have.
#[derive(Clone, Copy)]
enum Nodes {
    /// Three of the usual kind: ours run processes, theirs are hollow.
    Three,
    /// So many hollow ones.
    Hollow(usize),
}

fn measure(options: &Options, start: &dyn Fn(Nodes) -> Result<Server>) -> Result<Results> {
    let small = start(Nodes::Three)?;
    eprintln!("  rollouts");
    let rollout = rollout::measure(&small, options.rounds)?;
    eprintln!("  nothing");
    let idle = idle(&small)?;
    drop(small);
    eprintln!("  {} pods", options.pods);
    let large = start(Nodes::Hollow(options.nodes))?;
    let scale = scale::measure(&large, options.pods)?;
    Ok(Results { rollout, scale, idle })
}

/// Percent of a core that a cluster with nothing to do uses.
fn idle(server: &Server) -> Result<f64> {
    std::thread::sleep(REST);
    let before = server.processor()?;
    std::thread::sleep(IDLE);
    Ok((server.processor()? - before) / IDLE.as_secs_f64() * 100.0)
}

/// What the figures must be.
enum Target {
    /// At least so many times better than theirs.
    Times(f64),
    /// Below this, whatever theirs is.
    Below(f64),
    None,
}

fn render(options: &Options, ours: &Results, theirs: Option<&Results>) -> String {
    let mut text = "| | stead | real control plane | ratio | target |\n|---|---|---|---|---|\n".to_string();
    let mut row = |name: &str, better: Better, ours: f64, theirs: Option<f64>, show: &Show, target: Target| {
        let (cell, ratio) = compared(better, ours, theirs, show);
        let times = theirs.map(|theirs| match better {
            Better::Less => theirs / ours,
            Better::More => ours / theirs,
        });
        let target = match (target, times) {
            (Target::None, _) => String::new(),
            (Target::Below(most), _) => format!("{} {}", show(most), verdict(ours < most)),
            (Target::Times(least), Some(times)) => format!("{least:.0} x {}", verdict(times >= least)),
            (Target::Times(least), None) => format!("{least:.0} x"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {name} | {} | {cell} | {ratio} | {target} |", show(ours));
    };
    let less = Better::Less;
    let (r, t) = (&ours.rollout, theirs.map(|theirs| &theirs.rollout));
    let bound = t.map(|t| t.bound.as_secs_f64());
    row(
        "three pods bound",
        less,
        r.bound.as_secs_f64(),
        bound,
        &ms,
        Target::Times(3.0),
    );
    let name = "three pods ready, against theirs bound";
    row(name, less, r.ready.as_secs_f64(), bound, &ms, Target::Times(1.0));
    let hollow_ready = t.map(|t| t.ready.as_secs_f64());
    let name = "three pods ready (theirs on hollow nodes)";
    row(name, less, r.ready.as_secs_f64(), hollow_ready, &ms, Target::None);
    let (s, t) = (&ours.scale, theirs.map(|theirs| &theirs.scale));
    let name = format!("pods a second ({} on {} hollow nodes)", options.pods, options.nodes);
    row(
        &name,
        Better::More,
        s.per_second,
        t.map(|t| t.per_second),
        &plain,
        Target::Times(3.0),
    );
    row(
        "memory of a pod",
        less,
        s.memory_each,
        t.map(|t| t.memory_each),
        &kib,
        Target::Times(3.0),
    );
    let name = "processor time of a pod";
    row(
        name,
        less,
        s.processor_each,
        t.map(|t| t.processor_each),
        &ms,
        Target::None,
    );
    let name = "idle, three nodes";
    row(
        name,
        less,
        ours.idle,
        theirs.map(|theirs| theirs.idle),
        &percent,
        Target::Below(1.0),
    );
    text
}

type Show = dyn Fn(f64) -> String;

fn verdict(met: bool) -> &'static str {
    match met {
        true => "(met)",
        false => "(missed)",
    }
}

fn ms(seconds: f64) -> String {
    format!("{:.1} ms", seconds * 1e3)
}

fn kib(bytes: f64) -> String {
    format!("{:.1} KiB", bytes / 1024.0)
}

fn plain(number: f64) -> String {
    format!("{number:.0}")
}

fn percent(number: f64) -> String {
    format!("{number:.1} %")
}

/// The namespace that everything happens in.
const NAMESPACE: &str = "bench";

fn pods_path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/pods")
}

fn deployments_path() -> String {
    format!("/apis/apps/v1/namespaces/{NAMESPACE}/deployments")
}

/// A Deployment of the built-in web server.
fn deployment(name: &str, replicas: usize) -> Vec<u8> {
    let labels = serde_json::json!({"app": name});
    serde_json::json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 1,
                    "containers": [{
                        "name": "web", "image": "stead/hello",
                        "ports": [{"containerPort": 8080}],
                        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
                    }],
                },
            },
        },
    })
    .to_string()
    .into_bytes()
}

fn join(program: &Path, kubeconfig: &Path, count: usize) -> std::process::Command {
    let mut command = std::process::Command::new(program);
    command
        .args(["node", "join", "hollow", "--runtime", "hollow", "--count"])
        .arg(count.to_string())
        .env("KUBECONFIG", kubeconfig);
    command
}
