//! TLS as the server speaks it: its own certificate, renewed while it runs, and client certificates of its
//! own authority.

use super::{Credential, Pki, PkiError, Subject};
use crate::environment::Clock;
use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;

/// The configuration for the listener: HTTP/2 and HTTP/1.1, client certificates wanted but not required.
pub fn server_config(pki: &Pki, clock: Arc<dyn Clock>) -> Result<Arc<ServerConfig>, PkiError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let unusable = || PkiError::Unusable("the certificate authority".to_string());
    let mut roots = rustls::RootCertStore::empty();
    roots.add(pki.authority.der().ok_or_else(unusable)?)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .allow_unauthenticated()
        .build()
        .map_err(|_| unusable())?;
    let serving = Serving {
        current: ArcSwap::from_pointee(Current::new(&pki.serving)?),
        authority: pki.authority.clone(),
        names: pki.names.clone(),
        clock,
    };
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_cert_resolver(Arc::new(serving));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

struct Current {
    credential: Credential,
    key: Arc<CertifiedKey>,
}

impl Current {
    fn new(credential: &Credential) -> Result<Self, PkiError> {
        let unusable = || PkiError::Unusable("the serving certificate".to_string());
        let certificate = CertificateDer::from_pem_slice(credential.certificate.as_bytes()).map_err(|_| unusable())?;
        let key = PrivateKeyDer::from_pem_slice(credential.key.as_bytes()).map_err(|_| unusable())?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
        Ok(Current {
            credential: credential.clone(),
            key: Arc::new(CertifiedKey::new(vec![certificate], key)),
        })
    }
}

/// Hands out the serving certificate, and signs a new one when it nears its end, so that a server which runs
/// for years needs no restart.
struct Serving {
    current: ArcSwap<Current>,
    authority: Credential,
    names: Vec<String>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving")
            .field("names", &self.names)
            .finish_non_exhaustive()
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let current = self.current.load();
        let now = self.clock.now();
        if current.credential.fresh(now) {
            return Some(current.key.clone());
        }
        let renewed = self
            .authority
            .sign(&Subject::Server(&self.names), now)
            .and_then(|new| Current::new(&new));
        match renewed {
            Ok(renewed) => {
                let key = renewed.key.clone();
                self.current.store(Arc::new(renewed));
                Some(key)
            }
            // The old one may still be good for days.
            Err(error) => {
                tracing::warn!(%error, "cannot renew the serving certificate");
                Some(current.key.clone())
            }
        }
    }
}
