//! HTTPS whose certificate is replaced while it runs.

use super::certificates::Serving;
use arc_swap::ArcSwapOption;
use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// A connection on which nothing is asked for so long gives its place to another.
const IDLE: Duration = Duration::from_secs(120);
/// When the process is out of file descriptors, accepting again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// A client that has not finished its handshake by then is gone.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Connections at one time; more wait.
const CONNECTIONS: usize = 256;

/// The certificate that new connections get.
#[derive(Debug, Default)]
pub(crate) struct Reloading {
    current: ArcSwapOption<CertifiedKey>,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("the certificate or its key is not PEM")]
    Pem(#[from] rustls_pki_types::pem::Error),
    #[error("the key cannot be used")]
    Key(#[from] rustls::Error),
}

impl Reloading {
    /// From the next connection on, this certificate is shown.
    pub fn load(&self, serving: &Serving) -> Result<(), Unusable> {
        let chain = CertificateDer::pem_slice_iter(serving.certificate.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(serving.key.as_bytes())?;
        let key = rustls::crypto::ring::sign::any_supported_type(&key)?;
        self.current.store(Some(Arc::new(CertifiedKey::new(chain, key))));
        Ok(())
    }
}

impl ResolvesServerCert for Reloading {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current.load_full()
    }
}

/// Serves until `stop`.
pub(crate) async fn serve(
    listener: std::net::TcpListener,
    router: Router,
    certificate: Arc<Reloading>,
    stop: CancellationToken,
) {
    if let Err(error) = try_serve(listener, router, certificate, stop).await {
        tracing::error!(%error, "cannot serve webhooks");
    }
}

async fn try_serve(
    listener: std::net::TcpListener,
    router: Router,
    certificate: Arc<Reloading>,
    stop: CancellationToken,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(certificate);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(tokio::sync::Semaphore::new(CONNECTIONS));
    loop {
        let next = async {
            let place = places.clone().acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            next = next => next,
        };
        let (place, stream) = match accepted {
            Ok((stream, _)) => (place?, stream),
            Err(error) => {
                tracing::debug!(%error, "cannot accept");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
        tokio::spawn(async move {
            let _place = place;
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                return;
            };
            let mut builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
            builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
            builder
                .http2()
                .timer(TokioTimer::new())
                .keep_alive_interval(IDLE)
                .keep_alive_timeout(HANDSHAKE);
            let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
            tokio::select! {
                () = stop.cancelled() => {}
                // How a connection ends is its client's business.
                _ = connection => {}
            }
        });
    }
}
