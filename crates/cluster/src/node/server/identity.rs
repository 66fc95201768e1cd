//! Certificates between an API server and node agents.
//!
//! Whoever reaches an agent's port may run commands in pods, so it lets nobody in whom the cluster's authority has not
//! signed for, and then asks who it is. Both sides of the nodes that run beside the API server are made together, live
//! in memory, and are gone with the process: there is no file to steal. A node that joins is signed for by the same
//! authority (see `signed`), so that the next API server of the cluster trusts it too.

use parking_lot::RwLock;
use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::sync::Arc;

/// Who the API server is to nodes, as kubeadm has it.
const API_SERVER: &str = "kube-apiserver-kubelet-client";

/// Both sides of the trust between an API server and its nodes.
pub struct Identity {
    /// For [`super::Serving`].
    pub server: Arc<ServerConfig>,
    /// For the API server.
    pub client: Arc<ClientConfig>,
    /// The certificate that the API server shows.
    pub shown: CertificateDer<'static>,
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
    #[error("cannot read a certificate")]
    Unreadable(#[from] rustls::pki_types::pem::Error),
}

impl Identity {
    /// Makes both sides; `addresses` are where nodes listen. The authority's certificate and key are PEM.
    pub fn generate(addresses: &[String], authority: &str, key: &str) -> Result<Identity, IdentityError> {
        let issuer = Issuer::from_ca_cert_pem(authority, KeyPair::from_pem(key)?)?;
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
        let roots = Arc::new(roots);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut params = CertificateParams::new(addresses.to_vec())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let (certificate, key) = issue(&issuer, params)?;
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone()).build()?;
        let server = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![certificate], key)?;
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.distinguished_name = named(API_SERVER, "system:masters");
        let (shown, key) = issue(&issuer, params)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![shown.clone()], key)?;
        Ok(Identity {
            server: Arc::new(server),
            client: Arc::new(client),
            shown,
        })
    }
}

/// A name and its group, as Kubernetes reads them from a certificate.
fn named(user: &str, group: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, group);
    name.push(DnType::CommonName, user);
    name
}

/// A node's own key, and what it shows to those who connect.
pub struct Own {
    key: KeyPair,
    params: CertificateParams,
}

impl Own {
    /// A new key of a node that is reached at an address.
    pub fn generate(node: &str, address: &str) -> Result<Own, IdentityError> {
        let mut params = CertificateParams::new(vec![address.to_owned()])?;
        params.distinguished_name = named(&format!("system:node:{node}"), "system:nodes");
        Ok(Own {
            key: KeyPair::generate()?,
            params,
        })
    }

    /// The PEM of a request to sign for it.
    pub fn request(&self) -> Result<String, IdentityError> {
        Ok(self.params.serialize_request(&self.key)?.pem()?)
    }

    /// What is shown of it: the PEM of a certificate that somebody has signed, or without one its own word, which is enough
    /// for an API server that does not check.
    fn shown(&self, signed: Option<&str>) -> Result<Arc<CertifiedKey>, IdentityError> {
        let chain = match signed {
            Some(pem) => CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>()?,
            None => vec![self.params.self_signed(&self.key)?.der().clone()],
        };
        let key = PrivateKeyDer::Pkcs8(self.key.serialize_der().into());
        let provider = rustls::crypto::ring::default_provider();
        Ok(Arc::new(CertifiedKey::from_der(chain, key, &provider)?))
    }
}

/// What a node that joined shows to those who connect. It changes while the node serves: certificates run out.
pub struct Shown(RwLock<Arc<CertifiedKey>>);

impl std::fmt::Debug for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shown")
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.read().clone())
    }
}

impl Shown {
    /// Shows the PEM of a certificate that somebody has signed for a key, or the key's own word.
    pub fn new(own: &Own, signed: Option<&str>) -> Result<Arc<Shown>, IdentityError> {
        Ok(Arc::new(Shown(RwLock::new(own.shown(signed)?))))
    }

    /// Whether this is what the next connection sees.
    #[cfg(test)]
    pub fn shows(&self, pem: &str) -> bool {
        CertificateDer::from_pem_slice(pem.as_bytes()).is_ok_and(|shown| self.0.read().cert == [shown])
    }

    /// Shows another from the next connection on.
    pub fn change(&self, own: &Own, signed: &str) -> Result<(), IdentityError> {
        *self.0.write() = own.shown(Some(signed))?;
        Ok(())
    }

    /// The server side of a node that joins a cluster of somebody else: whoever comes must have a certificate of one of
    /// these authorities, and is then asked who it is.
    pub fn serve(self: &Arc<Shown>, authorities: Vec<Vec<u8>>) -> Result<Arc<ServerConfig>, IdentityError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(CertificateDer::from(authority))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build()?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(self.clone());
        Ok(Arc::new(server))
    }
}

/// From when to when a certificate is valid, in seconds since 1970. It is PEM.
pub fn validity(pem: &str) -> Option<(i64, i64)> {
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes()).ok()?;
    let (_, parsed) = x509_parser::parse_x509_certificate(&certificate).ok()?;
    let validity = parsed.validity();
    Some((validity.not_before.timestamp(), validity.not_after.timestamp()))
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

fn issue(issuer: &Issuer<'_, KeyPair>, mut params: CertificateParams) -> Result<Pair, IdentityError> {
    // Authorities of several clusters have one name, and are told apart by their keys.
    params.use_authority_key_identifier_extension = true;
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
        let (accepted, connected) = tokio::join!(
            TlsAcceptor::from(server).accept(far),
            TlsConnector::from(client).connect(name, near)
        );
        accepted.is_ok() && connected.is_ok()
    }

    /// The PEM of an authority's certificate and key.
    fn authority() -> (String, String) {
        let mut params = CertificateParams::default();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    /// The PEM of an authority's certificate for a node's key.
    fn sign(node: &Own, (certificate, key): &(String, String)) -> String {
        let request = rcgen::CertificateSigningRequestParams::from_pem(&node.request().unwrap()).unwrap();
        let issuer = Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(key).unwrap()).unwrap();
        request.signed_by(&issuer).unwrap().pem()
    }

    fn root((certificate, _): &(String, String)) -> Vec<u8> {
        CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap().to_vec()
    }

    fn generate((certificate, key): &(String, String)) -> Identity {
        Identity::generate(&["127.0.0.1".to_owned()], certificate, key).unwrap()
    }

    #[tokio::test]
    async fn only_who_is_signed_for_by_the_clusters_authority_gets_in() {
        let (own, stranger) = (generate(&authority()), generate(&authority()));
        assert!(shake(own.server.clone(), own.client).await);
        assert!(!shake(own.server, stranger.client).await);
    }

    #[tokio::test]
    async fn a_node_that_joined_trusts_the_next_api_server_of_its_cluster_and_is_trusted() {
        let authority = authority();
        let node = Own::generate("worker", "127.0.0.1").unwrap();
        let shown = Shown::new(&node, Some(&sign(&node, &authority))).unwrap();
        let server = shown.serve(vec![root(&authority)]).unwrap();
        let (first, next) = (generate(&authority), generate(&authority));
        assert!(shake(server.clone(), first.client).await);
        assert!(shake(server, next.client).await);
        let who = subject(&next.shown);
        assert_eq!(who, Some((API_SERVER.to_owned(), vec!["system:masters".to_owned()])));
    }

    #[tokio::test]
    async fn what_is_signed_later_is_shown_by_a_server_that_runs() {
        let authority = authority();
        let first = Own::generate("worker", "127.0.0.1").unwrap();
        let shown = Shown::new(&first, None).unwrap();
        let server = shown.serve(vec![root(&authority)]).unwrap();
        let client = generate(&authority).client;
        assert!(
            !shake(server.clone(), client.clone()).await,
            "its own word is not enough"
        );
        let next = Own::generate("worker", "127.0.0.1").unwrap();
        shown
            .change(&first, &sign(&next, &authority))
            .expect_err("it is another key's");
        shown.change(&next, &sign(&next, &authority)).unwrap();
        assert!(shake(server, client).await);
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
