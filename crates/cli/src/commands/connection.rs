//! How commands reach a cluster that somebody else runs, and how they are told to stop.

use crate::failure::Hint;
use anyhow::{Context, Result, anyhow};
use kube::config::KubeconfigError;
use kube::{Client, Config};
use std::io::ErrorKind;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// The cluster that KUBECONFIG or the in-cluster account names.
pub async fn configuration() -> Result<Config> {
    let error = match Config::infer().await {
        Ok(config) => return Ok(config),
        Err(error) => error,
    };
    // In a pod its account is meant, and a kubeconfig is not missed.
    if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some()
        && let Err(error) = Config::incluster()
    {
        return Err(anyhow!("no cluster is configured: {error}"))
            .hint("mount the token of the pod's service account, or set KUBECONFIG to a kubeconfig");
    }
    let source = std::error::Error::source(&error);
    match source.and_then(|source| source.downcast_ref::<KubeconfigError>()) {
        Some(kubeconfig) => Err(unusable(kubeconfig)).hint(WHAT_TO_DO),
        None => Err(anyhow!("no cluster is configured: {error}")).hint(WHAT_TO_DO),
    }
}

const WHAT_TO_DO: &str = "set KUBECONFIG to the kubeconfig of a cluster; `stead up` prints one";

/// What is wrong with a kubeconfig, once: its errors repeat their causes.
fn unusable(error: &KubeconfigError) -> anyhow::Error {
    match error {
        KubeconfigError::ReadConfig(cause, path) if cause.kind() == ErrorKind::NotFound => {
            anyhow!("no cluster is configured: there is no kubeconfig {}", path.display())
        }
        KubeconfigError::ReadConfig(cause, path) => anyhow!("cannot read the kubeconfig {}: {cause}", path.display()),
        KubeconfigError::FindPath => anyhow!("no cluster is configured: neither KUBECONFIG nor HOME is set"),
        other => anyhow!("cannot use the kubeconfig: {other}"),
    }
}

/// A client of a cluster; it connects when it is used.
pub fn client(config: Config) -> Result<Client> {
    Client::try_from(config)
        .context("cannot use the kubeconfig")
        .hint("check its certificates and keys")
}

/// Runs a command that talks to a cluster.
pub fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start")?;
    let outcome = runtime.block_on(work);
    // Whatever still runs after the drain is not worth waiting for.
    runtime.shutdown_timeout(std::time::Duration::from_secs(1));
    outcome
}

/// Cancelled by the first SIGINT or SIGTERM. A second one ends the process at once.
pub fn stop_on_signal() -> Result<CancellationToken> {
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot listen for SIGINT")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    let stop = CancellationToken::new();
    let token = stop.clone();
    tokio::spawn(async move {
        loop {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
            if token.is_cancelled() {
                // Whoever asks twice is in a hurry; what was answered is on disk already.
                std::process::exit(130);
            }
            token.cancel();
        }
    });
    Ok(stop)
}

/// Objects that commands read: in a namespace, and of a kind that is known when this is compiled.
pub trait Readable:
    kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
    + Clone
    + std::fmt::Debug
    + serde::de::DeserializeOwned
{
}

impl<K> Readable for K where
    K: kube::Resource<Scope = kube::core::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
{
}

/// Every object of a kind that a label selector chooses.
pub async fn list<K: Readable>(client: &Client, namespace: &str, labels: &str) -> Result<Vec<K>> {
    let api: kube::Api<K> = kube::Api::namespaced(client.clone(), namespace);
    let found = api
        .list(&kube::api::ListParams::default().labels(labels))
        .await
        .with_context(|| format!("cannot list {}", K::plural(&())))
        .hint("the account of the kubeconfig must be able to list them")?;
    Ok(found.items)
}

/// One object, if it is there.
pub async fn get<K: Readable>(client: &Client, namespace: &str, name: &str) -> Result<Option<K>> {
    let api: kube::Api<K> = kube::Api::namespaced(client.clone(), namespace);
    api.get_opt(name)
        .await
        .with_context(|| format!("cannot read {} {name}", K::kind(&())))
        .hint("the account of the kubeconfig must be able to read it")
}

/// A kind that commands know.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// A web application
    #[value(alias = "webapps", alias = "webapp.stead.dev", alias = "webapps.stead.dev")]
    Webapp,
}

/// The name of an object: anything else would be another address of the API.
fn object_name(text: &str) -> Result<String, String> {
    match stead_machinery::names::dns1123_subdomain(text).into_iter().next() {
        Some(problem) => Err(problem),
        None => Ok(text.to_owned()),
    }
}

/// An application, as commands name it.
#[derive(clap::Args)]
pub struct App {
    /// The kind of the object
    #[arg(value_enum)]
    pub kind: Kind,
    /// Its name
    #[arg(value_parser = object_name)]
    pub name: String,
    /// Its namespace (default: that of the kubeconfig)
    #[arg(short, long, value_name = "NS")]
    pub namespace: Option<String>,
}

impl App {
    /// A client, and the namespace of the application.
    pub async fn client(&self) -> Result<(Client, String)> {
        let config = configuration().await?;
        let namespace = self.namespace.clone();
        let namespace = namespace.unwrap_or_else(|| config.default_namespace.clone());
        Ok((client(config)?, namespace))
    }

    /// The application as it is now.
    pub async fn get(&self, apps: &kube::Api<stead_apis::WebApp>) -> Result<stead_apis::WebApp> {
        apps.get(&self.name)
            .await
            .with_context(|| format!("cannot read webapp {}", self.name))
            .hint("`kubectl get webapps -A` lists them; -n chooses the namespace")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_kubeconfig_is_said_once() {
        let missing = KubeconfigError::ReadConfig(ErrorKind::NotFound.into(), "/none".into());
        let (text, hint) = crate::failure::describe(&Err::<(), _>(unusable(&missing)).hint(WHAT_TO_DO).unwrap_err());
        assert_eq!(text, "no cluster is configured: there is no kubeconfig /none");
        assert_eq!(hint.as_deref(), Some(WHAT_TO_DO));
        let closed = KubeconfigError::ReadConfig(ErrorKind::PermissionDenied.into(), "/closed".into());
        let text = crate::failure::told(&unusable(&closed));
        assert_eq!(text, "cannot read the kubeconfig /closed: permission denied");
    }
}
