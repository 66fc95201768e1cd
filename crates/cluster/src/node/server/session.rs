//! An interactive session with a client, whatever protocol carries it: input and sizes in, output and a status out.
//!
//! Over a WebSocket each message starts with a channel number: 0 input, 1 output, 2 error output, 3 the final status,
//! 4 the terminal's size, and in version 5 of the protocol 255 to close another channel. Over SPDY each of these is a
//! stream of its own.

use super::spdy::{Stream, Writer};
use super::upgrade::{Connection, Socket, Spoken};
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use serde::Deserialize;
use serde_json::Value;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// What sessions are spoken over.
pub const SPOKEN: Spoken = Spoken {
    channels: &["v5.channel.k8s.io", "v4.channel.k8s.io", OLDEST],
    streams: &["v4.channel.k8s.io"],
};

/// The first version, whose last word is a text, and nothing after a success.
const OLDEST: &str = "channel.k8s.io";

const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const STATUS: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
/// Messages under way in either direction.
const QUEUE: usize = 32;
/// How long a client may take to open its streams.
const STREAMS_PATIENCE: Duration = Duration::from_secs(30);
/// How long a client may take to close a connection after it has all.
const CLOSE_PATIENCE: Duration = Duration::from_secs(10);

/// What a client sends.
#[derive(Debug, PartialEq, Eq)]
pub enum FromClient {
    Input(Bytes),
    InputEnds,
    Resize(Size),
    /// Nobody waits for the session any more.
    Gone,
}

/// What a client gets.
#[derive(Debug)]
pub enum ToClient {
    Output(Bytes),
    Errors(Bytes),
    /// The last message.
    Status(Value),
}

/// The size of a terminal.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub struct Size {
    #[serde(rename = "Width")]
    pub columns: u16,
    #[serde(rename = "Height")]
    pub rows: u16,
}

/// Streams of a session that a client asked for in its request.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub input: bool,
    pub output: bool,
    pub errors: bool,
    pub terminal: bool,
}

/// A session that has begun.
pub struct Session {
    pub from: mpsc::Receiver<FromClient>,
    pub to: mpsc::Sender<ToClient>,
    writer: JoinHandle<()>,
}

impl Session {
    /// Begins a session, or nothing if the client does not take part.
    pub async fn begin(connection: Connection, asked: Asked) -> Option<Session> {
        match connection {
            Connection::Channels(socket, protocol) => Some(channels(*socket, protocol)),
            Connection::Streams(streams) => Parts::collect(streams, asked).await.map(Parts::begin),
        }
    }

    /// Sends the last word and waits until it is out.
    pub async fn finish(self, status: Value) {
        let Session { from, to, writer } = self;
        let _ = to.send(ToClient::Status(status)).await;
        drop(to);
        let _ = writer.await;
        drop(from);
    }
}

fn channels(socket: Socket, protocol: &'static str) -> Session {
    let (mut sink, mut source) = socket.split();
    let (sender, from) = mpsc::channel(QUEUE);
    let (to, mut outgoing) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        while let Some(Ok(message)) = source.next().await {
            let message = match message {
                Message::Binary(bytes) => from_channel(bytes),
                Message::Close(_) => break,
                _ => None,
            };
            if let Some(message) = message
                && sender.send(message).await.is_err()
            {
                return;
            }
        }
        let _ = sender.send(FromClient::Gone).await;
    });
    let writer = tokio::spawn(async move {
        while let Some(message) = outgoing.recv().await {
            let bytes = match message {
                ToClient::Output(bytes) => numbered(OUTPUT, &bytes),
                ToClient::Errors(bytes) => numbered(ERRORS, &bytes),
                ToClient::Status(status) if protocol == OLDEST => match status["message"].as_str() {
                    Some(why) => numbered(STATUS, why.as_bytes()),
                    None => continue,
                },
                ToClient::Status(status) => numbered(STATUS, status.to_string().as_bytes()),
            };
            if sink.send(Message::binary(bytes)).await.is_err() {
                return;
            }
        }
        // Clients take any other end for a broken connection, and lose the command's exit code with it.
        let done = CloseFrame {
            code: CloseCode::Normal,
            reason: "".into(),
        };
        let _ = sink.send(Message::Close(Some(done))).await;
        let _ = sink.close().await;
    });
    Session { from, to, writer }
}

fn numbered(channel: u8, bytes: &[u8]) -> Vec<u8> {
    [&[channel], bytes].concat()
}

/// What a message says, if it says anything.
fn from_channel(mut message: Bytes) -> Option<FromClient> {
    let channel = message.split_to(message.len().min(1));
    match (channel.first()?, message.first()) {
        (&INPUT, Some(_)) => Some(FromClient::Input(message)),
        (&CLOSE, Some(&INPUT)) => Some(FromClient::InputEnds),
        (&RESIZE, Some(_)) => serde_json::from_slice(&message).ok().map(FromClient::Resize),
        _ => None,
    }
}

/// The streams of a session over SPDY.
struct Parts {
    /// Says when the client is gone.
    more: mpsc::Receiver<Stream>,
    status: Writer,
    input: Option<Stream>,
    output: Option<Writer>,
    errors: Option<Writer>,
    resize: Option<Stream>,
}

impl Parts {
    async fn collect(mut streams: mpsc::Receiver<Stream>, asked: Asked) -> Option<Parts> {
        let wanted = [true, asked.input, asked.output, asked.errors, asked.terminal];
        let mut missing = wanted.iter().filter(|wanted| **wanted).count();
        let mut status = None;
        let (mut input, mut output, mut errors, mut resize) = (None, None, None, None);
        while missing > 0 {
            let stream = tokio::time::timeout(STREAMS_PATIENCE, streams.recv()).await.ok()??;
            match stream.header("streamtype") {
                "error" => status = Some(stream.writer),
                "stdin" => input = Some(stream),
                "stdout" => output = Some(stream.writer),
                "stderr" => errors = Some(stream.writer),
                "resize" => resize = Some(stream),
                _ => continue,
            }
            missing -= 1;
        }
        Some(Parts {
            more: streams,
            status: status?,
            input,
            output,
            errors,
            resize,
        })
    }

    fn begin(self) -> Session {
        let Parts {
            mut more,
            status,
            input,
            output,
            errors,
            resize,
        } = self;
        let (sender, from) = mpsc::channel(QUEUE);
        let (to, mut outgoing) = mpsc::channel(QUEUE);
        let (mut input, mut resize) = (input, resize);
        let reader = tokio::spawn(async move {
            loop {
                let message = tokio::select! {
                    bytes = next(&mut input) => match bytes {
                        Some(bytes) => FromClient::Input(bytes),
                        None => {
                            input = None;
                            FromClient::InputEnds
                        }
                    },
                    bytes = next(&mut resize) => {
                        let Some(bytes) = bytes else {
                            resize = None;
                            continue;
                        };
                        let sizes = serde_json::Deserializer::from_slice(&bytes).into_iter::<Size>();
                        let Some(Ok(size)) = sizes.last() else { continue };
                        FromClient::Resize(size)
                    }
                    stream = more.recv() => match stream {
                        Some(_) => continue,
                        None => FromClient::Gone,
                    },
                };
                let gone = message == FromClient::Gone;
                if sender.send(message).await.is_err() || gone {
                    return more;
                }
            }
        });
        let writer = tokio::spawn(async move {
            while let Some(message) = outgoing.recv().await {
                let sent = match message {
                    ToClient::Output(bytes) => send(output.as_ref(), &bytes).await,
                    ToClient::Errors(bytes) => send(errors.as_ref(), &bytes).await,
                    ToClient::Status(value) => send(Some(&status), value.to_string().as_bytes()).await,
                };
                if sent.is_err() {
                    return;
                }
            }
            for writer in [output, errors, Some(status)].into_iter().flatten() {
                let _ = writer.end().await;
            }
            // The client closes the connection when it has read all; closing first would cut its last words off.
            let _ = tokio::time::timeout(CLOSE_PATIENCE, async { drain(reader).await }).await;
        });
        Session { from, to, writer }
    }
}

async fn drain(reader: JoinHandle<mpsc::Receiver<Stream>>) {
    if let Ok(mut more) = reader.await {
        while more.recv().await.is_some() {}
    }
}

async fn send(to: Option<&Writer>, bytes: &[u8]) -> Result<(), super::spdy::Gone> {
    match to {
        Some(to) => to.send(bytes).await,
        None => Ok(()),
    }
}

/// The next bytes of a stream; never, where there is none.
async fn next(stream: &mut Option<Stream>) -> Option<Bytes> {
    match stream {
        Some(stream) => stream.data.recv().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_channels_are_told_apart() {
        let told = |message: &'static [u8]| from_channel(Bytes::from_static(message));
        assert_eq!(told(b"\x00ls\n"), Some(FromClient::Input(Bytes::from_static(b"ls\n"))));
        assert_eq!(told(b"\xff\x00"), Some(FromClient::InputEnds));
        let size = Size { columns: 80, rows: 24 };
        assert_eq!(
            told(b"\x04{\"Width\":80,\"Height\":24}"),
            Some(FromClient::Resize(size))
        );
        for nonsense in [&b""[..], b"\x00", b"\x04{}", b"\xff", b"\x09x"] {
            assert_eq!(told(nonsense), None);
        }
    }
}
