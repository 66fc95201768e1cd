//! Slices that mirror Endpoints which somebody wrote by hand.
//!
//! A Service without a selector gets its addresses from an Endpoints object of the same name; everything that
//! balances reads slices only, so what the object says is copied into them.

mod build;

use super::{put_slices, service_of, slices_of};
use k8s_openapi::api::core::v1::{Endpoints, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use stead::{Context, Controller, Error, Key, Manager, Outcome, Reconciler, Rule, Source, Store, Watch};

/// The slices that this controller made.
const OURS: &str = "endpointslice.kubernetes.io/managed-by=endpointslicemirroring-controller.k8s.io";

/// Adds the controller that mirrors Endpoints.
pub fn add_to(manager: &Manager) {
    let cache = manager.cache();
    let reconciler = Mirror {
        services: cache.store(),
        endpoints: cache.store(),
        slices: cache.watch(Watch::all().labels(OURS)),
    };
    let controller = Controller::new("endpointslicemirroring", reconciler)
        .for_::<Endpoints>()
        .watches::<Service>(|service| vec![Key::of(service)])
        .watches_source(Source::<EndpointSlice>::from(Watch::all().labels(OURS)), |slice| {
            service_of(slice).into_iter().collect()
        })
        .may(Rule::new(
            "discovery.k8s.io",
            &["endpointslices"],
            &["create", "update", "delete"],
        ))
        .without_resync()
        .concurrency(4);
    manager.add(controller);
}

struct Mirror {
    services: Store<Service>,
    endpoints: Store<Endpoints>,
    slices: Store<EndpointSlice>,
}

impl Reconciler for Mirror {
    async fn reconcile(&self, context: &Context, key: &Key) -> Result<Outcome, Error> {
        let have = slices_of(&self.slices, key);
        let service = self.services.get(key);
        let wanted = match (self.endpoints.get(key), service) {
            (Some(endpoints), Some(service)) if build::is_mirrored(&endpoints, &service) => build::slices(&endpoints),
            _ => Vec::new(),
        };
        put_slices(context, &wanted, &have).await?;
        Ok(Outcome::Settled)
    }
}
