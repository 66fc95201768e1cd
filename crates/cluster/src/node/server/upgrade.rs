//! How a request becomes a connection of its own: WebSocket, SPDY, or SPDY inside a WebSocket.
//!
//! kubectl asks for WebSockets; API servers of Kubernetes still ask their kubelets for SPDY, and older clients fall
//! back to it.

use super::spdy::{self, Stream};
use super::{Body, StatusCode, text};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderValue, Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

/// The WebSocket protocol that carries SPDY's own.
const TUNNEL: &str = "SPDY/3.1+";
/// Bytes that wait between a WebSocket and the SPDY inside it.
const BETWEEN: usize = 64 << 10;
/// The most that one WebSocket message carries of a tunnel.
const PIECE: usize = 32 << 10;

/// Protocols that a path speaks, the best first.
pub struct Spoken {
    /// Over WebSocket messages that start with a channel's number.
    pub channels: &'static [&'static str],
    /// Over SPDY streams.
    pub streams: &'static [&'static str],
}

pub type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

/// The connection as the client wanted it.
pub enum Connection {
    /// With the name of the protocol.
    Channels(Box<Socket>, &'static str),
    Streams(mpsc::Receiver<Stream>),
}

/// What was agreed on; the connection is there once the answer has been sent.
pub struct Agreed {
    pub answer: Response<Body>,
    kind: Kind,
    upgraded: hyper::upgrade::OnUpgrade,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Channels(&'static str),
    Tunnel,
    Spdy,
}

impl Agreed {
    /// Finds what both sides speak, or says why there is nothing.
    pub fn on(request: &mut Request<Incoming>, spoken: &Spoken) -> Result<Agreed, Box<Response<Body>>> {
        let (mut answer, kind) = agree(request, spoken).map_err(|why| Box::new(text(StatusCode::BAD_REQUEST, &why)))?;
        answer.headers_mut().remove(http::header::CONTENT_TYPE);
        Ok(Agreed {
            answer,
            kind,
            upgraded: hyper::upgrade::on(request),
        })
    }

    /// Splits the answer to send from the connection that follows it.
    pub fn start(self) -> (Response<Body>, impl Future<Output = Option<Connection>> + Send) {
        let Agreed { answer, kind, upgraded } = self;
        let connection = async move {
            let connection = TokioIo::new(upgraded.await.ok()?);
            Some(match kind {
                Kind::Spdy => Connection::Streams(spdy::serve(connection)),
                Kind::Channels(protocol) => Connection::Channels(Box::new(websocket(connection).await), protocol),
                Kind::Tunnel => Connection::Streams(spdy::serve(tunnel(websocket(connection).await))),
            })
        };
        (answer, connection)
    }
}

async fn websocket(connection: TokioIo<hyper::upgrade::Upgraded>) -> Socket {
    WebSocketStream::from_raw_socket(connection, Role::Server, None).await
}

fn agree(request: &Request<Incoming>, spoken: &Spoken) -> Result<(Response<Body>, Kind), String> {
    let values = |name: &str| -> Vec<String> {
        let all = request.headers().get_all(name).iter();
        let lists = all.filter_map(|value| value.to_str().ok());
        let words = lists.flat_map(|list| list.split(',').map(|word| word.trim().to_owned()));
        words.collect()
    };
    let asks_for = |protocol: &str| values("upgrade").iter().any(|word| word.eq_ignore_ascii_case(protocol));
    if asks_for("websocket") {
        let offered = values("sec-websocket-protocol");
        let key = values("sec-websocket-key");
        let key = key.first().ok_or("the header Sec-WebSocket-Key is missing")?;
        let plain = spoken
            .channels
            .iter()
            .find(|known| offered.iter().any(|name| name == *known));
        let tunnelled = spoken
            .streams
            .iter()
            .map(|known| format!("{TUNNEL}{known}"))
            .find(|known| offered.contains(known));
        let (name, kind) = match (plain, tunnelled) {
            (Some(plain), _) => ((*plain).to_owned(), Kind::Channels(plain)),
            (None, Some(tunnelled)) => (tunnelled, Kind::Tunnel),
            (None, None) => return Err(format!("none of the protocols {offered:?} is served")),
        };
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let headers = [("sec-websocket-protocol", name), ("sec-websocket-accept", accept)];
        return Ok((switching("websocket", &headers), kind));
    }
    if asks_for("SPDY/3.1") {
        let offered = values("x-stream-protocol-version");
        let chosen = spoken
            .streams
            .iter()
            .find(|known| offered.iter().any(|name| name == *known));
        let chosen = chosen.ok_or_else(|| format!("none of the protocols {offered:?} is served"))?;
        let headers = [("x-stream-protocol-version", (*chosen).to_owned())];
        return Ok((switching("SPDY/3.1", &headers), Kind::Spdy));
    }
    Err("Upgrade request required: this path is served over WebSocket and SPDY/3.1".to_owned())
}

fn switching(to: &'static str, more: &[(&'static str, String)]) -> Response<Body> {
    let mut answer = text(StatusCode::SWITCHING_PROTOCOLS, "");
    let headers = answer.headers_mut();
    headers.insert("connection", HeaderValue::from_static("Upgrade"));
    headers.insert("upgrade", HeaderValue::from_static(to));
    for (name, value) in more {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(*name, value);
        }
    }
    answer
}

/// The bytes inside a WebSocket's messages as one connection.
fn tunnel(socket: Socket) -> DuplexStream {
    let (near, far) = tokio::io::duplex(BETWEEN);
    let (mut sink, mut source) = socket.split();
    let (mut reader, mut writer) = tokio::io::split(far);
    tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            let Message::Binary(bytes) = message else { continue };
            if writer.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    tokio::spawn(async move {
        let mut buffer = vec![0; PIECE];
        while let Ok(count) = reader.read(&mut buffer).await {
            let message = Message::Binary(Bytes::copy_from_slice(&buffer[..count]));
            if count == 0 || sink.send(message).await.is_err() {
                break;
            }
        }
        let _ = sink.close().await;
    });
    near
}
