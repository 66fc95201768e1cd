//! The task that keeps certificates and configurations current.
//!
//! It runs in every replica, standbys too: each serves webhooks and needs the certificate. Replicas share it
//! through one Secret, and every write carries the version that was read, so two that renew at the same time
//! cannot overwrite each other.

use super::certificates::{Material, Names};
use super::injection::Target;
use super::tls::Reloading;
use crate::clock::Clock;
use base64::Engine;
use http::Request;
use kube::Client;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Where certificates are kept, and who has to know them.
#[derive(Clone, Debug)]
pub struct WebhookOptions {
    /// Where the Secret is.
    pub namespace: String,
    /// The Secret that all replicas share.
    pub secret: String,
    /// The host names under which the API server reaches us: those of the Service, or of a developer's machine.
    pub names: Names,
    /// The configurations whose `caBundle` is kept current.
    pub targets: Vec<Target>,
    /// How often everything is looked at.
    pub every: Duration,
}

impl WebhookOptions {
    /// For a Service in a namespace.
    pub fn service(namespace: &str, service: &str) -> Self {
        WebhookOptions {
            namespace: namespace.to_owned(),
            secret: format!("{service}-certificates"),
            names: vec![
                format!("{service}.{namespace}.svc"),
                format!("{service}.{namespace}.svc.cluster.local"),
            ],
            targets: Vec::new(),
            every: Duration::from_secs(30),
        }
    }

    /// A configuration whose `caBundle` is kept current.
    pub fn target(mut self, target: Target) -> Self {
        self.targets.push(target);
        self
    }
}

pub(crate) struct Keeper {
    pub client: Client,
    pub options: WebhookOptions,
    pub certificate: Arc<Reloading>,
    pub clock: Arc<dyn Clock>,
}

/// Why certificates could not be kept current.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeepError {
    #[error("cannot {0}")]
    Api(String, #[source] kube::Error),
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error(transparent)]
    Unusable(#[from] super::tls::Unusable),
    #[error("the Secret {0} holds something else")]
    Foreign(String),
}

const FIELD: &str = "material.json";

impl Keeper {
    /// Looks after everything until `stop`; says so once the first certificate is loaded.
    pub async fn run(self, ready: tokio::sync::oneshot::Sender<()>, stop: CancellationToken) {
        let mut ready = Some(ready);
        loop {
            let pause = match self.look().await {
                Ok(()) => {
                    if let Some(ready) = ready.take() {
                        // Nobody waits any more if the manager is stopping.
                        let _ = ready.send(());
                    }
                    self.options.every
                }
                Err(error) => {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(%error, ?cause, "webhook certificates");
                    Duration::from_secs(2)
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    async fn look(&self) -> Result<(), KeepError> {
        let material = self.material().await?;
        if let Some(serving) = &material.serving {
            self.certificate.load(serving)?;
        }
        let bundle = material.bundle();
        for target in &self.options.targets {
            self.inject(target, &bundle).await?;
        }
        Ok(())
    }

    /// What the Secret holds, renewed if it was due. Of two that renew at once one is refused, and reads again.
    async fn material(&self) -> Result<Material, KeepError> {
        let path = format!("/api/v1/namespaces/{}/secrets", self.options.namespace);
        loop {
            let found = self.get(&format!("{path}/{}", self.options.secret)).await?;
            let current = match &found {
                None => Material::default(),
                Some(secret) => decode(secret).ok_or_else(|| KeepError::Foreign(self.options.secret.clone()))?,
            };
            let wanted = current.renewed(&self.options.names, self.clock.now())?;
            if wanted == current {
                return Ok(current);
            }
            let mut body = json!({
                "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
                "metadata": {"name": self.options.secret, "namespace": self.options.namespace},
                "data": {FIELD: encode(&wanted)},
            });
            let (method, to) = match &found {
                None => ("POST", path.clone()),
                Some(secret) => {
                    body["metadata"]["resourceVersion"] = secret["metadata"]["resourceVersion"].clone();
                    ("PUT", format!("{path}/{}", self.options.secret))
                }
            };
            match self.send(method, &to, "application/json", &body).await {
                Ok(_) => return Ok(wanted),
                Err(KeepError::Api(_, kube::Error::Api(status))) if status.code == 409 => continue,
                Err(error) => return Err(error),
            }
        }
    }

    async fn inject(&self, target: &Target, bundle: &str) -> Result<(), KeepError> {
        // A configuration that is not installed needs no bundle.
        let Some(object) = self.get(&target.path()).await? else {
            return Ok(());
        };
        match target.patch(&object, bundle) {
            None => Ok(()),
            Some(patch) => {
                tracing::info!(?target, "setting the caBundle");
                self.send("PATCH", &target.path(), "application/merge-patch+json", &patch)
                    .await
                    .map(|_| ())
            }
        }
    }

    async fn get(&self, path: &str) -> Result<Option<Value>, KeepError> {
        match self.send("GET", path, "application/json", &Value::Null).await {
            Ok(value) => Ok(Some(value)),
            Err(KeepError::Api(_, kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn send(&self, method: &str, path: &str, media: &str, body: &Value) -> Result<Value, KeepError> {
        let failed = |error| KeepError::Api(format!("{method} {path}"), error);
        let bytes = match body.is_null() {
            true => Vec::new(),
            false => body.to_string().into_bytes(),
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(http::header::CONTENT_TYPE, media);
        let request = request
            .body(bytes)
            .map_err(|error| failed(kube::Error::HttpError(error)))?;
        self.client.request(request).await.map_err(failed)
    }
}

fn encode(material: &Material) -> String {
    // The material is plain text and times; it serialises.
    let json = serde_json::to_vec(material).unwrap_or_default();
    base64::engine::general_purpose::STANDARD.encode(json)
}

fn decode(secret: &Value) -> Option<Material> {
    let text = secret["data"][FIELD].as_str()?;
    let json = base64::engine::general_purpose::STANDARD.decode(text).ok()?;
    serde_json::from_slice(&json).ok()
}
