//! Certificates between an API server and node agents that run in one process.
//!
//! Whoever reaches the agent's port may run commands in pods, so it lets nobody in but the holder of one client
//! certificate. Both sides are made together, live in memory, and are gone with the process: there is no file
//! to steal.

use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// Both sides of the trust between an API server and its nodes.
pub struct Identity {
    /// For [`super::Serving`].
    pub server: Arc<ServerConfig>,
    /// For the API server.
    pub client: Arc<ClientConfig>,
}

/// Why certificates cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    #[error("cannot make a certificate")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use a certificate that was just made")]
    Tls(#[from] rustls::Error),
    #[error("cannot check client certificates")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}

impl Identity {
    /// Makes both sides; `addresses` are where nodes listen.
    pub fn generate(addresses: &[String]) -> Result<Identity, IdentityError> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate()?;
        let root = authority.self_signed(&key)?.der().clone();
        let issuer = Issuer::new(authority, key);
        let mut roots = RootCertStore::empty();
        roots.add(root)?;
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificate, key) = issue(&issuer, addresses, ExtendedKeyUsagePurpose::ServerAuth)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)?;
        let name = ["kube-apiserver-kubelet-client".to_owned()];
        let (certificate, key) = issue(&issuer, &name, ExtendedKeyUsagePurpose::ClientAuth)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Identity {
            server: Arc::new(server),
            client: Arc::new(client),
        })
    }
}

/// The server side of a node that joins a cluster of somebody else: whoever comes must have a certificate of one of
/// these authorities, and is then asked who it is.
pub fn joined(authorities: Vec<Vec<u8>>, address: &str) -> Result<Arc<ServerConfig>, IdentityError> {
    let mut roots = RootCertStore::empty();
    for authority in authorities {
        roots.add(CertificateDer::from(authority))?;
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![address.to_owned()])?.self_signed(&key)?;
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(vec![certificate.der().clone()], key)?;
    Ok(Arc::new(server))
}

/// Who a certificate is: its name and its groups, as Kubernetes reads them.
pub fn subject(certificate: &CertificateDer<'_>) -> Option<(String, Vec<String>)> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let subject = parsed.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
    Some((name, groups.map(str::to_owned).collect()))
}

type Pair = (CertificateDer<'static>, PrivateKeyDer<'static>);

fn issue(
    issuer: &Issuer<'_, KeyPair>,
    names: &[String],
    purpose: ExtendedKeyUsagePurpose,
) -> Result<Pair, IdentityError> {
    let mut params = CertificateParams::new(names.to_vec())?;
    params.extended_key_usages = vec![purpose];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, issuer)?.der().clone();
    Ok((certificate, PrivateKeyDer::Pkcs8(key.serialize_der().into())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::pki_types::ServerName;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    async fn shake(server: Arc<ServerConfig>, client: Arc<ClientConfig>) -> bool {
        let (near, far) = tokio::io::duplex(64 << 10);
        let name = ServerName::try_from("127.0.0.1").unwrap();
        let (accepted, _connected) = tokio::join!(
            TlsAcceptor::from(server).accept(far),
            TlsConnector::from(client).connect(name, near)
        );
        accepted.is_ok()
    }

    #[tokio::test]
    async fn only_the_client_that_was_made_with_the_server_gets_in() {
        let own = Identity::generate(&["127.0.0.1".to_owned()]).unwrap();
        let stranger = Identity::generate(&["127.0.0.1".to_owned()]).unwrap();
        assert!(shake(own.server.clone(), own.client).await);
        assert!(!shake(own.server, stranger.client).await);
    }

    #[test]
    fn a_certificate_says_who_its_holder_is() {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(rcgen::DnType::CommonName, "admin");
        params
            .distinguished_name
            .push(rcgen::DnType::OrganizationName, "system:masters");
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let who = subject(certificate.der());
        assert_eq!(who, Some(("admin".to_owned(), vec!["system:masters".to_owned()])));
        assert_eq!(subject(&CertificateDer::from(vec![1, 2, 3])), None);
    }
}
