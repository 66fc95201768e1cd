//! An API server in the same process, on the machine's own clock: a few milliseconds to start, nothing to clean up.

use kube::Client;
use stead_apiserver::admission::{ServiceAccounts, Settings};
use stead_apiserver::catalogue::Catalogue;
use stead_apiserver::environment::Environment;
use stead_apiserver::server::{ApiServer, Config};
use stead_apiserver::store::{History, Store, StoreError};

/// A client of a new, empty API server that lives as long as its clients. [`Cluster`](crate::Cluster) can do more.
pub async fn client() -> Result<Client, StoreError> {
    start(Settings::default()).await
}

/// The same, as strict as a cluster that has its controllers: pods need the service account that they name.
pub async fn strict_client() -> Result<Client, StoreError> {
    start(Settings {
        service_accounts: ServiceAccounts::Required,
    })
    .await
}

async fn start(admission: Settings) -> Result<Client, StoreError> {
    let environment = Environment::real();
    let store = Store::in_memory(environment.clock.clone(), History::default());
    let mut config = Config::new(store, environment, Catalogue::with_usage());
    config.admission = admission;
    Ok(Client::new(ApiServer::new(config).await?, "default"))
}
