//! One GET request to a registry: a connection of its own, with TLS unless the registry is on this machine.

use super::PullError;
use bytes::Bytes;
use http::Uri;
use http::header::{ACCEPT, AUTHORIZATION, HOST, USER_AGENT};
use http_body_util::Empty;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use std::net::IpAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// How long a registry may take to be connected to, and to begin an answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a registry sends back.
pub type Answer = http::Response<Incoming>;

/// What is said besides the place.
#[derive(Clone, Copy)]
pub struct Request<'a> {
    pub accept: &'a str,
    pub authorization: Option<&'a str>,
}

/// An absolute place: `https://HOST/PATH`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Url(Uri);

impl Url {
    pub fn parse(text: &str) -> Option<Url> {
        let uri: Uri = text.parse().ok()?;
        let known =
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|host| !host.is_empty());
        known.then_some(Url(uri))
    }

    /// The place that another one, absolute or not, is from here.
    pub fn join(&self, other: &str) -> Option<Url> {
        match other.starts_with('/') && !other.starts_with("//") {
            true => Url::parse(&format!("{}://{}{other}", self.0.scheme_str()?, self.0.authority()?)),
            false => Url::parse(other),
        }
    }

    pub fn host(&self) -> &str {
        self.0.host().unwrap_or_default()
    }

    pub fn same_host(&self, other: &Url) -> bool {
        self.0.authority() == other.0.authority() && self.0.scheme() == other.0.scheme()
    }

    /// Whether nobody on the way can listen.
    pub fn is_private(&self) -> bool {
        self.0.scheme_str() == Some("https") || Url::is_on_this_machine(self.host())
    }

    /// Whether a host, with a port or without, is this machine itself.
    pub fn is_on_this_machine(host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.trim_matches(['[', ']']);
        name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
    }
}

/// The authorities that this machine trusts.
static TRUST: LazyLock<Arc<ClientConfig>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    // One that cannot be read is one that nobody is trusted by.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("ring supports the default protocol versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config)
});

/// Asks for one thing.
pub async fn get(place: &Url, request: Request<'_>) -> Result<Answer, PullError> {
    let answer = tokio::time::timeout(PATIENCE, exchange(place, request)).await;
    let why = match answer {
        Ok(Ok(answer)) => return Ok(answer),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer in {} seconds", PATIENCE.as_secs()),
    };
    Err(PullError::Unreachable {
        host: place.host().to_owned(),
        why,
    })
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

async fn exchange(place: &Url, request: Request<'_>) -> Result<Answer, Failure> {
    let uri = &place.0;
    let secret = uri.scheme_str() == Some("https");
    let host = place.host().trim_matches(['[', ']']).to_owned();
    let port = uri.port_u16().unwrap_or(if secret { 443 } else { 80 });
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let mut message = http::Request::get(path)
        .header(HOST, uri.authority().map(ToString::to_string).unwrap_or_default())
        .header(USER_AGENT, concat!("stead/", env!("CARGO_PKG_VERSION")))
        .header(ACCEPT, request.accept);
    if let Some(authorization) = request.authorization {
        message = message.header(AUTHORIZATION, authorization);
    }
    let message = message.body(Empty::<Bytes>::new())?;
    let stream = TcpStream::connect((host.as_str(), port)).await?;
    if !secret {
        return speak(stream, message).await;
    }
    let name = ServerName::try_from(host)?;
    let stream = TlsConnector::from(TRUST.clone()).connect(name, stream).await?;
    speak(stream, message).await
}

async fn speak<S>(stream: S, message: http::Request<Empty<Bytes>>) -> Result<Answer, Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the answer's body, or when nobody reads that any more.
    tokio::spawn(connection);
    Ok(sender.send_request(message).await?)
}
