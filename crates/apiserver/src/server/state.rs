//! What all requests of one server share.

use super::limits::{InFlight, Limits};
use super::metrics::Metrics;
use super::wires::Wires;
use crate::admission;
use crate::auth::Auth;
use crate::catalogue::Catalogue;
use crate::custom::{Definition, definitions};
use crate::discovery::Discovery;
use crate::environment::Environment;
use crate::kinds::service::{Cidr, address_ranges, node_ports};
use crate::openapi::OpenApi;
use crate::store::{Key, Revision, Store, View};
use crate::verbs::apply::Settled;
use arc_swap::ArcSwap;
use std::collections::BTreeMap;
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
    /// How the server presents itself to kubelets; without it, it speaks plain HTTP with them.
    pub kubelet: Option<Arc<rustls::ClientConfig>>,
    /// How the server reaches pods that are on a network of their own.
    pub wires: Wires,
    pub admission: admission::Settings,
}

/// Addresses and ports of the cluster.
pub struct Network {
    pub services: Cidr,
    pub advertised: Option<SocketAddr>,
    /// What ServiceCIDRs add to `services`.
    pub(crate) ranges: View<Vec<Cidr>>,
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
    /// The resources of Kubernetes itself, to which the definitions add theirs.
    base: Catalogue,
    definitions: View<Definition>,
    pub limits: Limits,
    pub network: Network,
    pub auth: Auth,
    pub(crate) kubelet: Option<Arc<rustls::ClientConfig>>,
    pub(crate) wires: Wires,
    /// What admission reads of the cluster.
    pub admission: Arc<admission::Views>,
    pub settings: admission::Settings,
    /// Applies that were found to change nothing.
    pub(crate) settled: Settled,
    pub(super) in_flight: InFlight,
    pub(crate) metrics: Metrics,
}

/// A catalogue and what is made from it.
pub struct Published {
    /// The newest change of a definition that the catalogue knows of.
    revision: Revision,
    pub catalogue: Arc<Catalogue>,
    pub discovery: Discovery,
    pub openapi: OpenApi,
}

impl Published {
    fn new(catalogue: Arc<Catalogue>, revision: Revision) -> Self {
        Published {
            revision,
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
            kubelet: None,
            wires: Wires::default(),
            admission: admission::Settings::default(),
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
            settled: Settled::default(),
            metrics: Metrics::new(config.environment.clock.now()),
            admission: Arc::new(admission::Views::new(&config.store)),
            settings: config.admission,
            store: config.store,
            environment: config.environment,
            published: ArcSwap::from_pointee(Published::new(Arc::new(config.catalogue.clone()), Revision(0))),
            base: config.catalogue,
            definitions: definitions(),
            limits: config.limits,
            kubelet: config.kubelet,
            wires: config.wires,
            network: Network {
                services: config.services,
                advertised: config.advertised,
                ranges: address_ranges(),
                ports: node_ports(),
                ports_lock: Arc::default(),
            },
        }
    }

    /// The resources served at this moment.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.published().catalogue.clone()
    }

    /// The documents that describe those resources.
    ///
    /// They are made anew whenever a definition has changed since the last time that anybody asked, so that
    /// a definition is served from the request after the one that wrote it, by every server of a store.
    pub fn published(&self) -> Arc<Published> {
        let (revision, definitions) = self.definitions.read_at(&self.store);
        let published = self.published.load_full();
        if published.revision >= revision {
            return published;
        }
        let mut catalogue = self.base.clone();
        for resource in definitions.values().flat_map(|definition| &definition.resources) {
            if catalogue
                .get(&resource.group, &resource.version, &resource.plural)
                .is_none()
            {
                catalogue.insert((**resource).clone());
            }
        }
        let published = Arc::new(Published::new(Arc::new(catalogue), revision));
        self.published.store(published.clone());
        published
    }

    /// The definitions as they are now.
    pub fn definitions(&self) -> Arc<BTreeMap<Key, Arc<Definition>>> {
        self.definitions.read(&self.store)
    }
}
