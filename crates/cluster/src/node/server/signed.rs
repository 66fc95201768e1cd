//! A serving certificate of the cluster's authority, asked for as kubelets do it.
//!
//! The node asks in its own name, whoever let it join approves, and the cluster's controller signs. An API server that
//! checks its nodes then reads their logs, also one that was started again. A certificate runs out, and nobody may be there
//! to sign when a node joins: it asks again, in time.

use super::identity::{IdentityError, Own, Shown, validity};
use crate::clock::{Clock, after};
use crate::node::voices::Voices;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// Who signs the certificates that nodes show.
const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// How long a cluster that signs may take, from the request on.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often we look.
const LOOK: Duration = Duration::from_millis(100);

/// The wait after a request that brought nothing; each further one is twice as long.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest wait between two requests.
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// How long we wait without reading the clock: one that is set, or a machine that slept, must not make us late.
const LONGEST_SLEEP: Duration = Duration::from_secs(3600);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Unsigned {
    #[error("cannot make a request")]
    Request(#[from] IdentityError),
    #[error("cannot {0}")]
    Api(&'static str, #[source] kube::Error),
    #[error("nobody has signed it after {} s", PATIENCE.as_secs())]
    Nobody,
    #[error("what was signed cannot be read")]
    Unreadable,
}

/// The node whose certificate is asked for.
pub struct Holder {
    pub voices: Voices,
    pub clock: Arc<dyn Clock>,
    pub node: String,
    /// Where it is reached.
    pub address: String,
}

impl Holder {
    /// Keeps a certificate shown that is signed and has not run out, for as long as it is polled. `first` is the one that is
    /// shown already, if there is one.
    pub async fn keep(&self, shown: &Shown, first: Option<&str>) {
        let mut due = first.and_then(renewal);
        let mut pause = PAUSE;
        loop {
            // Never at once, or a certificate that is short-lived beyond use is asked for in a loop.
            let next = after(self.clock.now(), pause);
            self.wait(due.map_or(next, |due| due.max(next))).await;
            match self.renew(shown).await {
                Ok(next) => (due, pause) = (Some(next), PAUSE),
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(node = self.node, error, "the node has no new certificate; trying again");
                    (due, pause) = (None, LONGEST_PAUSE.min(pause * 2));
                }
            }
        }
    }

    async fn wait(&self, due: Timestamp) {
        while self.clock.now() < due {
            let soon = after(self.clock.now(), LONGEST_SLEEP);
            self.clock.sleep_until(due.min(soon)).await;
        }
    }

    /// Shows a new certificate, of a new key. Gives when it is to be renewed.
    async fn renew(&self, shown: &Shown) -> Result<Timestamp, Unsigned> {
        let own = Own::generate(&self.node, &self.address)?;
        let signed = ask(&own, &self.voices, &self.node).await?;
        shown.change(&own, &signed)?;
        renewal(&signed).ok_or(Unsigned::Unreadable)
    }
}

/// When a certificate is to be renewed: when four fifths of its life are over, as kubelets do it.
fn renewal(pem: &str) -> Option<Timestamp> {
    let (from, to) = validity(pem)?;
    Timestamp::from_second(to - (to - from) / 5).ok()
}

/// Asks the cluster for a certificate of a node's key; it is PEM.
pub async fn ask(own: &Own, voices: &Voices, node: &str) -> Result<String, Unsigned> {
    let asked = request(own, voices, node);
    tokio::time::timeout(PATIENCE, asked)
        .await
        .unwrap_or(Err(Unsigned::Nobody))
}

async fn request(own: &Own, voices: &Voices, node: &str) -> Result<String, Unsigned> {
    let request = CertificateSigningRequest {
        metadata: ObjectMeta {
            generate_name: Some("csr-".to_owned()),
            ..ObjectMeta::default()
        },
        spec: CertificateSigningRequestSpec {
            request: ByteString(own.request()?.into_bytes()),
            signer_name: SIGNER.to_owned(),
            usages: Some(["digital signature", "server auth"].map(str::to_owned).to_vec()),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    };
    let requests: Api<CertificateSigningRequest> = Api::all(voices.node(node));
    let created = requests.create(&PostParams::default(), &request).await;
    let name = created
        .map_err(|error| Unsigned::Api("ask for it", error))?
        .metadata
        .name;
    let name = name.unwrap_or_default();
    let approval = json!({"status": {"conditions": [{
        "type": "Approved", "status": "True", "reason": "NodeJoined",
        "message": "The account that lets the node join approves of its address.",
    }]}});
    let approvals: Api<CertificateSigningRequest> = Api::all(voices.registrar.clone());
    approvals
        .patch_approval(&name, &PatchParams::default(), &Patch::Merge(&approval))
        .await
        .map_err(|error| Unsigned::Api("approve it", error))?;
    loop {
        let found = requests.get(&name).await;
        let status = found.map_err(|error| Unsigned::Api("read it", error))?.status;
        if let Some(certificate) = status.and_then(|status| status.certificate) {
            return Ok(String::from_utf8_lossy(&certificate.0).into_owned());
        }
        tokio::time::sleep(LOOK).await;
    }
}

#[cfg(test)]
mod tests;
