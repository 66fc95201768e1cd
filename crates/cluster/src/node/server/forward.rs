//! Port-forward: connections to ports of a pod, for clients that cannot reach its network.
//!
//! Over SPDY every connection is a pair of streams, `data` and `error`, that name the port in their headers. Over
//! WebSocket channels, the n-th port's channel 2n carries data and 2n+1 an error; the first message of each names the
//! port in two bytes, and every port is one connection.

use super::spdy::{Stream, Writer};
use super::upgrade::{Agreed, Connection, Socket, Spoken};
use super::{Body, Parameters, Process, StatusCode, text};
use crate::node::process::spec::SandboxRecord;
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::Message;

const SPOKEN: Spoken = Spoken {
    channels: &["v4.channel.k8s.io"],
    streams: &["portforward.k8s.io"],
};
/// Ports of one request over channels; their numbers are one byte.
const MOST_PORTS: usize = 64;
const PIECE: usize = 32 << 10;

/// Switches the request to a connection and serves it.
pub fn upgrade(
    process: Arc<Process>,
    mut request: Request<Incoming>,
    uid: &str,
    parameters: &Parameters,
) -> Response<Body> {
    let listed = [parameters.all("ports"), parameters.all("port")].concat();
    let ports: Vec<u16> = listed
        .iter()
        .flat_map(|list| list.split(','))
        .filter_map(|port| port.parse().ok())
        .collect();
    let Some(pod) = process.sandbox(uid) else {
        return text(StatusCode::BAD_REQUEST, "the pod has no address");
    };
    let agreed = match Agreed::on(&mut request, &SPOKEN) {
        Ok(agreed) => agreed,
        Err(refusal) => return *refusal,
    };
    let (answer, connection) = agreed.start();
    tokio::spawn(async move {
        match connection.await {
            Some(Connection::Streams(streams)) => pairs(&process, streams, pod).await,
            Some(Connection::Channels(socket, _)) => {
                let count = ports.len().min(MOST_PORTS);
                channels(&process, *socket, &pod, &ports[..count]).await;
            }
            None => {}
        }
    });
    answer
}

/// Serves pairs of streams until the client is gone.
async fn pairs(process: &Arc<Process>, mut streams: mpsc::Receiver<Stream>, pod: SandboxRecord) {
    let pod = Arc::new(pod);
    let mut waiting: HashMap<String, Stream> = HashMap::new();
    while let Some(stream) = streams.recv().await {
        let Ok(port) = stream.header("port").parse::<u16>() else {
            let _ = stream.writer.reset().await;
            continue;
        };
        // Old clients number no requests, but open the error stream right before its data stream.
        let own = match (stream.header("requestid"), stream.header("streamtype")) {
            ("", "data") => stream.id.saturating_sub(2).to_string(),
            ("", _) => stream.id.to_string(),
            (given, _) => given.to_owned(),
        };
        let Some(other) = waiting.remove(&own) else {
            waiting.insert(own, stream);
            continue;
        };
        let (data, error) = match stream.header("streamtype") {
            "data" => (stream, other),
            _ => (other, stream),
        };
        let (process, pod) = (process.clone(), pod.clone());
        tokio::spawn(async move {
            if let Err(problem) = connect(&process, data, &pod, port).await {
                let words = format!("error forwarding port {port} to the pod: {problem}");
                let _ = error.writer.send(words.as_bytes()).await;
            }
            let _ = error.writer.end().await;
        });
    }
}

/// One connection to the pod, for as long as either side has something to say.
async fn connect(process: &Process, mut data: Stream, pod: &SandboxRecord, port: u16) -> io::Result<()> {
    let connected = process.network.connect_to_pod(pod, port).await;
    let (mut reader, mut writer) = match connected {
        Ok(stream) => TcpStream::into_split(stream),
        Err(error) => {
            let _ = data.writer.reset().await;
            return Err(error);
        }
    };
    let back = tokio::spawn({
        let to = data.writer.clone();
        async move { copy_back(&mut reader, &to).await }
    });
    while let Some(bytes) = data.data.recv().await {
        if writer.write_all(&bytes).await.is_err() {
            break;
        }
    }
    // The pod hears the end of what the client sends, and may still answer.
    let _ = writer.shutdown().await;
    let _ = back.await;
    Ok(())
}

async fn copy_back(from: &mut (impl tokio::io::AsyncRead + Unpin), to: &Writer) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 || to.send(&buffer[..count]).await.is_err() {
            break;
        }
    }
    let _ = to.end().await;
}

async fn channels(process: &Arc<Process>, socket: Socket, pod: &SandboxRecord, ports: &[u16]) {
    let (mut sink, mut source) = socket.split();
    let (sender, mut outgoing) = mpsc::channel::<Vec<u8>>(32);
    tokio::spawn(async move {
        while let Some(message) = outgoing.recv().await {
            if sink.send(Message::binary(message)).await.is_err() {
                return;
            }
        }
        let _ = sink.close().await;
    });
    let mut writers: Vec<Option<OwnedWriteHalf>> = Vec::new();
    for (index, port) in ports.iter().enumerate() {
        let channel = u8::try_from(index * 2).unwrap_or(0);
        let [low, high] = port.to_le_bytes();
        for channel in [channel, channel + 1] {
            if sender.send(vec![channel, low, high]).await.is_err() {
                return;
            }
        }
        match process.network.connect_to_pod(pod, *port).await {
            Ok(stream) => {
                let (mut reader, writer) = stream.into_split();
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; PIECE];
                    while let Ok(count) = reader.read(&mut buffer).await {
                        let message = [&[channel], &buffer[..count]].concat();
                        if count == 0 || sender.send(message).await.is_err() {
                            return;
                        }
                    }
                });
                writers.push(Some(writer));
            }
            Err(error) => {
                let words = format!("failed to connect to port {port} of the pod: {error}");
                let _ = sender.send([&[channel + 1], words.as_bytes()].concat()).await;
                writers.push(None);
            }
        }
    }
    drop(sender);
    while let Some(Ok(message)) = source.next().await {
        let Message::Binary(data) = message else { continue };
        let Some((channel, data)) = data.split_first() else {
            continue;
        };
        let writer = writers.get_mut(usize::from(*channel) / 2).and_then(Option::as_mut);
        if let Some(writer) = writer.filter(|_| channel % 2 == 0)
            && writer.write_all(data).await.is_err()
        {
            return;
        }
    }
}
