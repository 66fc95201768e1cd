//! The manager: starts and stops everything in one process, in a fixed order.
//!
//! It owns the shared cache, decides who leads, serves probes and metrics, and drains on shutdown.

mod phases;

pub use phases::Phase;

use crate::cache::{Cache, CacheSettings, Namespaces};
use crate::clock::{self, Clock};
use crate::controller::{Controller, ControllerHandle, Runtime, Surroundings};
use crate::events::{self, Poster, Recorder};
use crate::history::Memory;
use crate::leader::{Fence, LeaderElection};
use crate::metrics::Metrics;
use crate::rbac::Rule;
use crate::webhook::{WebhookOptions, Webhooks};
use crate::writer::{Mode, Writer};
use http::HeaderValue;
use kube::Client;
use parking_lot::Mutex;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// How long a shutdown waits for reconciles that run.
const DRAIN: Duration = Duration::from_secs(25);

/// Everything that can be set.
#[derive(Clone)]
pub struct ManagerOptions {
    /// The program's name: in events, in the User-Agent, and by default the field manager.
    pub name: String,
    /// The name under which the API server remembers which fields we set.
    pub field_manager: String,
    /// This replica's name.
    pub identity: String,
    /// Where it works.
    pub namespaces: Namespaces,
    /// How the cache talks to the API server.
    pub cache: CacheSettings,
    /// Where wall-clock time comes from.
    pub clock: Arc<dyn Clock>,
    /// Whether writes are sent.
    pub mode: Mode,
    /// How long a shutdown waits for reconciles that run.
    pub drain: Duration,
    /// None: no election, this process always writes.
    pub election: Option<LeaderElection>,
    /// The seed of jitter and reconcile ids; a test sets it to repeat a run.
    pub seed: u64,
    /// None: every controller is who the manager is.
    pub identities: Option<Identities>,
    /// What is remembered of the runs of controllers, for whoever asks why.
    pub memory: Memory,
}

/// The client with which a controller acts, by its name; none for one that is who the manager is.
pub type Identities = Arc<dyn Fn(&str) -> Option<Client> + Send + Sync>;

/// A manager under construction.
pub struct ManagerBuilder {
    client: Client,
    options: ManagerOptions,
    shared: Option<Cache>,
    probes: Option<TcpListener>,
    metrics: Option<TcpListener>,
    webhooks: Option<Hooks>,
}

/// Webhooks, until they are served.
struct Hooks {
    listener: TcpListener,
    options: WebhookOptions,
    webhooks: Webhooks,
}

/// Many controllers in one process.
pub struct Manager {
    options: ManagerOptions,
    client: Client,
    /// The client without fence, for the Lease.
    unfenced: Client,
    cache: Cache,
    metrics: Metrics,
    fence: Fence,
    recorder: Recorder,
    poster: Mutex<Option<Poster>>,
    controllers: Mutex<Vec<Runtime>>,
    handles: Arc<Mutex<Vec<ControllerHandle>>>,
    /// What each controller declared.
    rules: Mutex<Vec<(String, Vec<Rule>)>>,
    listeners: Mutex<Listeners>,
}

/// Where the manager answers, until it does.
#[derive(Default)]
struct Listeners {
    probes: Option<TcpListener>,
    metrics: Option<TcpListener>,
    webhooks: Option<Hooks>,
}

impl ManagerBuilder {
    /// The program's name, and by default its field manager.
    pub fn name(mut self, name: &str) -> Self {
        self.options.name = name.to_owned();
        self.options.field_manager = name.to_owned();
        self
    }

    /// The name under which the API server remembers which fields we set. Changing it orphans what the old name
    /// owns, so it is set once for ever.
    pub fn field_manager(mut self, name: &str) -> Self {
        self.options.field_manager = name.to_owned();
        self
    }

    /// This replica's name: in the Lease and in the User-Agent.
    pub fn identity(mut self, identity: &str) -> Self {
        self.options.identity = identity.to_owned();
        self
    }

    /// Works in these namespaces only.
    pub fn namespaces(mut self, namespaces: Namespaces) -> Self {
        self.options.namespaces = namespaces;
        self
    }

    /// How the cache talks to the API server.
    pub fn cache(mut self, settings: CacheSettings) -> Self {
        self.options.cache = settings;
        self
    }

    /// Where wall-clock time comes from.
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.options.clock = clock;
        self
    }

    /// Runs everything but the writes.
    pub fn dry_run(mut self) -> Self {
        self.options.mode = Mode::DryRun;
        self
    }

    /// How long a shutdown waits for reconciles that run.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.options.drain = drain;
        self
    }

    /// Elects a leader among replicas; only the leader writes.
    pub fn leader_election(mut self, election: LeaderElection) -> Self {
        self.options.election = Some(election);
        self
    }

    /// Serves `/healthz`, `/readyz` and, to this machine alone, `/debug/reconciles`.
    pub fn probes(mut self, listener: TcpListener) -> Self {
        self.probes = Some(listener);
        self
    }

    /// Serves `/metrics`.
    pub fn metrics(mut self, listener: TcpListener) -> Self {
        self.metrics = Some(listener);
        self
    }

    /// Serves webhooks with certificates of their own. Standbys serve them too.
    pub fn webhooks(mut self, listener: TcpListener, options: WebhookOptions, webhooks: Webhooks) -> Self {
        self.webhooks = Some(Hooks {
            listener,
            options,
            webhooks,
        });
        self
    }

    /// The seed of everything random, to repeat a run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.options.seed = seed;
        self
    }

    /// Lets each controller act in a name of its own, with no more rights than it declares. The cache, shared by all,
    /// reads with the manager's client.
    pub fn identities(mut self, identities: Identities) -> Self {
        self.options.identities = Some(identities);
        self
    }

    /// Reads from the cache of another manager of this process, as whoever that one is, instead of keeping a second
    /// copy of everything. Whichever of them ends first ends the cache.
    pub fn sharing(mut self, cache: &Cache) -> Self {
        self.shared = Some(cache.clone());
        self
    }

    /// Says what is remembered of the runs of controllers.
    pub fn memory(mut self, memory: Memory) -> Self {
        self.options.memory = memory;
        self
    }

    /// A manager without controllers.
    pub fn build(self) -> Manager {
        let options = self.options;
        let metrics = Metrics::default();
        let fence = match options.election {
            Some(_) => Fence::closed(),
            None => Fence::open(),
        };
        let agent = user_agent(&options);
        let wrap = |fence| crate::client::wrap(self.client.clone(), fence, metrics.clone(), agent.clone());
        let (client, unfenced) = (wrap(fence.clone()), wrap(Fence::open()));
        let own = || {
            let (namespaces, settings) = (options.namespaces.clone(), options.cache.clone());
            Cache::new(client.clone(), namespaces, settings, metrics.clone())
        };
        let cache = self.shared.unwrap_or_else(own);
        let dropped = metrics
            .registry()
            .counter("stead_events_dropped_total", "Events that were not sent.", &[]);
        let (recorder, poster) = events::channel(
            client.clone(),
            options.clock.clone(),
            &options.name,
            &options.identity,
            dropped,
        );
        Manager {
            options,
            client,
            unfenced,
            cache,
            metrics,
            fence,
            recorder,
            poster: Mutex::new(Some(poster)),
            controllers: Mutex::default(),
            handles: Arc::default(),
            rules: Mutex::default(),
            listeners: Mutex::new(Listeners {
                probes: self.probes,
                metrics: self.metrics,
                webhooks: self.webhooks,
            }),
        }
    }
}

impl Manager {
    /// A manager that talks to a cluster with this client.
    pub fn builder(client: Client) -> ManagerBuilder {
        ManagerBuilder {
            client,
            shared: None,
            probes: None,
            metrics: None,
            webhooks: None,
            options: ManagerOptions {
                name: "stead-operator".to_owned(),
                field_manager: "stead-operator".to_owned(),
                identity: format!("{:08x}", rand::random::<u32>()),
                namespaces: Namespaces::All,
                cache: CacheSettings::default(),
                clock: clock::system(),
                mode: Mode::Live,
                drain: DRAIN,
                election: None,
                seed: rand::random(),
                identities: None,
                memory: Memory::default(),
            },
        }
    }

    /// The shared cache. Stores that are asked for before [`Manager::run`] are filled before controllers start.
    pub fn cache(&self) -> &Cache {
        &self.cache
    }

    /// The client: measured, and fenced by leadership.
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// What is measured.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// A writer outside of any reconcile.
    pub fn writer(&self) -> Writer {
        Writer::new(self.client.clone(), &self.options.field_manager, self.options.mode)
    }

    /// The least permissions that the controllers added so far need, in a fixed order.
    pub fn rbac(&self) -> Vec<Rule> {
        let rules = self.rules.lock();
        Rule::merge(rules.iter().flat_map(|(_, rules)| rules.clone()).collect())
    }

    /// The least permissions of each controller added so far, by its name.
    pub fn rbac_by_controller(&self) -> Vec<(String, Vec<Rule>)> {
        self.rules.lock().clone()
    }

    /// The client with which a controller acts.
    fn client_of(&self, controller: &str) -> Client {
        let own = self
            .options
            .identities
            .as_ref()
            .and_then(|identities| identities(controller));
        match own {
            Some(client) => {
                let agent = user_agent(&self.options);
                crate::client::wrap(client, self.fence.clone(), self.metrics.clone(), agent)
            }
            None => self.client.clone(),
        }
    }

    /// Adds a controller. Its sources are watched from [`Manager::run`] on.
    pub fn add(&self, controller: Controller) -> ControllerHandle {
        self.rules
            .lock()
            .push((controller.name().to_owned(), controller.rbac()));
        let client = self.client_of(controller.name());
        let runtime = Runtime::connect(
            controller,
            Surroundings {
                writer: Writer::new(client.clone(), &self.options.field_manager, self.options.mode),
                client,
                cache: self.cache.clone(),
                clock: self.options.clock.clone(),
                events: self.recorder.clone(),
                fence: self.fence.clone(),
                metrics: self.metrics.clone(),
                seed: self.options.seed,
                memory: self.options.memory,
            },
        );
        let handle = ControllerHandle {
            name: runtime.name.clone(),
            queue: runtime.queue.clone(),
            history: runtime.history.clone(),
            root: runtime.root.clone(),
            resync: runtime.resync_period(),
        };
        self.controllers.lock().push(runtime);
        self.handles.lock().push(handle.clone());
        handle
    }
}

/// `NAME/VERSION (IDENTITY)`, so that an audit log tells replicas apart.
fn user_agent(options: &ManagerOptions) -> Option<HeaderValue> {
    let text = format!("{}/{} ({})", options.name, env!("CARGO_PKG_VERSION"), options.identity);
    HeaderValue::from_str(&text).ok()
}
