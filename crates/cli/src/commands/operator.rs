//! `stead operator`: the operators alone, on whatever cluster is configured.
//!
//! It starts whether or not the cluster is ready for it: probes answer from the first moment, caches retry, and
//! a look-out says what is missing and what to run until nothing is.

mod lookout;

use crate::commands::connection;
use crate::failure::{Hint, misuse};
use crate::terminal::{Line, filter, tell};
use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use std::io::IsTerminal;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use stead::configuration::{self, Configuration, LogFormat, Overrides};
use stead::telemetry::{self, Exporter};
use stead::webhook::{Target, WebhookOptions};
use stead::{Manager, ManagerBuilder};
use stead_webapp::WebAppOperator;
use stead_webapp::requests::Reach;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;

/// The name of the operator, its Lease, its Service and its objects.
pub const NAME: &str = "stead-operator";
/// Where a pod finds the namespace it runs in.
const OWN_NAMESPACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";
/// Asked for by nobody, so taken only if they are free.
const METRICS: &str = "127.0.0.1:8080";
pub const PROBES: &str = "127.0.0.1:8081";

/// Run the operators alone, on the cluster that KUBECONFIG or the in-cluster account names
#[derive(Args)]
#[command(after_help = "Examples:
  KUBECONFIG=./kubeconfig stead operator
  stead operator --leader-elect --namespaces shop,blog
  stead operator --metrics-bind-address :8080 --health-probe-bind-address :8081 --log-format json

Each setting may also be in the file of --config (leaderElect: true) or in the environment (STEAD_LEADER_ELECT);
flags go over the environment, and the environment over the file.")]
pub struct Arguments {
    /// Elect a leader among replicas; only the leader works
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "true|false")]
    leader_elect: Option<bool>,
    /// Where the Lease is (default: the operator's own namespace, outside a cluster `default`)
    #[arg(long, value_name = "NS")]
    leader_election_namespace: Option<String>,
    /// How long other replicas wait for a leader that is silent [default: 15s]
    #[arg(long, value_name = "TIME")]
    leader_election_lease_duration: Option<String>,
    /// How long a leader goes on that cannot renew its Lease [default: 10s]
    #[arg(long, value_name = "TIME")]
    leader_election_renew_deadline: Option<String>,
    /// The pause between two attempts to renew or to take the Lease [default: 2s]
    #[arg(long, value_name = "TIME")]
    leader_election_retry_period: Option<String>,
    /// Work in these namespaces only, separated by commas
    #[arg(long, value_name = "LIST")]
    namespaces: Option<String>,
    /// Where /metrics is served; 0: nowhere [default: 127.0.0.1:8080 if that is free]
    #[arg(long, value_name = "HOST:PORT")]
    metrics_bind_address: Option<String>,
    /// Where /healthz and /readyz are served; 0: nowhere [default: 127.0.0.1:8081 if that is free]
    #[arg(long, value_name = "HOST:PORT")]
    health_probe_bind_address: Option<String>,
    /// Where webhooks are served (default: nowhere)
    #[arg(long, value_name = "HOST:PORT")]
    webhook_bind_address: Option<String>,
    /// A file with these settings, in YAML or JSON
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// How log lines look
    #[arg(long, value_name = "FORMAT")]
    log_format: Option<Format>,
}

/// How log lines look.
#[derive(Clone, Copy, ValueEnum)]
enum Format {
    Text,
    Json,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let namespace = own_namespace();
    let said = said(arguments)?;
    let (metrics_said, probes_said) = (
        said.metrics_bind_address.is_some(),
        said.health_probe_bind_address.is_some(),
    );
    let settings = Configuration::new(said, &namespace)
        .or_else(|error| misuse(error.to_string(), "`stead operator --help` shows what is possible"))?;
    let exporter = start_logging(settings.log_format)?;
    let addresses = Addresses {
        metrics: match metrics_said {
            true => Wish::Said(settings.metrics),
            false => Wish::Usual(METRICS),
        },
        probes: match probes_said {
            true => Wish::Said(settings.probes),
            false => Wish::Usual(PROBES),
        },
    };
    connection::block_on(serve(settings, addresses, namespace, exporter))
}

/// Where to listen.
enum Wish {
    /// What the user said; `None`: nowhere.
    Said(Option<SocketAddr>),
    /// The user said nothing: here, if it is free.
    Usual(&'static str),
}

struct Addresses {
    metrics: Wish,
    probes: Wish,
}

async fn serve(
    settings: Configuration,
    addresses: Addresses,
    namespace: String,
    exporter: Option<Exporter>,
) -> Result<()> {
    let stop = connection::stop_on_signal()?;
    let drained = CancellationToken::new();
    let traces = exporter.map(|exporter| tokio::spawn(exporter.run(drained.clone().cancelled_owned())));
    let config = connection::configuration().await?;
    let server = config.cluster_url.to_string();
    let client = connection::client(config)?;
    let identity = identity();
    let mut builder = Manager::builder(client.clone())
        .name(NAME)
        .identity(&identity)
        .namespaces(settings.namespaces.clone());
    if let Some(listener) = listener(&addresses.metrics)? {
        builder = builder.metrics(listener);
    }
    if let Some(listener) = listener(&addresses.probes)? {
        builder = builder.probes(listener);
    }
    if let Some(election) = settings.leader_election(NAME) {
        builder = builder.leader_election(election);
    }
    if let Some(address) = settings.webhooks {
        builder = webhooks(builder, address, &namespace)?;
    }
    let manager = builder.build();
    WebAppOperator::add_with(&manager, Reach::directly(pod_namespace()));
    let lookout = lookout::Lookout {
        client,
        server,
        rules: manager.rbac(),
        namespaces: settings.namespaces,
        election: settings.election,
    };
    tracing::info!(identity, "starting");
    let watching = tokio::spawn(lookout.run(stop.clone()));
    let outcome = manager.run(stop.cancelled_owned()).await.context("the operator failed");
    watching.abort();
    // The spans of the last runs are sent too.
    drained.cancel();
    if let Some(traces) = traces {
        // A collector that is down holds nobody up for long, and a task that panicked has nothing to say.
        let _ = traces.await;
    }
    outcome
}

/// Flags over environment over file.
fn said(arguments: &Arguments) -> Result<Overrides> {
    let file = match &arguments.config {
        None => Overrides::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))
                .hint("give --config a file that exists")?;
            Overrides::from_file(&text)
                .with_context(|| format!("in {}", path.display()))
                .hint("its settings are the flags in camelCase, such as leaderElect: true")?
        }
    };
    let environment = Overrides::from_environment(|name| std::env::var(name).ok())
        .hint("correct that variable of the environment, or remove it")?;
    let flags = Overrides {
        leader_elect: arguments.leader_elect,
        leader_election_namespace: arguments.leader_election_namespace.clone(),
        leader_election_lease_duration: arguments.leader_election_lease_duration.clone(),
        leader_election_renew_deadline: arguments.leader_election_renew_deadline.clone(),
        leader_election_retry_period: arguments.leader_election_retry_period.clone(),
        namespaces: arguments.namespaces.as_deref().map(configuration::split),
        metrics_bind_address: arguments.metrics_bind_address.clone(),
        health_probe_bind_address: arguments.health_probe_bind_address.clone(),
        webhook_bind_address: arguments.webhook_bind_address.clone(),
        log_format: arguments.log_format.map(|format| match format {
            Format::Text => LogFormat::Text,
            Format::Json => LogFormat::Json,
        }),
    };
    Ok(flags.over(environment.over(file)))
}

/// An address that was asked for must be free.
fn listener(wish: &Wish) -> Result<Option<TcpListener>> {
    match wish {
        Wish::Said(None) => Ok(None),
        Wish::Said(Some(address)) => bind(*address).map(Some),
        Wish::Usual(usual) => {
            let bound = TcpListener::bind(usual).and_then(nonblocking);
            if bound.is_err() {
                tell(Line::Note, &format!("{usual} is taken; nothing is served there"));
            }
            Ok(bound.ok())
        }
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address)
        .and_then(nonblocking)
        .with_context(|| format!("cannot listen on {address}"))
        .hint("choose an address that is free")
}

fn nonblocking(listener: TcpListener) -> std::io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    Ok(listener)
}

fn webhooks(builder: ManagerBuilder, address: SocketAddr, namespace: &str) -> Result<ManagerBuilder> {
    let options = WebhookOptions::service(namespace, NAME)
        .target(Target::Mutating(NAME.to_owned()))
        .target(Target::Validating(NAME.to_owned()));
    Ok(builder.webhooks(bind(address)?, options, stead_webapp::webhooks::all()))
}

/// The pod's name, else the host's and a random part: two on one machine are still two.
fn identity() -> String {
    let named = std::env::var("POD_NAME").ok().filter(|name| !name.is_empty());
    named.unwrap_or_else(|| {
        let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
        let host = host.unwrap_or_else(|| "unknown".to_owned());
        format!("{host}-{:08x}", rand::random::<u32>())
    })
}

fn own_namespace() -> String {
    pod_namespace().unwrap_or_else(|| "default".to_owned())
}

/// The namespace of the pod that the operator is, where it is one.
fn pod_namespace() -> Option<String> {
    let given = std::env::var("POD_NAMESPACE").ok();
    let mounted = || std::fs::read_to_string(Path::new(OWN_NAMESPACE)).ok();
    let found = given.or_else(mounted).map(|name| name.trim().to_owned());
    found.filter(|name| !name.is_empty())
}

/// Lines on standard error, and traces to a collector if the environment names one.
fn start_logging(format: LogFormat) -> Result<Option<Exporter>> {
    let filter = filter("info");
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()) && std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(colours);
    let lines = match format {
        LogFormat::Text => lines.boxed(),
        LogFormat::Json => lines.json().flatten_event(true).boxed(),
    };
    let traces = telemetry::Settings::from_environment(NAME, |name| std::env::var(name).ok());
    let (layer, exporter) = match traces {
        None => (None, None),
        Some(settings) => {
            let (layer, exporter) = telemetry::layer(settings, stead::clock::system())
                .context("OTEL_EXPORTER_OTLP_ENDPOINT")
                .hint("name a collector as http://HOST:4318, or remove the variable")?;
            (Some(layer), Some(exporter))
        }
    };
    // Somebody may have started it before; then their choice stands.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .with(layer)
        .try_init();
    Ok(exporter)
}
