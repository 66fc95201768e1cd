//! `stead up`: the embedded cluster in one process, until it is told to stop.

mod cluster;
mod demo;
mod identity;
mod kubeconfig;
mod listen;
pub mod machine;
mod parts;
mod rivals;

use super::connection;
use super::node::become_root;
use crate::failure::{is_reader_gone, misuse};
use crate::home::Home;
use crate::places;
use crate::terminal::say;
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use serde_json::json;
use std::path::PathBuf;
use stead_apiserver::store::EtcdAddress;

/// Run a cluster in this process, until Ctrl-C
#[derive(Args)]
#[command(after_help = "Examples:
  stead up                              durable, in $XDG_DATA_HOME/stead
  stead up --ephemeral                  in memory, gone when it ends
  stead up --data ./cluster --listen 127.0.0.1:6443
  stead up --ephemeral --parts api      the API server alone
  stead up --ephemeral --output json    for scripts: one JSON object a line

When it serves it prints `ready KUBECONFIG`; then
  kubectl --kubeconfig KUBECONFIG get namespaces")]
pub struct Arguments {
    /// Where to listen (default: a free loopback port, kept in the data directory)
    #[arg(long, value_name = "HOST:PORT")]
    listen: Option<listen::Address>,
    /// Keep the cluster in this directory (default: $XDG_DATA_HOME/stead)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Keep the cluster in memory only
    #[arg(long, conflicts_with_all = ["data", "store"])]
    ephemeral: bool,
    /// Keep objects in etcd, and only credentials in the data directory
    #[arg(long, value_name = "etcd://HOST:PORT[,HOST:PORT...]")]
    store: Option<EtcdAddress>,
    /// Where to write the kubeconfig; other clusters in it stay (default: a file of its own in the cluster's directory)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Also add the context `stead` to your own kubeconfig
    #[arg(long)]
    merge_kubeconfig: bool,
    /// What to run (default: all parts)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    parts: Option<Vec<parts::Part>>,
    /// How many nodes
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,
    /// What runs the pods of the nodes
    #[arg(long, value_enum, default_value_t = parts::Runtime::Process)]
    runtime: parts::Runtime,
    /// Names of images and the programs that they stand for (default: images.yaml in the cluster's directory)
    #[arg(long, value_name = "FILE")]
    images: Option<PathBuf>,
    /// Write an audit log: one audit.k8s.io/v1 Event a line
    #[arg(long, value_name = "FILE")]
    audit_log: Option<PathBuf>,
    /// How much the audit log tells
    #[arg(long, value_enum, default_value_t = AuditLevel::Metadata, requires = "audit_log")]
    audit_level: AuditLevel,
    /// Apply a sample application, show its progress, print its address
    #[arg(long)]
    demo: bool,
    /// How to print what scripts read
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AuditLevel {
    Metadata,
    Request,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Text,
    Json,
}

impl Arguments {
    /// Refuses parts that cannot do what is asked of them together.
    fn check(&self) -> Result<()> {
        let has = |part: parts::Part| self.parts.as_ref().is_none_or(|parts| parts.contains(&part));
        if !has(parts::Part::Api) {
            return misuse(
                "--parts leaves out the API server, and the others are its clients",
                "add api to the list; `stead node join` and `stead operator` run beside another API server",
            );
        }
        if self.demo && parts::Part::value_variants().iter().any(|part| !has(*part)) {
            return misuse("--demo needs every part", "leave --parts or --demo out");
        }
        if self.demo && self.nodes == 0 {
            return misuse("--demo needs a node", "leave --nodes or --demo out");
        }
        Ok(())
    }

    /// The directory of the cluster, held by this process.
    fn home(&self) -> Result<Home> {
        match (self.ephemeral, &self.data) {
            (true, _) => Home::ephemeral(),
            (false, Some(data)) => Home::durable(data.clone()),
            (false, None) => Home::durable(places::data()?),
        }
    }

    /// Whether pods are processes of this machine here.
    fn runs_processes(&self) -> bool {
        let nodes = self
            .parts
            .as_ref()
            .is_none_or(|parts| parts.contains(&parts::Part::Nodes));
        nodes && self.nodes > 0 && self.runtime == parts::Runtime::Process
    }
}

pub fn run(arguments: Arguments) -> Result<()> {
    arguments.check()?;
    crate::terminal::start_logging();
    // Before anything else: where another has the directory, this process has changed nothing yet.
    let home = arguments.home()?;
    if arguments.runs_processes() {
        become_root(&home)?;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")?;
    let outcome = runtime.block_on(serve(arguments, home));
    // Whatever still runs after the drain is not worth waiting for.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    outcome
}

async fn serve(arguments: Arguments, home: Home) -> Result<()> {
    let stop = connection::stop_on_signal()?;
    let output = arguments.output;
    let demo = arguments.demo;
    // Whatever fails from here on, the parts end in their order before the process does.
    let _ending = stop.clone().drop_guard();
    let running = cluster::start(arguments, home, stop.clone()).await?;
    let kubeconfig = running.kubeconfig.display().to_string();
    let ready = match output {
        Output::Text => format!("ready {kubeconfig}"),
        Output::Json => json!({"event": "ready", "kubeconfig": kubeconfig, "server": running.server}).to_string(),
    };
    let told = match (announce(&ready).context("cannot say that it is ready"), demo) {
        (Ok(()), true) => tokio::select! {
            shown = show_demo(&running.client, output) => shown,
            () = stop.cancelled() => Ok(()),
        },
        (told, _) => told,
    };
    if told.is_err() {
        stop.cancel();
    }
    running.finished().await?;
    told
}

/// Says something to whoever started the cluster. It goes on when they have read enough, as `grep -q ready` has.
fn announce(text: &str) -> Result<()> {
    match say(text) {
        Err(error) if is_reader_gone(&error) => Ok(()),
        said => said,
    }
}

/// Brings the sample up and says where it answers.
async fn show_demo(client: &kube::Client, output: Output) -> Result<()> {
    let url = demo::show(client).await?;
    announce(&match output {
        Output::Text => format!("url {url}"),
        Output::Json => json!({"event": "demo", "url": url}).to_string(),
    })
    .context("cannot say where it answers")
}
