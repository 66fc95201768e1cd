//! What all requests of one server share.

use super::limits::{InFlight, Limits};
use super::metrics::Metrics;
use crate::catalogue::Catalogue;
use crate::environment::Environment;
use crate::store::Store;
use arc_swap::ArcSwap;
use std::sync::Arc;

/// What a server is made of.
pub struct Config {
    pub store: Store,
    pub environment: Environment,
    pub catalogue: Catalogue,
    pub limits: Limits,
}

/// The state of one server.
pub struct Shared {
    pub store: Store,
    pub environment: Environment,
    /// The resources served at this moment; replaced as a whole when a definition changes.
    pub catalogue: ArcSwap<Catalogue>,
    pub limits: Limits,
    pub(super) in_flight: InFlight,
    pub(crate) metrics: Metrics,
}

impl Config {
    pub fn new(store: Store, environment: Environment, catalogue: Catalogue) -> Self {
        Config {
            store,
            environment,
            catalogue,
            limits: Limits::default(),
        }
    }
}

impl Shared {
    pub(super) fn new(config: Config) -> Self {
        Shared {
            in_flight: InFlight::new(&config.limits),
            metrics: Metrics::new(config.environment.clock.now()),
            store: config.store,
            environment: config.environment,
            catalogue: ArcSwap::from_pointee(config.catalogue),
            limits: config.limits,
        }
    }

    /// The resources served at this moment.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.catalogue.load_full()
    }
}
