//! A server behind TLS: HTTP/2 and HTTP/1.1 on one port.
//!
//! The listener owns what a stranger can do before a request exists: slow handshakes, half-open connections,
//! floods of resets. Behind it is any service; it learns from a request's extensions who is at the other end.

mod ending;

use crate::auth::PeerCertificate;
use bytes::Bytes;
use ending::Ending;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

/// A client that has not finished its handshake by then is gone.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The head of an HTTP/1.1 request has to be there by then. It also bounds how long an idle connection stays.
const HEAD_TIMEOUT: Duration = Duration::from_secs(180);

/// Connections at one time; more wait in the kernel's queue.
const MOST_CONNECTIONS: usize = 8192;

/// Streams at one time on one HTTP/2 connection: informers hold many watches on one.
const MOST_STREAMS: u32 = 1000;

/// Streams that a peer may open and reset before we have looked at them. A flood of those ends the connection.
const MOST_RESETS: usize = 64;

/// HTTP/2 peers that vanished without a word are found by pings.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(15);

/// When the process is out of file descriptors, accepting again at once would only burn the processor.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// How long requests under way may take once the server is told to stop.
const DRAIN: Duration = Duration::from_secs(5);

/// The other end of the connection that a request came on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RemoteAddress(pub SocketAddr);

/// Serves connections until `stop`, then ends watches, lets other requests finish, and returns.
///
/// Each request carries a [`RemoteAddress`], and an `Arc<PeerCertificate>` where the client showed one, in its
/// extensions.
pub async fn serve<S, B>(listener: TcpListener, tls: Arc<ServerConfig>, service: S, stop: CancellationToken)
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let acceptor = TlsAcceptor::from(tls);
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &places) => accepted,
        };
        let Some((stream, remote, place)) = accepted else {
            continue;
        };
        let connection = connect(acceptor.clone(), stream, remote, service.clone(), stop.clone());
        let abort = abort.clone();
        connections.spawn(async move {
            tokio::select! {
                () = connection => {}
                () = abort.cancelled() => {}
            }
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    if timeout(DRAIN, connections.wait()).await.is_err() {
        abort.cancel();
        connections.wait().await;
    }
}

async fn accept(
    listener: &TcpListener,
    places: &Arc<Semaphore>,
) -> Option<(TcpStream, SocketAddr, tokio::sync::OwnedSemaphorePermit)> {
    let place = places.clone().acquire_owned().await.ok()?;
    match listener.accept().await {
        Ok((stream, remote)) => Some((stream, remote, place)),
        Err(error) => {
            tracing::warn!(%error, "cannot accept a connection");
            tokio::time::sleep(ACCEPT_PAUSE).await;
            None
        }
    }
}

async fn connect<S, B>(
    acceptor: TlsAcceptor,
    stream: TcpStream,
    remote: SocketAddr,
    service: S,
    stop: CancellationToken,
) where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    // Small answers and watch events must not wait for a full packet.
    let _ = stream.set_nodelay(true);
    let stream = match timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            tracing::debug!(%remote, %error, "handshake failed");
            return;
        }
        Err(_) => {
            tracing::debug!(%remote, "handshake took too long");
            return;
        }
    };
    let (_, session) = stream.get_ref();
    let http2 = session.alpn_protocol() == Some(b"h2");
    let certificate = session
        .peer_certificates()
        .and_then(|chain| PeerCertificate::parse(chain.first()?))
        .map(Arc::new);
    let ending = stop.clone();
    let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
        let watch = is_watch(&request);
        request.extensions_mut().insert(RemoteAddress(remote));
        if let Some(certificate) = &certificate {
            request.extensions_mut().insert(certificate.clone());
        }
        let answer = service.clone().call(request);
        let ending = watch.then(|| ending.clone());
        async move {
            answer
                .await
                .map(|response| response.map(|body| Ending::new(body, ending)))
        }
    });
    let io = TokioIo::new(stream);
    let ended = if http2 {
        let mut builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MOST_STREAMS)
            .max_pending_accept_reset_streams(MOST_RESETS)
            .max_local_error_reset_streams(Some(MOST_RESETS))
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT);
        let mut connection = pin!(builder.serve_connection(io, service));
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    } else {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
        let mut connection = pin!(builder.serve_connection(io, service).with_upgrades());
        tokio::select! {
            ended = connection.as_mut() => ended,
            () = stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%remote, %error, "connection ended");
    }
}

/// Whether the answer is a stream that only the server's end ends: those must not hold up a shutdown.
fn is_watch(request: &Request<Incoming>) -> bool {
    let uri = request.uri();
    let asked = uri
        .query()
        .unwrap_or_default()
        .split('&')
        .any(|pair| matches!(pair, "watch=true" | "watch=1" | "watch" | "follow=true" | "follow=1"));
    asked || uri.path().contains("/watch/")
}

#[cfg(test)]
mod tests;
