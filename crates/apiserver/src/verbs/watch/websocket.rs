//! Watches over WebSocket: each event is a text message.

use super::Stream;
use crate::error::{ApiError, Result};
use crate::server::Body;
use crate::verbs::Call;
use futures::SinkExt;
use http::{HeaderMap, HeaderValue, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

/// Whether the client wants to speak WebSocket.
pub fn is_requested(headers: &HeaderMap) -> bool {
    let has = |name: &str, word: &str| {
        headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .is_some_and(|value| value.to_ascii_lowercase().contains(word))
    };
    has("connection", "upgrade") && has("upgrade", "websocket")
}

/// A client whose wish for WebSocket is granted.
pub struct Accepted {
    /// What it is told.
    pub answer: Response<Body>,
    /// The connection that it has after that.
    pub upgrade: hyper::upgrade::OnUpgrade,
}

/// Accepts the upgrade, with the protocol inside it that was agreed on.
pub fn accept(call: &Call, protocol: Option<&'static str>) -> Result<Accepted> {
    let key = call
        .headers
        .get("sec-websocket-key")
        .ok_or_else(|| ApiError::bad_request("the header Sec-WebSocket-Key is missing"))?;
    let accept = derive_accept_key(key.as_bytes());
    let upgrade = call
        .upgrade
        .lock()
        .take()
        .ok_or_else(|| ApiError::bad_request("this connection cannot be upgraded"))?;
    let mut answer = Response::new(Body::default());
    *answer.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = answer.headers_mut();
    headers.insert("connection", HeaderValue::from_static("Upgrade"));
    headers.insert("upgrade", HeaderValue::from_static("websocket"));
    if let Ok(accept) = HeaderValue::from_str(&accept) {
        headers.insert("sec-websocket-accept", accept);
    }
    if let Some(protocol) = protocol {
        headers.insert("sec-websocket-protocol", HeaderValue::from_static(protocol));
    }
    Ok(Accepted { answer, upgrade })
}

/// Accepts the upgrade and sends events until either side ends.
pub fn answer(call: &Call, mut stream: Stream) -> Result<Response<Body>> {
    let Accepted { answer, upgrade } = accept(call, None)?;
    tokio::spawn(async move {
        let Ok(connection) = upgrade.await else { return };
        let mut socket = WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, None).await;
        while let Some(piece) = stream.next_piece().await {
            let text = String::from_utf8_lossy(&piece).into_owned();
            for line in text.lines() {
                if socket.send(Message::text(line)).await.is_err() {
                    return;
                }
            }
        }
        // The client may be gone already; there is nothing else to do then.
        let _ = socket.close(None).await;
    });
    Ok(answer)
}
