//! Starting the parts of a cluster in their order, and ending them in the reverse one.

use super::kubeconfig::Shared;
use super::listen::{self, Bound};
use super::{Arguments, AuditLevel, kubeconfig, parts};
use crate::failure::Hint;
use crate::home::{Home, Life};
use crate::places;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_apiserver::audit::{AuditLog, Level};
use stead_apiserver::auth::certificates::{Pki, server_config};
use stead_apiserver::auth::directory::StoreDirectory;
use stead_apiserver::auth::tokens::{DEFAULT_ISSUER, Issuer};
use stead_apiserver::auth::{Auth, StaticTokens};
use stead_apiserver::catalogue::Catalogue;
use stead_apiserver::environment::Environment;
use stead_apiserver::gate::Gate;
use stead_apiserver::server::wires::Wires;
use stead_apiserver::server::{ApiServer, Config};
use stead_apiserver::store::{EtcdAddress, History, Store};
use stead_cluster::controllers::certificates::Authority;
use stead_cluster::node::process::images::Places;
use stead_cluster::node::server::identity::Identity;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

/// Names under which pods and people reach the API server.
const NAMES: [&str; 8] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
    "10.96.0.1",
];

/// A cluster that serves.
pub struct Running {
    pub kubeconfig: PathBuf,
    /// `https://127.0.0.1:6443`.
    pub server: String,
    /// A client of the cluster's administrator, inside this process.
    pub client: kube::Client,
    listener: JoinHandle<()>,
    parts: JoinSet<()>,
    /// Dropped last: it lets go of the directory.
    _home: Home,
}

impl Running {
    /// Waits until the cluster has been told to stop and has done so.
    pub async fn finished(self) -> Result<()> {
        self.listener.await.context("the server ended unexpectedly")?;
        // They write their last words through the server's value, which needs no listener.
        self.parts.join_all().await;
        Ok(())
    }
}

/// Starts what the arguments ask for; everything serves when this returns.
pub async fn start(arguments: Arguments, home: Home, stop: CancellationToken) -> Result<Running> {
    let environment = Environment::real();
    let life = home.life;
    // Before anything runs that a wrong file would have to end.
    let given = arguments.kubeconfig.clone().map(|path| Ok(Shared::given(path)));
    let own = arguments.merge_kubeconfig.then(Shared::users_own);
    let shared: Vec<Shared> = given.into_iter().chain(own).collect::<Result<_>>()?;
    shared.iter().try_for_each(Shared::check)?;
    let bound = match &arguments.listen {
        Some(address) => listen::given(address)?,
        None => listen::remembered(&home.path)?,
    };
    let pki = credentials(&home.path, life, &bound, &environment)?;
    let audit = audit_log(&arguments)?;
    let store = open_store(&home.path, life, arguments.store.as_ref(), &environment).await?;
    let advertised = bound.socket.local_addr().ok();
    let doors: Vec<String> = (0..arguments.nodes.max(1))
        .map(|index| stead_cluster::node::loopback(index).to_string())
        .collect();
    let trust = Identity::generate(&doors, &pki.authority.certificate, &pki.authority.key)
        .context("cannot make the nodes' certificates")?;
    let network = Arc::default();
    let wires = Wires::through(Arc::new(parts::ToPods(Arc::clone(&network))));
    let server = api_server(store, environment.clone(), &pki, advertised, &trust, wires).await?;
    let tls = server_config(&pki, environment.clock.clone())?;
    let socket = listen::into_tokio(bound.socket)?;
    let gate = Gate::new(server, audit);
    let listener = tokio::spawn(gate.clone().serve(socket, tls, stop.clone()));
    let is_given = arguments.kubeconfig.is_some();
    let path = arguments.kubeconfig.unwrap_or_else(|| home.path.join("kubeconfig"));
    let path = std::path::absolute(&path).unwrap_or(path);
    // They hold the administrator's key.
    let written = std::iter::once(path.clone()).chain(shared.iter().map(Shared::place));
    home.remember(written)?;
    // Before any pod starts: only a file that is there can be hidden from it.
    let config = kubeconfig::build(&pki, &bound.server);
    if !is_given {
        kubeconfig::write(&path, &config)?;
    }
    for file in &shared {
        file.merge(&config)?;
    }
    let hidden = places::private(&home.path);
    let settings = parts::Settings {
        parts: arguments.parts,
        nodes: arguments.nodes,
        runtime: arguments.runtime,
        authority: pki.authority.certificate.clone(),
        signer: Authority::new(pki.authority.certificate.clone(), pki.authority.key.clone()),
        folder: home.path.join("nodes"),
        hidden,
        network,
        images: Places {
            entries: Some(arguments.images.unwrap_or_else(|| home.path.join("images.yaml"))),
            store: places::images().ok(),
        },
        volumes: home.path.join("volumes"),
        kubelet: trust,
    };
    let parts = parts::start(&settings, &gate, &stop).await?;
    Ok(Running {
        kubeconfig: path,
        server: format!("https://{}", bound.server),
        client: parts::client_of(&gate, "kubernetes-admin"),
        listener,
        parts,
        _home: home,
    })
}

fn credentials(home: &Path, life: Life, bound: &Bound, environment: &Environment) -> Result<Pki> {
    let mut names: Vec<String> = NAMES.iter().map(|name| (*name).to_string()).collect();
    if !bound.host.is_empty() && !names.contains(&bound.host) {
        names.push(bound.host.clone());
    }
    let now = environment.clock.now();
    match life {
        Life::Ephemeral => Pki::generate(&names, now),
        Life::Durable => Pki::open(&home.join("pki"), &names, now),
    }
    .context("cannot prepare the cluster's certificates")
    .hint("remove the directory `pki` in the data directory to have them made anew")
}

fn audit_log(arguments: &Arguments) -> Result<Option<AuditLog>> {
    let Some(path) = &arguments.audit_log else {
        return Ok(None);
    };
    let level = match arguments.audit_level {
        AuditLevel::Metadata => Level::Metadata,
        AuditLevel::Request => Level::Request,
    };
    let log = AuditLog::open(path, level)
        .with_context(|| format!("cannot write the audit log {}", path.display()))
        .hint("choose a file that you may write, with --audit-log FILE")?;
    Ok(Some(log))
}

async fn open_store(home: &Path, life: Life, etcd: Option<&EtcdAddress>, environment: &Environment) -> Result<Store> {
    let clock = environment.clock.clone();
    match (etcd, life) {
        (Some(address), _) => Store::connect(address, clock, History::default())
            .await
            .context("cannot reach the store")
            .hint("start etcd, or check the addresses in --store"),
        (None, Life::Ephemeral) => Ok(Store::in_memory(clock, History::default())),
        (None, Life::Durable) => Store::open(&home.join("store"), clock, History::default())
            .context("cannot open the cluster's store")
            .hint("choose another directory with --data DIR, or use --ephemeral"),
    }
}

async fn api_server(
    store: Store,
    environment: Environment,
    pki: &Pki,
    advertised: Option<SocketAddr>,
    trust: &Identity,
    wires: Wires,
) -> Result<ApiServer> {
    let issuer =
        Issuer::from_pem(&pki.token_key, DEFAULT_ISSUER).context("cannot use the key for service-account tokens")?;
    let directory = Arc::new(StoreDirectory::new(store.clone()));
    let auth = Auth::new(directory, environment.clone(), issuer, StaticTokens::default());
    let mut config = Config::new(store, environment, Catalogue::with_usage());
    config.auth = Some(auth);
    config.advertised = advertised;
    config.kubelet = Some(trust.client.clone());
    config.wires = wires;
    ApiServer::new(config).await.context("cannot start the API server")
}
