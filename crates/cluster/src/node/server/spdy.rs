//! A SPDY/3.1 connection: streams that a client opens, each with headers and bytes both ways.
//!
//! One task reads, one writes. A stream whose reader is slow holds the others up, as it does in the clients that
//! speak this: there is no flow control, and memory stays bounded.

pub mod frame;

use bytes::Bytes;
use frame::{Builder, Frame, HEADER, Last, Parser};
use std::collections::{BTreeMap, HashMap};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;

/// Frames under way to a client, or to the reader of a stream.
const QUEUE: usize = 64;
/// Streams of one connection that are open at once.
const MOST_STREAMS: usize = 1024;

/// A stream that the client has opened.
pub struct Stream {
    pub id: u32,
    /// Names are lower-case.
    pub headers: BTreeMap<String, String>,
    /// Ends when the client has sent all.
    pub data: mpsc::Receiver<Bytes>,
    pub writer: Writer,
}

impl Stream {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(String::as_str).unwrap_or_default()
    }
}

/// The server's side of a stream.
#[derive(Clone)]
pub struct Writer {
    id: u32,
    frames: mpsc::Sender<Vec<u8>>,
}

/// The client is gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Gone;

impl Writer {
    pub async fn send(&self, bytes: &[u8]) -> Result<(), Gone> {
        self.frame(frame::data(self.id, bytes, Last::No)).await
    }

    /// Says that nothing more comes.
    pub async fn end(&self) -> Result<(), Gone> {
        self.frame(frame::data(self.id, &[], Last::Yes)).await
    }

    /// Ends the stream both ways, as broken.
    pub async fn reset(&self) -> Result<(), Gone> {
        self.frame(frame::reset(self.id)).await
    }

    async fn frame(&self, frame: Vec<u8>) -> Result<(), Gone> {
        self.frames.send(frame).await.map_err(|_| Gone)
    }
}

/// Serves a connection. Streams come as they are opened; none comes any more when the client is gone. The connection
/// is closed when every stream and writer has been dropped.
pub fn serve(connection: impl AsyncRead + AsyncWrite + Send + 'static) -> mpsc::Receiver<Stream> {
    let (mut reader, mut writer) = tokio::io::split(connection);
    let (frames, mut outgoing) = mpsc::channel::<Vec<u8>>(QUEUE);
    let (opened, streams) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        while let Some(frame) = outgoing.recv().await {
            let sent = async {
                writer.write_all(&frame).await?;
                writer.flush().await
            };
            if sent.await.is_err() {
                return;
            }
        }
        let _ = writer.shutdown().await;
    });
    tokio::spawn(async move {
        if let Err(error) = read(&mut reader, &frames, &opened).await {
            tracing::debug!(%error, "a streaming connection broke");
        }
    });
    streams
}

async fn read(
    reader: &mut (impl AsyncRead + Unpin),
    frames: &mpsc::Sender<Vec<u8>>,
    opened: &mpsc::Sender<Stream>,
) -> std::io::Result<()> {
    let mut parser = Parser::default();
    let mut builder = Builder::default();
    let mut open: HashMap<u32, mpsc::Sender<Bytes>> = HashMap::new();
    loop {
        let mut header = [0; HEADER];
        // Nobody takes streams any more: the session is over, and the connection with it.
        tokio::select! {
            read = reader.read_exact(&mut header) => read?,
            () = opened.closed() => return Ok(()),
        };
        let mut payload = vec![0; frame::payload(header).map_err(std::io::Error::other)?];
        reader.read_exact(&mut payload).await?;
        match parser.frame(header, payload).map_err(std::io::Error::other)? {
            Frame::Open { stream, headers, end } => {
                if open.len() >= MOST_STREAMS {
                    let _ = frames.send(frame::reset(stream)).await;
                    continue;
                }
                let (sender, data) = mpsc::channel(QUEUE);
                if !end {
                    open.insert(stream, sender);
                }
                let stream = Stream {
                    id: stream,
                    headers: headers.into_iter().collect(),
                    data,
                    writer: Writer {
                        id: stream,
                        frames: frames.clone(),
                    },
                };
                let _ = frames.send(builder.reply(stream.id)).await;
                if opened.send(stream).await.is_err() {
                    return Ok(());
                }
            }
            Frame::Data { stream, bytes, end } => {
                if let Some(to) = open.get(&stream).filter(|_| !bytes.is_empty()) {
                    // Whoever reads the stream may have had enough of it.
                    let _ = to.send(Bytes::from(bytes)).await;
                }
                if end {
                    open.remove(&stream);
                }
            }
            Frame::Reset { stream } => {
                open.remove(&stream);
            }
            Frame::Ping(id) => {
                let _ = frames.send(frame::ping(id)).await;
            }
            Frame::GoAway => return Ok(()),
            Frame::Other => {}
        }
    }
}

/// A stream as a client would open it, with both of its far ends.
#[cfg(test)]
pub fn opened(id: u32, headers: &[(&str, &str)]) -> (Stream, mpsc::Sender<Bytes>, mpsc::Receiver<Vec<u8>>) {
    let (sender, data) = mpsc::channel(QUEUE);
    let (frames, outgoing) = mpsc::channel(QUEUE);
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let stream = Stream {
        id,
        headers: headers.collect(),
        data,
        writer: Writer { id, frames },
    };
    (stream, sender, outgoing)
}
