//! The controller manager: one controller for each duty, each in a file of its own.
//!
//! Every controller is a reconciler on our own framework, with the permissions it declares and no others.

pub mod abandoned;
pub mod addresses;
pub mod autoscaler;
pub mod certificates;
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
pub mod pod_control;
pub mod pods;
pub mod policy_types;
pub mod quota;
pub mod replicas;
pub mod role_aggregation;
pub mod root_certificates;
pub mod service_accounts;
pub mod stateful_set;
pub mod sweeping;
pub mod token_secrets;
pub mod trimming;
pub mod volumes;

use stead::{Error, Manager};

/// What the controllers need to know of the cluster they run in.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// The PEM of the authority that signed the API server's certificate, for `kube-root-ca.crt`.
    pub root_certificates: Option<String>,
    /// Where directories for volumes are made; without it nothing is provisioned.
    pub volumes: Option<volumes::Directories>,
    /// What signs certificate requests; without it nothing is signed.
    pub authority: Option<certificates::Authority>,
}

/// The service account, of the namespace `kube-system`, in whose name a controller acts. They are Kubernetes' own
/// names, so that its default roles and everybody's audit rules fit.
pub fn account(controller: &str) -> String {
    match controller {
        "clusterrole-aggregation"
        | "daemonset"
        | "deployment"
        | "disruption"
        | "endpointslice"
        | "ephemeral-volume"
        | "cronjob"
        | "job"
        | "namespace"
        | "pv-protection"
        | "pvc-protection"
        | "resourcequota"
        | "statefulset"
        | "replicaset" => {
            let stem = if controller == "daemonset" {
                "daemon-set"
            } else {
                controller
            };
            format!("{stem}-controller")
        }
        "ipallocator-release-controller" => "ipallocator-repair-controller".to_string(),
        "garbagecollector" => "generic-garbage-collector".to_string(),
        "persistentvolume-binder" | "persistentvolume-release" | "default-storage-class" => {
            "persistent-volume-binder".to_string()
        }
        "replicationcontroller" => "replication-controller".to_string(),
        "root-ca-certificate-publisher" => "root-ca-cert-publisher".to_string(),
        "node-lifecycle" => "node-controller".to_string(),
        "serviceaccount" => "service-account-controller".to_string(),
        other => other.to_string(),
    }
}

/// Adds every controller to a manager.
pub fn add_to(manager: &Manager, settings: &Settings) {
    trimming::for_controllers(manager.cache());
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
    policy_types::add_to(manager);
    autoscaler::add_to(manager);
    volumes::add_to(manager, settings.volumes.clone());
    addresses::add_to(manager);
    endpoint_slices::add_to(manager);
    endpoint_slices::mirroring::add_to(manager);
    namespaces::add_to(manager);
    service_accounts::add_to(manager);
    token_secrets::add_to(manager, settings.root_certificates.as_deref());
    sweeping::add_to(manager);
    if let Some(authority) = &settings.authority {
        certificates::add_to(manager, authority.clone());
    }
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
