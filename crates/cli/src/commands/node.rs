//! `stead node`: a node that joins any cluster, and faults on nodes.
//!
//! A fault is asked for by an annotation on the Node object, so it works on every node agent of ours, in whatever
//! process it runs.

mod claim;
mod range;
mod voices;

use crate::commands::connection;
use crate::failure::{Hint, misuse, told};
use crate::home::Home;
use crate::places;
use crate::terminal::{Line, say, start_logging, tell};
use anyhow::{Context, Result, anyhow};
use clap::{Args, Subcommand, ValueEnum};
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, Patch, PatchParams};
use rustls::ServerConfig;
use serde_json::json;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use stead_cluster::clock::MachineClock;
use stead_cluster::node::fault::{POWER_ANNOTATION, Power};
use stead_cluster::node::process::images::Places;
use stead_cluster::node::process::users::{self, Refusal};
use stead_cluster::node::registration::{Capacity, NodeConfig, Role};
use stead_cluster::node::server::{Guard, Serving, identity, signed};
use stead_cluster::node::voices::Voices;
use stead_cluster::node::{self};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Hollow nodes of one process: more would only wait for each other.
const MOST_NODES: i64 = 5_000;

/// Join a node to a cluster, or let a node fail
#[derive(Args)]
#[command(after_help = "Examples:
  stead node join worker-1                    a node whose pods are processes of this machine, until Ctrl-C
  stead node join worker-2 --runtime hollow   one whose pods only say that they run
  stead node join many --runtime hollow --count 100   a hundred of those in one process: many-0, many-1, ...
  stead node stop node-0                      as if its machine were off
  stead node start node-0
  stead node partition node-0                 its pods run on, and the API hears nothing of it
  stead node heal node-0")]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a node agent as a client of the configured cluster, until Ctrl-C
    #[command(after_help = "Examples:
  stead node join worker-1                    a node whose pods are processes of this machine
  stead node join worker-2 --runtime hollow   one whose pods only say that they run
  stead node join many --runtime hollow --count 100
  stead node join worker-1 --address 10.0.0.7   reached from other machines")]
    Join {
        /// The name of the node
        name: String,
        /// What runs its pods
        #[arg(long, value_enum, default_value_t = Runtime::Process)]
        runtime: Runtime,
        /// Join so many hollow nodes, named NAME-0, NAME-1, ...
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_NODES))]
        count: Option<u16>,
        /// Keep the pods of a process node here (default: $XDG_DATA_HOME/stead/joined/NAME)
        #[arg(long, value_name = "DIR")]
        data: Option<PathBuf>,
        /// Where the API server reaches a process node, for logs, exec and port-forward
        #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
        address: IpAddr,
    },
    /// Turn a node off: its pods do not run
    #[command(after_help = "Examples:
  stead node stop node-0     as if its machine were off, until `stead node start node-0`")]
    Stop {
        /// The name of the node
        name: String,
    },
    /// Turn a node on again
    #[command(after_help = "Examples:
  stead node start node-0    after `stead node stop node-0`")]
    Start {
        /// The name of the node
        name: String,
    },
    /// Cut a node from the API: its pods run on
    #[command(after_help = "Examples:
  stead node partition node-0     until `stead node heal node-0`")]
    Partition {
        /// The name of the node
        name: String,
    },
    /// Connect a node to the API again
    #[command(after_help = "Examples:
  stead node heal node-0     after `stead node partition node-0`")]
    Heal {
        /// The name of the node
        name: String,
    },
}

/// What runs a node's pods.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Runtime {
    /// Nothing does: pods only say that they run
    Hollow,
    /// Real processes of this machine
    Process,
}

/// Where a node lives.
struct Place {
    /// Its directory, if it runs processes.
    home: Option<Home>,
    address: IpAddr,
}

pub fn run(arguments: Arguments) -> Result<()> {
    start_logging();
    let home = match &arguments.command {
        Command::Join {
            name,
            runtime,
            count,
            data,
            ..
        } => prepare(name, *runtime, *count, data.as_ref())?,
        _ => None,
    };
    connection::block_on(async {
        match arguments.command {
            Command::Join {
                name,
                runtime,
                count,
                address,
                ..
            } => join(name, count, runtime, Place { home, address }).await,
            Command::Stop { name } => set_power(&name, Power::Off).await,
            Command::Partition { name } => set_power(&name, Power::Partitioned).await,
            Command::Start { name } | Command::Heal { name } => set_power(&name, Power::On).await,
        }
    })
}

/// Gives an ordinary user the rights that pods in namespaces need, before there is a second thread. Where the machine
/// refuses them pods share its network, and say themselves what that means for them.
pub fn become_root(home: &Home) -> Result<()> {
    if let Some(error) = refused(users::become_root(Some(&home.path.join("nodes"))))? {
        let text = format!("pods share the machine's network, files and processes: {error}");
        tell(Line::Note, &text);
    }
    Ok(())
}

/// Why this process goes on without rights; it fails where it cannot go on at all.
pub fn refused(became: Result<(), Refusal>) -> Result<Option<std::io::Error>> {
    match became {
        Ok(()) => Ok(None),
        Err(Refusal::Before(error)) => Ok(Some(error)),
        Err(error @ Refusal::Halfway(_)) => Err(anyhow::Error::new(error))
            .context("cannot become root of a user namespace")
            .hint("try again; if it stays so, check your lines in /etc/subuid and /etc/subgid, or have them removed"),
    }
}

/// Looks at what is asked, and takes the directory of a process node: before this process becomes another to the kernel,
/// so that a second one of the same name is refused while it has changed nothing.
fn prepare(name: &str, runtime: Runtime, count: Option<u16>, data: Option<&PathBuf>) -> Result<Option<Home>> {
    if let Some(problem) = stead_machinery::names::dns1123_subdomain(name).first() {
        return misuse(
            format!("`{name}` cannot be the name of a node: {problem}"),
            "use lower-case letters, digits and dashes",
        );
    }
    if runtime == Runtime::Hollow {
        return Ok(None);
    }
    if count.is_some() {
        return misuse(
            "only hollow nodes join in numbers".to_owned(),
            "add --runtime hollow, or start one `stead node join` for each node that runs processes",
        );
    }
    let home = Home::durable(data.cloned().map_or_else(|| joined(name), Ok)?)?;
    become_root(&home)?;
    Ok(Some(home))
}

/// Where a process node is kept unless `--data` says otherwise.
fn joined(name: &str) -> Result<PathBuf> {
    Ok(places::data()?.join("joined").join(name))
}

async fn join(name: String, count: Option<u16>, runtime: Runtime, place: Place) -> Result<()> {
    let stop = connection::stop_on_signal()?;
    let config = connection::configuration().await?;
    let server = config.cluster_url.to_string();
    let authorities = config.root_cert.clone().unwrap_or_default();
    let client = connection::client(config.clone())?;
    let nodes: Api<Node> = Api::all(client.clone());
    nodes
        .get_opt(&name)
        .await
        .with_context(|| format!("cannot ask {server} for nodes"))
        .hint("check that the cluster runs and that the account of the kubeconfig may write nodes")?;
    let describe = |index: usize, name: String| NodeConfig {
        role: Role::Worker,
        address: place.address,
        ..node::describe(index, 1, name, capacity(runtime))
    };
    let described = match count {
        None => vec![describe(0, name.clone())],
        Some(count) => (0..usize::from(count))
            .map(|index| describe(index, format!("{name}-{index}")))
            .collect(),
    };
    let voices = voices::of(client, &config, &described).await?;
    let names: Vec<String> = described.iter().map(|node| node.name.clone()).collect();
    let free = tokio::select! {
        free = claim::check(&voices, &names) => free?,
        () = stop.cancelled() => return Ok(()),
    };
    tell(Line::Note, &format!("node {name} joins {server}"));
    // The names are taken when nothing is left but to run: whoever holds one and says nothing is soon taken for gone.
    let ended = match place.home {
        None => {
            claim::take(&voices, free).await?;
            node::run_hollow(voices.clone(), Arc::new(MachineClock), described, None, stop).await;
            Ok(())
        }
        Some(home) => {
            let ready = made_ready(voices.clone(), described, home, place.address, authorities);
            let prepared = tokio::select! {
                prepared = ready => prepared?,
                () = stop.cancelled() => return Ok(()),
            };
            claim::take(&voices, free).await?;
            prepared.run(stop).await
        }
    };
    claim::let_go(&voices, &names).await;
    ended
}

fn capacity(runtime: Runtime) -> Capacity {
    match runtime {
        Runtime::Hollow => Capacity::hollow(),
        Runtime::Process => super::up::machine::capacity(1),
    }
}

/// A node of processes that is ready to run.
struct Prepared {
    settings: node::ProcessNodes,
    /// The directory is this node's for as long as it runs.
    home: Home,
    /// Keeps its certificate from running out.
    certificate: AbortOnDropHandle<()>,
}

impl Prepared {
    /// Runs the node. Its pods outlive it: the next join with the same directory adopts them, and `stead down --data` ends
    /// them.
    async fn run(self, stop: CancellationToken) -> Result<()> {
        let _held = (self.home, self.certificate);
        node::run_processes(self.settings, stop).await.context("the node ended")
    }
}

async fn made_ready(
    voices: Voices,
    nodes: Vec<NodeConfig>,
    home: Home,
    address: IpAddr,
    authorities: Vec<Vec<u8>>,
) -> Result<Prepared> {
    let name = nodes.first().map(|node| node.name.clone()).unwrap_or_default();
    let listener = TcpListener::bind(SocketAddr::new(address, 0))
        .await
        .with_context(|| format!("cannot listen on {address}"))
        .hint("choose an address of this machine with --address")?;
    let (tls, certificate) = identify(&voices, &name, address, authorities).await?;
    let range = range::claim(&voices.registrar, &name).await.unwrap_or_else(|error| {
        let why = told(&error);
        let note = format!("pods may get addresses of other nodes' pods: no range is this node's alone ({why})");
        tell(Line::Note, &note);
        range::guess(&name)
    });
    let client = voices.node(&name);
    let settings = node::ProcessNodes {
        voices,
        clock: Arc::new(MachineClock),
        nodes,
        folder: home.path.join("nodes"),
        hidden: places::private(&home.path),
        own: std::env::current_exe().context("cannot find this program's own file")?,
        range,
        network: Arc::default(),
        images: Places {
            entries: Some(home.path.join("images.yaml")),
            store: places::images().ok(),
        },
        serving: Some(Serving {
            listener,
            tls,
            guard: Guard::Reviewed { client, node: name },
        }),
    };
    Ok(Prepared {
        settings,
        home,
        certificate,
    })
}

/// As whom a node serves, and what asks for its next certificate, or again for the first.
async fn identify(
    voices: &Voices,
    name: &str,
    address: IpAddr,
    authorities: Vec<Vec<u8>>,
) -> Result<(Arc<ServerConfig>, AbortOnDropHandle<()>)> {
    let address = address.to_string();
    let own = identity::Own::generate(name, &address).context("cannot make the node's key")?;
    let signed = signed::ask(&own, voices, name).await.map_err(anyhow::Error::new);
    if let Err(error) = &signed {
        let why = told(error);
        let note = format!(
            "the cluster does not sign the node's certificate ({why}): logs and exec work if its API server does not check; \
             it is asked again"
        );
        tell(Line::Note, &note);
    }
    let signed = signed.ok();
    let shown = identity::Shown::new(&own, signed.as_deref()).context("cannot show the node's certificate")?;
    let tls = shown
        .serve(authorities)
        .context("cannot prepare the node's own server")
        .hint("the kubeconfig must name the cluster's certificate authority, which also signs the API server's client certificate")?;
    let holder = signed::Holder {
        voices: voices.clone(),
        clock: Arc::new(MachineClock),
        node: name.to_owned(),
        address,
    };
    let kept = tokio::spawn(async move { holder.keep(&shown, signed.as_deref()).await });
    Ok((tls, AbortOnDropHandle::new(kept)))
}

async fn set_power(name: &str, power: Power) -> Result<()> {
    let client = connection::client(connection::configuration().await?)?;
    let nodes: Api<Node> = Api::all(client);
    let unknown = || format!("cannot change node {name}");
    let node = nodes
        .get(name)
        .await
        .with_context(unknown)
        .hint("`kubectl get nodes` lists the nodes")?;
    check_change(name, Power::asked_of(&node), power)?;
    let patch = json!({"metadata": {"annotations": {POWER_ANNOTATION: power.annotation()}}});
    nodes
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await
        .with_context(unknown)
        .hint("`kubectl get nodes` lists the nodes")?;
    let words = match power {
        Power::On => "on and connected",
        Power::Partitioned => "cut from the API",
        Power::Off => "off",
    };
    say(&format!("node/{name} is {words}"))?;
    Ok(())
}

/// Refuses to cut a node from the API that is off: its pods would run again.
fn check_change(name: &str, from: Power, to: Power) -> Result<()> {
    match (from, to) {
        (Power::Off, Power::Partitioned) => Err(anyhow!("node {name} is off")).hint(format!(
            "`stead node start {name}` first: a node that is cut from the API runs its pods"
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_left_halfway_into_a_namespace_does_not_go_on() {
        let why = || std::io::Error::other("newuidmap failed");
        assert!(refused(Ok(())).expect("root").is_none());
        assert!(refused(Err(Refusal::Before(why()))).expect("the user").is_some());
        let ended = refused(Err(Refusal::Halfway(why()))).expect_err("nobody");
        let (what, hint) = crate::failure::describe(&ended);
        assert!(what.contains("newuidmap failed"), "{what}");
        assert!(hint.is_some_and(|hint| hint.contains("/etc/subuid")));
    }

    #[test]
    fn a_directory_is_made_for_a_node_only_once_its_name_is_one() {
        let place = tempfile::tempdir().expect("a directory");
        let data = place.path().join("data");
        let try_as = |name: &str, runtime, count| prepare(name, runtime, count, Some(&data)).map(|home| home.is_some());
        assert!(try_as("../x", Runtime::Process, None).is_err());
        assert!(try_as("many", Runtime::Process, Some(2)).is_err());
        assert!(!try_as("many", Runtime::Hollow, Some(2)).expect("it needs none"));
        assert!(!data.exists());
    }

    #[test]
    fn a_node_that_is_off_is_not_started_by_cutting_it_from_the_api() {
        check_change("n", Power::Off, Power::Partitioned).expect_err("it would run its pods");
        for (from, to) in [
            (Power::Off, Power::On),
            (Power::On, Power::Partitioned),
            (Power::Partitioned, Power::Off),
        ] {
            check_change("n", from, to).expect("a change that says what it does");
        }
    }
}
