//! The parts around the API server: controllers, scheduler, nodes, operators.
//!
//! Each is an ordinary client of the API, as it would be of any other Kubernetes. In this process they talk
//! to the server without a network, through the same gate as everybody else, so that the audit log shows
//! what they do.

use super::{identity, rivals};
use crate::failure::Hint;
use anyhow::{Context, Result};
use clap::ValueEnum;
use futures::future::BoxFuture;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use stead::history::Memory;
use stead::{Cache, Manager};
use stead_apiserver::auth::{AUTHENTICATED, MASTERS, User};
use stead_apiserver::gate::Gate;
use stead_apiserver::server::wires::Dial;
use stead_cluster::clock::MachineClock;
use stead_cluster::node::network::Network;
use stead_cluster::node::network::range::Range;
use stead_cluster::node::process::images::Places;
use stead_cluster::node::registration::Capacity;
use stead_cluster::node::server::identity::Identity;
use stead_cluster::{controllers, node, scheduler};
use stead_webapp::requests::Reach;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A part of the cluster.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// The API server
    Api,
    /// Deployments, garbage collection, namespaces and the other controllers
    Controllers,
    /// Binds pods to nodes
    Scheduler,
    /// Nodes that run pods
    Nodes,
    /// Stead's own operators
    Operators,
}

/// What runs a node's pods.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Runtime {
    /// Real processes of this machine
    Process,
    /// Nothing does: pods only say that they run
    Hollow,
}

/// What the parts need to know.
pub struct Settings {
    /// `None`: all of them.
    pub parts: Option<Vec<Part>>,
    pub nodes: usize,
    pub runtime: Runtime,
    /// The PEM of the cluster's authority.
    pub authority: String,
    /// What signs certificate requests.
    pub signer: controllers::certificates::Authority,
    /// Where nodes keep their pods.
    pub folder: PathBuf,
    /// What no container sees of the machine.
    pub hidden: Vec<PathBuf>,
    /// The network of the pods, once there is one.
    pub network: Arc<OnceLock<Arc<dyn Network>>>,
    /// Where names of images are looked up.
    pub images: Places,
    /// Where the data of provisioned volumes is.
    pub volumes: PathBuf,
    /// How nodes let the API server in, and nobody else.
    pub kubelet: Identity,
}

/// Starts the wanted parts; they end with `stop`.
pub async fn start(settings: &Settings, gate: &Gate, stop: &CancellationToken) -> Result<JoinSet<()>> {
    let wanted = |part: Part| settings.parts.as_ref().is_none_or(|parts| parts.contains(&part));
    let mut running = JoinSet::new();
    let mut shared = None;
    if wanted(Part::Controllers) {
        let reader = identity::user(gate, "system:kube-controller-manager", &[]);
        let manager = Manager::builder(reader)
            .name("kube-controller-manager")
            .identities(identity::of_controllers(gate))
            // Nobody can ask them, and with thousands of pods it would be a tenth of the memory.
            .memory(Memory::Nothing)
            .build();
        let known = controllers::Settings {
            root_certificates: Some(settings.authority.clone()),
            authority: Some(settings.signer.clone()),
            volumes: Some(controllers::volumes::Directories::new(settings.volumes.clone())),
        };
        controllers::add_to(&manager, &known);
        identity::install_roles(&client_of(gate, "system:stead:bootstrap"), &manager).await?;
        shared = Some(manager.cache().clone());
        run(&mut running, "controllers", manager, stop);
    }
    if wanted(Part::Scheduler) {
        let mut builder = Manager::builder(identity::user(gate, "system:kube-scheduler", &[]))
            .name("kube-scheduler")
            .memory(Memory::Nothing);
        if let Some(cache) = &shared {
            // One copy of every pod is enough for a process.
            builder = builder.sharing(cache);
        }
        let manager = builder.build();
        scheduler::add_to(&manager);
        run(&mut running, "scheduler", manager, stop);
    }
    if wanted(Part::Nodes) {
        nodes(settings, gate, shared, stop, &mut running).await?;
    }
    if wanted(Part::Operators) {
        let client = client_of(gate, "system:stead:operators");
        install_definitions(&client).await?;
        let mut builder = Manager::builder(client);
        // `stead explain` asks there. Of several clusters on a machine the first is asked.
        if let Ok(listener) = std::net::TcpListener::bind(crate::commands::operator::PROBES) {
            builder = builder.probes(listener);
        }
        let manager = builder.build();
        let pods = ToPods(settings.network.clone());
        let dial = Arc::new(move |to: SocketAddr| pods.dial(to).unwrap_or_else(|| Box::pin(TcpStream::connect(to))));
        stead_webapp::WebAppOperator::add_with(&manager, Reach { dial, home: None });
        run(&mut running, "operators", manager, stop);
        let (watcher, stop) = (client_of(gate, "system:stead:operators"), stop.clone());
        running.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = rivals::look(watcher) => {}
            }
        });
    }
    Ok(running)
}

/// Starts the nodes; `known` is the cache of the controllers, if there are any.
async fn nodes(
    settings: &Settings,
    gate: &Gate,
    known: Option<Cache>,
    stop: &CancellationToken,
    running: &mut JoinSet<()>,
) -> Result<()> {
    let voices = identity::of_nodes(gate);
    identity::install_node_reader(&client_of(gate, "system:stead:bootstrap")).await?;
    let clock = Arc::new(MachineClock);
    let capacity = match settings.runtime {
        Runtime::Hollow => Capacity::hollow(),
        Runtime::Process => super::machine::capacity(settings.nodes),
    };
    let nodes = (0..settings.nodes)
        .map(|index| node::describe(index, settings.nodes, format!("node-{index}"), capacity.clone()))
        .collect();
    let stop = stop.clone();
    match settings.runtime {
        Runtime::Hollow => running.spawn(node::run_hollow(voices, clock, nodes, known, stop)),
        Runtime::Process => {
            let listener = TcpListener::bind("127.0.0.1:0")
                .await
                .context("cannot listen for the nodes")?;
            let tls = settings.kubelet.server.clone();
            let guard = node::server::Guard::Only(settings.kubelet.shown.clone());
            let processes = node::ProcessNodes {
                voices,
                clock,
                nodes,
                folder: settings.folder.clone(),
                hidden: settings.hidden.clone(),
                range: Range::Own,
                network: settings.network.clone(),
                images: settings.images.clone(),
                own: std::env::current_exe().context("cannot find this program's own file")?,
                serving: Some(node::server::Serving { listener, tls, guard }),
            };
            running.spawn(async move {
                if let Err(error) = node::run_processes(processes, stop).await {
                    tracing::error!(%error, "the nodes ended");
                }
            })
        }
    };
    Ok(())
}

/// The way to pods, for the API server, which starts before there are any.
pub struct ToPods(pub Arc<OnceLock<Arc<dyn Network>>>);

impl Dial for ToPods {
    fn dial(&self, to: SocketAddr) -> Option<BoxFuture<'static, std::io::Result<TcpStream>>> {
        let network = self.0.get().filter(|network| network.owns(to.ip()))?.clone();
        Some(Box::pin(async move { network.connect(to).await }))
    }
}

/// A client inside the process that is this user.
pub fn client_of(gate: &Gate, name: &str) -> kube::Client {
    identity::client(gate, User::named(name, &[MASTERS, AUTHENTICATED]))
}

fn run(running: &mut JoinSet<()>, part: &'static str, manager: Manager, stop: &CancellationToken) {
    let stop = stop.clone();
    running.spawn(async move {
        if let Err(error) = manager.run(stop.cancelled_owned()).await {
            tracing::error!(%error, part, "ended");
        }
    });
}

/// The definitions of our custom resources, as this version knows them.
async fn install_definitions(client: &kube::Client) -> Result<()> {
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let how = PatchParams::apply("stead-operator").force();
    for definition in stead_apis::definitions::all() {
        let name = definition.metadata.name.clone().unwrap_or_default();
        definitions
            .patch(&name, &how, &Patch::Apply(&definition))
            .await
            .with_context(|| format!("cannot install the definition {name}"))
            .hint("start without the operators: --parts api,controllers,scheduler,nodes")?;
    }
    Ok(())
}
