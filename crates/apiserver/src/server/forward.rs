//! Requests that another program answers: a node's kubelet, a pod, a service.
//!
//! The answer is passed on as it comes, and an upgraded connection is joined with the client's, so exec,
//! attach and port-forward need no knowledge of what is spoken on them.

use super::body::{Body, BoxError};
use super::wires::Wires;
use crate::error::{ApiError, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, Request, Response, StatusCode, Uri};
use http_body_util::BodyExt;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use rustls_pki_types::ServerName;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);

/// Headers that belong to one connection, or to the client's credentials, and go no further.
const NOT_FORWARDED: [HeaderName; 4] = [
    http::header::AUTHORIZATION,
    http::header::HOST,
    http::header::TE,
    http::header::TRAILER,
];

/// Where a request goes on to.
pub struct Target {
    pub host: String,
    pub port: u16,
    /// Path and query.
    pub path: String,
    /// Present if the other side speaks TLS.
    pub tls: Option<Arc<rustls::ClientConfig>>,
    pub wires: Wires,
}

trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Sends a request on and gives its answer.
pub async fn forward(
    target: Target,
    method: Method,
    headers: &HeaderMap,
    body: Body,
    upgrade: Option<OnUpgrade>,
) -> Result<Response<Body>> {
    let failed = |error: BoxError| {
        ApiError::new(
            503,
            "ServiceUnavailable",
            format!("error trying to reach service: {error}"),
        )
    };
    let connection = tokio::time::timeout(CONNECT, connect(&target))
        .await
        .map_err(|_| failed("the connection timed out".into()))?
        .map_err(failed)?;
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(connection))
        .await
        .map_err(|error| failed(error.into()))?;
    tokio::spawn(async move {
        // It ends with the answer; its errors reach the client through the answer.
        let _ = connection.with_upgrades().await;
    });
    let request = request(&target, method, headers, body).map_err(|error| failed(error.into()))?;
    let mut response = sender
        .send_request(request)
        .await
        .map_err(|error| failed(error.into()))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let Some(client) = upgrade else {
            return Err(ApiError::bad_request("this connection cannot be upgraded"));
        };
        let other = hyper::upgrade::on(&mut response);
        tokio::spawn(join(client, other));
    }
    Ok(response.map(|body| body.map_err(BoxError::from).boxed_unsync()))
}

async fn connect(target: &Target) -> Result<Box<dyn Connection>, BoxError> {
    let stream = target.wires.connect(&target.host, target.port).await?;
    match &target.tls {
        None => Ok(Box::new(stream)),
        Some(config) => {
            let name = ServerName::try_from(target.host.clone())?;
            let stream = TlsConnector::from(config.clone()).connect(name, stream).await?;
            Ok(Box::new(stream))
        }
    }
}

fn request(target: &Target, method: Method, headers: &HeaderMap, body: Body) -> Result<Request<Body>, http::Error> {
    let uri: Uri = target.path.parse()?;
    let mut request = Request::builder().method(method).uri(uri).body(body)?;
    for (name, value) in headers {
        if !NOT_FORWARDED.contains(name) {
            request.headers_mut().append(name.clone(), value.clone());
        }
    }
    let host = format!("{}:{}", target.host, target.port);
    request.headers_mut().insert(http::header::HOST, host.parse()?);
    Ok(request)
}

/// Copies between two upgraded connections until both have ended.
async fn join(client: OnUpgrade, other: OnUpgrade) {
    let (client, other) = futures::future::join(client, other).await;
    if let (Ok(client), Ok(other)) = (client, other) {
        let (mut client, mut other) = (TokioIo::new(client), TokioIo::new(other));
        // Either side may go at any time; there is nobody to tell.
        let _ = tokio::io::copy_bidirectional(&mut client, &mut other).await;
    }
}

/// An empty body for requests that have none.
pub fn empty() -> Body {
    super::body::full(Bytes::new())
}
