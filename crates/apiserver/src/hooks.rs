//! One POST over TLS to a webhook, be it of admission or of conversion.

use crate::server::Shared;
use crate::server::wires::Wires;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::TlsConnector;

/// The largest answer that is read: a converted list is as large as a list.
const ANSWER_LIMIT: usize = 256 << 20;

/// A webhook as its configuration names it.
#[derive(Debug, Clone)]
pub struct Endpoint {
    pub destination: Destination,
    /// Certificates in PEM that may sign the webhook's own.
    pub authorities: Vec<u8>,
    pub timeout: Duration,
    pub purpose: Purpose,
}

/// What a webhook is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The webhook is told how long it may take.
    Admission,
    Conversion,
}

/// Where a webhook is.
#[derive(Debug, Clone)]
pub enum Destination {
    Url(String),
    Service {
        namespace: String,
        name: String,
        port: u16,
        path: String,
    },
}

impl Endpoint {
    /// Reads a `clientConfig`.
    pub fn of(config: &Value, timeout: Duration, purpose: Purpose) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
        let service = &config["service"];
        let destination = match config["url"].as_str() {
            Some(url) => Destination::Url(url.to_string()),
            None => Destination::Service {
                namespace: text(&service["namespace"]),
                name: text(&service["name"]),
                port: service["port"]
                    .as_u64()
                    .and_then(|port| u16::try_from(port).ok())
                    .unwrap_or(443),
                path: text(&service["path"]),
            },
        };
        Endpoint {
            destination,
            authorities: STANDARD.decode(text(&config["caBundle"])).unwrap_or_default(),
            timeout,
            purpose,
        }
    }
}

/// Where to connect, and what to ask for there.
struct Target {
    /// As the request names it: `webhook.default.svc:443`.
    authority: String,
    /// What the certificate must be for.
    server_name: String,
    address: (String, u16),
    path: String,
}

/// Sends the review and reads the answer, within the webhook's time.
pub async fn post(shared: &Shared, webhook: &Endpoint, body: &Value) -> Result<Value, String> {
    let target = target(shared, &webhook.destination)?;
    let separator = if target.path.contains('?') { '&' } else { '?' };
    let path = match webhook.purpose {
        Purpose::Admission => format!("{}{separator}timeout={}s", target.path, webhook.timeout.as_secs()),
        Purpose::Conversion => target.path.clone(),
    };
    let url = format!("https://{}{path}", target.authority);
    let failed = |why: String| format!("Post {url:?}: {why}");
    let exchange = send(&shared.wires, webhook, &target, &path, body);
    match tokio::time::timeout(webhook.timeout, exchange).await {
        Err(_) => Err(failed("context deadline exceeded".to_string())),
        Ok(Err(Failure::Connection(why))) => Err(failed(why)),
        Ok(Err(Failure::Answer(why))) => Err(why),
        Ok(Ok(answer)) => Ok(answer),
    }
}

enum Failure {
    /// Nothing came back.
    Connection(String),
    /// Something came back that is no answer.
    Answer(String),
}

async fn send(wires: &Wires, webhook: &Endpoint, target: &Target, path: &str, body: &Value) -> Result<Value, Failure> {
    let connection = |error: &dyn std::fmt::Display| Failure::Connection(error.to_string());
    let (host, port) = &target.address;
    let stream = wires.connect(host, *port).await.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::ConnectionRefused => "connect: connection refused".to_string(),
            _ => error.to_string(),
        };
        Failure::Connection(format!("dial tcp {host}:{port}: {why}"))
    })?;
    let name = ServerName::try_from(target.server_name.clone()).map_err(|error| connection(&error))?;
    let connector = TlsConnector::from(tls(webhook)?);
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|error| connection(&tls_words(&error)))?;
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| connection(&error))?;
    // The driver ends with the connection, which ends when the sender is dropped.
    tokio::spawn(driver);
    let request = Request::post(path)
        .header("host", &target.authority)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .header("user-agent", "kube-apiserver-admission")
        .body(Full::new(Bytes::from(body.to_string())))
        .map_err(|error| connection(&error))?;
    let response = sender.send_request(request).await.map_err(|error| connection(&error))?;
    let status = response.status();
    let bytes = Limited::new(response.into_body(), ANSWER_LIMIT)
        .collect()
        .await
        .map_err(|error| Failure::Connection(error.to_string()))?
        .to_bytes();
    if !status.is_success() {
        let text = String::from_utf8_lossy(&bytes);
        let why = match text.trim() {
            "" => "the server could not find the requested resource".to_string(),
            text => format!("an error on the server ({text:?}) has prevented the request from succeeding"),
        };
        return Err(Failure::Answer(why));
    }
    serde_json::from_slice(&bytes).map_err(|error| Failure::Answer(error.to_string()))
}

fn tls(webhook: &Endpoint) -> Result<Arc<ClientConfig>, Failure> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&webhook.authorities).flatten() {
        // One that cannot be read trusts nobody, which the handshake will report.
        let _ = roots.add(certificate);
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Failure::Connection(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// The common mistakes in the words that people search for.
fn tls_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    if text.contains("UnknownIssuer") {
        "tls: failed to verify certificate: x509: certificate signed by unknown authority".to_string()
    } else {
        format!("tls: failed to verify certificate: x509: {text}")
    }
}

fn target(shared: &Shared, destination: &Destination) -> Result<Target, String> {
    match destination {
        Destination::Url(url) => {
            let uri: http::Uri = url.parse().map_err(|error| format!("Unparsable URL: {error}"))?;
            let host = uri.host().unwrap_or_default().trim_matches(['[', ']']).to_string();
            let port = uri.port_u16().unwrap_or(443);
            Ok(Target {
                authority: uri.authority().map(ToString::to_string).unwrap_or_default(),
                server_name: host.clone(),
                address: (host, port),
                path: uri
                    .path_and_query()
                    .map_or_else(|| "/".to_string(), ToString::to_string),
            })
        }
        Destination::Service {
            namespace,
            name,
            port,
            path,
        } => {
            let path = match path.strip_prefix('/') {
                Some(_) => path.clone(),
                None => format!("/{path}"),
            };
            Ok(Target {
                authority: format!("{name}.{namespace}.svc:{port}"),
                server_name: format!("{name}.{namespace}.svc"),
                address: endpoint(shared, namespace, name, *port)?,
                path,
            })
        }
    }
}

/// A ready endpoint of a Service. The server is not on the cluster's network, so the Service's own address would not
/// always lead there.
fn endpoint(shared: &Shared, namespace: &str, name: &str, port: u16) -> Result<(String, u16), String> {
    let views = &shared.admission;
    let service = views
        .object("/services", namespace, name)
        .ok_or_else(|| format!("service {name:?} not found"))?;
    if service["spec"]["type"] == "ExternalName" {
        let host = service["spec"]["externalName"].as_str().unwrap_or_default();
        return Ok((host.to_string(), port));
    }
    let wanted = service["spec"]["ports"]
        .as_array()
        .into_iter()
        .flatten()
        .find(|candidate| candidate["port"].as_u64() == Some(u64::from(port)))
        .ok_or_else(|| format!("no service port {port} found for service {name:?}"))?;
    let wanted_name = wanted["name"].as_str().unwrap_or_default();
    for slice in views.endpoint_slices(namespace, name) {
        let ports = slice["ports"].as_array().into_iter().flatten();
        let number = ports
            .filter(|candidate| candidate["name"].as_str().unwrap_or_default() == wanted_name)
            .find_map(|candidate| candidate["port"].as_u64().and_then(|port| u16::try_from(port).ok()));
        let ready = slice["endpoints"]
            .as_array()
            .into_iter()
            .flatten()
            .find(|endpoint| endpoint["conditions"]["ready"] != false);
        let address = ready.and_then(|endpoint| endpoint["addresses"][0].as_str());
        if let (Some(number), Some(address)) = (number, address) {
            return Ok((address.to_string(), number));
        }
    }
    Err(format!("no endpoints available for service {name:?}"))
}
