//! A body as WebSocket messages, for clients that can read no other stream: browsers, and Kubernetes' own tests.

use crate::error::{ApiError, Result};
use crate::server::Body;
use crate::verbs::Call;
use crate::verbs::watch::websocket;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use futures::{SinkExt, StreamExt};
use http::Response;
use http_body_util::BodyExt;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

/// How bytes are put into messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Binary,
    /// As text, for clients that have no bytes.
    Base64,
}

/// The forms, by the names under which clients ask for them. Who names none gets bytes.
const FORMS: [(&str, Form); 2] = [("binary.k8s.io", Form::Binary), ("base64.binary.k8s.io", Form::Base64)];

/// What was agreed on with a client.
pub struct Agreed {
    accepted: websocket::Accepted,
    form: Form,
}

impl Agreed {
    /// What a client wants that asks for WebSocket; `None` for one that does not.
    pub fn with(call: &Call) -> Result<Option<Agreed>> {
        if !websocket::is_requested(&call.headers) {
            return Ok(None);
        }
        let offered = call.headers.get("sec-websocket-protocol");
        let offered = offered.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let (name, form) = choose(offered)?;
        let accepted = websocket::accept(call, name)?;
        Ok(Some(Agreed { accepted, form }))
    }

    /// The answer, after which the body follows in messages.
    pub fn send(self, body: Body) -> Response<Body> {
        let Agreed { accepted, form } = self;
        tokio::spawn(async move {
            let Ok(connection) = accepted.upgrade.await else {
                return;
            };
            let socket = WebSocketStream::from_raw_socket(TokioIo::new(connection), Role::Server, None).await;
            pass(socket, body, form).await;
        });
        accepted.answer
    }
}

fn choose(offered: &str) -> Result<(Option<&'static str>, Form)> {
    let mut names = offered
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .peekable();
    if names.peek().is_none() {
        return Ok((None, Form::Binary));
    }
    let known = |name: &str| FORMS.iter().find(|(known, _)| *known == name);
    let (name, form) = names
        .find_map(known)
        .ok_or_else(|| ApiError::bad_request(format!("none of the protocols {offered:?} is served")))?;
    Ok((Some(name), *form))
}

/// Sends a body until it ends or the client is gone.
async fn pass<S: AsyncRead + AsyncWrite + Unpin>(socket: WebSocketStream<S>, mut body: Body, form: Form) {
    let (mut sink, mut source) = socket.split();
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            // A client only ever says that it goes.
            said = source.next() => match said {
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => continue,
            },
        };
        let Some(Ok(frame)) = frame else { break };
        let Ok(bytes) = frame.into_data() else { continue };
        let message = match form {
            Form::Binary => Message::Binary(bytes),
            Form::Base64 => Message::text(STANDARD.encode(&bytes)),
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
    // The client may be gone already; there is nothing else to do then.
    let _ = sink.close().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    #[test]
    fn the_first_form_that_is_known_is_taken() {
        let chosen = |offered: &str| choose(offered).ok();
        assert_eq!(chosen(""), Some((None, Form::Binary)));
        assert_eq!(chosen("binary.k8s.io"), Some((Some("binary.k8s.io"), Form::Binary)));
        let both = "nonsense, base64.binary.k8s.io, binary.k8s.io";
        assert_eq!(chosen(both), Some((Some("base64.binary.k8s.io"), Form::Base64)));
        assert_eq!(chosen("v5.channel.k8s.io"), None);
    }

    async fn received(form: Form) -> Vec<Message> {
        let (near, far) = tokio::io::duplex(1024);
        let pieces = ["one\n", "two\n"].map(|text| Bytes::from_static(text.as_bytes()));
        let body = crate::server::body::stream(futures::stream::iter(pieces));
        let server = WebSocketStream::from_raw_socket(near, Role::Server, None).await;
        let passing = tokio::spawn(pass(server, body, form));
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        let mut all = Vec::new();
        while let Some(Ok(message)) = client.next().await {
            if message.is_close() {
                break;
            }
            all.push(message);
        }
        passing.await.unwrap();
        all
    }

    #[tokio::test]
    async fn each_piece_of_a_log_is_a_message_and_its_end_closes_the_connection() {
        let bytes = |text: &'static str| Message::Binary(Bytes::from_static(text.as_bytes()));
        assert_eq!(received(Form::Binary).await, [bytes("one\n"), bytes("two\n")]);
        assert_eq!(
            received(Form::Base64).await,
            [Message::text("b25lCg=="), Message::text("dHdvCg==")]
        );
    }
}
