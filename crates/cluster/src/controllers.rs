//! The controller manager: one controller for each duty, each in a file of its own.
//!
//! Every controller is a reconciler on our own framework, with the permissions it declares and no others.

pub mod cron_job;
pub mod daemon_set;
pub mod deployment;
pub mod discovery;
pub mod disruption;
pub mod endpoint_slices;
pub mod garbage;
pub mod history;
pub mod job;
pub mod namespaces;
pub mod node_lifecycle;
pub mod ownership;
pub mod pods;
pub mod quota;
pub mod replicas;
pub mod role_aggregation;
pub mod root_certificates;
pub mod service_accounts;
pub mod stateful_set;

use stead::{Error, Manager};

/// What the controllers need to know of the cluster they run in.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The PEM of the authority that signed the API server's certificate, for `kube-root-ca.crt`.
    pub root_certificates: Option<String>,
}

/// Adds every controller to a manager.
pub fn add_to(manager: &Manager, settings: &Settings) {
    replicas::add_replica_sets(manager);
    replicas::add_replication_controllers(manager);
    deployment::add_to(manager);
    stateful_set::add_to(manager);
    job::add_to(manager);
    cron_job::add_to(manager);
    daemon_set::add_to(manager);
    disruption::add_to(manager);
    quota::add_to(manager);
    role_aggregation::add_to(manager);
    endpoint_slices::add_to(manager);
    endpoint_slices::mirroring::add_to(manager);
    namespaces::add_to(manager);
    service_accounts::add_to(manager);
    if let Some(pem) = &settings.root_certificates {
        root_certificates::add_to(manager, pem);
    }
    node_lifecycle::add_to(manager);
    garbage::add_to(manager);
}

/// The answer of a create whose object may be there already: made by an earlier try whose answer was lost, or by
/// somebody else. Either way the next look sees it.
fn created<K>(answer: Result<K, Error>) -> Result<(), Error> {
    match answer {
        Err(Error::Api {
            source: kube::Error::Api(status),
            ..
        }) if status.reason == "AlreadyExists" => Ok(()),
        other => other.map(drop),
    }
}
