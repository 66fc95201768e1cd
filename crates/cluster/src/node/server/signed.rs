//! A serving certificate of the cluster's authority, asked for as kubelets do it.
//!
//! The node asks in its own name, whoever let it join approves, and the cluster's controller signs. An API server that
//! checks its nodes then reads their logs, also one that was started again.

use super::identity::{IdentityError, Own};
use crate::node::voices::Voices;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec};
use kube::Api;
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use std::time::Duration;

/// Who signs the certificates that nodes show.
const SIGNER: &str = "kubernetes.io/kubelet-serving";
/// How long a cluster that signs may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often we look.
const LOOK: Duration = Duration::from_millis(100);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum Unsigned {
    #[error("cannot make a request")]
    Request(#[from] IdentityError),
    #[error("cannot {0}")]
    Api(&'static str, #[source] kube::Error),
    #[error("nobody has signed it after {} s", PATIENCE.as_secs())]
    Nobody,
}

/// Asks the cluster for a certificate of a node's key; it is PEM.
pub async fn ask(own: &Own, voices: &Voices, node: &str) -> Result<String, Unsigned> {
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
    let signed = async {
        loop {
            let found = requests.get(&name).await;
            let status = found.map_err(|error| Unsigned::Api("read it", error))?.status;
            if let Some(certificate) = status.and_then(|status| status.certificate) {
                return Ok(String::from_utf8_lossy(&certificate.0).into_owned());
            }
            tokio::time::sleep(LOOK).await;
        }
    };
    tokio::time::timeout(PATIENCE, signed)
        .await
        .unwrap_or(Err(Unsigned::Nobody))
}
