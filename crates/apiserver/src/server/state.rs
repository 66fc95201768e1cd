//! What all requests of one server share.

use super::limits::{InFlight, Limits};
use super::metrics::Metrics;
use crate::auth::Auth;
use crate::catalogue::Catalogue;
use crate::discovery::Discovery;
use crate::environment::Environment;
use crate::kinds::service::{Cidr, node_ports};
use crate::openapi::OpenApi;
use crate::store::{Store, View};
use arc_swap::ArcSwap;
use std::net::SocketAddr;
use std::sync::Arc;

/// What a server is made of.
pub struct Config {
    pub store: Store,
    pub environment: Environment,
    pub catalogue: Catalogue,
    pub limits: Limits,
    /// The range that services get their addresses from.
    pub services: Cidr,
    /// The address under which clients reach this server; the `kubernetes` service leads there.
    pub advertised: Option<SocketAddr>,
    /// Who asks and what they may do; by default with a token key of its own.
    pub auth: Option<Auth>,
}

/// Addresses and ports of the cluster.
pub struct Network {
    pub services: Cidr,
    pub advertised: Option<SocketAddr>,
    pub(crate) ports: View<Vec<i64>>,
    /// Held while a service's ports are chosen and stored.
    pub(crate) ports_lock: Arc<tokio::sync::Mutex<()>>,
}

/// The state of one server.
pub struct Shared {
    pub store: Store,
    pub environment: Environment,
    /// The resources served at this moment; replaced as a whole when a definition changes.
    published: ArcSwap<Published>,
    pub limits: Limits,
    pub network: Network,
    pub auth: Auth,
    pub(super) in_flight: InFlight,
    pub(crate) metrics: Metrics,
}

/// A catalogue and what is made from it.
pub struct Published {
    pub catalogue: Arc<Catalogue>,
    pub discovery: Discovery,
    pub openapi: OpenApi,
}

impl Published {
    fn new(catalogue: Arc<Catalogue>) -> Self {
        Published {
            discovery: Discovery::new(catalogue.clone()),
            openapi: OpenApi::new(catalogue.clone()),
            catalogue,
        }
    }
}

impl Config {
    pub fn new(store: Store, environment: Environment, catalogue: Catalogue) -> Self {
        Config {
            store,
            environment,
            catalogue,
            limits: Limits::default(),
            services: Cidr::default(),
            advertised: None,
            auth: None,
        }
    }
}

impl Shared {
    pub(super) fn new(config: Config) -> Self {
        let auth = config
            .auth
            .unwrap_or_else(|| Auth::of_store(config.store.clone(), config.environment.clone()));
        Shared {
            auth,
            in_flight: InFlight::new(&config.limits),
            metrics: Metrics::new(config.environment.clock.now()),
            store: config.store,
            environment: config.environment,
            published: ArcSwap::from_pointee(Published::new(Arc::new(config.catalogue))),
            limits: config.limits,
            network: Network {
                services: config.services,
                advertised: config.advertised,
                ports: node_ports(),
                ports_lock: Arc::default(),
            },
        }
    }

    /// The resources served at this moment.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.published.load().catalogue.clone()
    }

    /// The documents that describe those resources.
    pub fn published(&self) -> Arc<Published> {
        self.published.load_full()
    }

    /// Serves another set of resources from now on.
    pub fn publish(&self, catalogue: Arc<Catalogue>) {
        self.published.store(Arc::new(Published::new(catalogue)));
    }
}
