//! Port-forward: connections to ports of a pod, for clients that cannot reach its network.
//!
//! Over SPDY every connection is a pair of streams, `data` and `error`, that name the port in their headers. Over
//! WebSocket channels, the n-th port's channel 2n carries data and 2n+1 an error; the first message of each names the
//! port in two bytes, and every port is one connection.

use super::spdy::{Stream, Writer};
use super::upgrade::{Agreed, Connection, Socket, Spoken};
use super::{Body, Parameters, Process, StatusCode, text};
use crate::node::network::Network;
use crate::node::process::spec::SandboxRecord;
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio_tungstenite::tungstenite::Message;

const SPOKEN: Spoken = Spoken {
    channels: &["v4.channel.k8s.io"],
    streams: &["portforward.k8s.io"],
};
/// Ports of one request over channels; their numbers are one byte.
const MOST_PORTS: usize = 64;
/// Connections to pods at once, over all requests; one more is refused. Each costs a task, two sockets and, while it comes
/// about, a thread in the pod's namespace.
const MOST_CONNECTIONS: usize = 1024;
/// Streams of one request that wait for the other of their pair; one more is refused.
const MOST_WAITING: usize = 64;
/// How long the last that a client sent may take to reach the pod when the client is gone.
const LAST_BYTES: Duration = Duration::from_secs(10);
const PIECE: usize = 32 << 10;

/// A permit for each connection to a pod.
pub struct Room(Arc<Semaphore>);

impl Default for Room {
    fn default() -> Room {
        Room(Arc::new(Semaphore::new(MOST_CONNECTIONS)))
    }
}

impl Room {
    fn take(&self) -> io::Result<OwnedSemaphorePermit> {
        self.0.clone().try_acquire_owned().map_err(|_| {
            io::Error::other(format!(
                "the node forwards {MOST_CONNECTIONS} connections already: end some first"
            ))
        })
    }
}

/// The pod that connections go to.
#[derive(Clone)]
struct Target {
    network: Arc<dyn Network>,
    pod: Arc<SandboxRecord>,
}

impl Target {
    async fn connect(&self, port: u16) -> io::Result<TcpStream> {
        self.network.connect_to_pod(&self.pod, port).await
    }
}

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
    let target = Target {
        network: process.network.clone(),
        pod: Arc::new(pod),
    };
    tokio::spawn(async move {
        match connection.await {
            Some(Connection::Streams(streams)) => pairs(&process.forwards, streams, target).await,
            Some(Connection::Channels(socket, _)) => {
                let count = ports.len().min(MOST_PORTS);
                channels(&process.forwards, *socket, &target, &ports[..count]).await;
            }
            None => {}
        }
    });
    answer
}

/// Serves pairs of streams until the client is gone. What it has opened ends soon after it: a pod that says nothing more
/// would otherwise keep a connection that nobody reads.
async fn pairs(room: &Room, mut streams: mpsc::Receiver<Stream>, target: Target) {
    let mut waiting: HashMap<String, Stream> = HashMap::new();
    let mut open = JoinSet::new();
    loop {
        let stream = tokio::select! {
            stream = streams.recv() => stream,
            Some(_) = open.join_next() => continue,
        };
        let Some(stream) = stream else { break };
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
            if waiting.len() < MOST_WAITING {
                waiting.insert(own, stream);
            } else {
                let _ = stream.writer.reset().await;
            }
            continue;
        };
        let (data, error) = match stream.header("streamtype") {
            "data" => (stream, other),
            _ => (other, stream),
        };
        match room.take() {
            Ok(permit) => {
                let target = target.clone();
                open.spawn(async move {
                    let _permit = permit;
                    let ended = connect(&target, data, port).await;
                    finish(port, &error.writer, ended).await;
                });
            }
            Err(full) => {
                let _ = data.writer.reset().await;
                finish(port, &error.writer, Err(full)).await;
            }
        }
    }
    let all = async { while open.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(LAST_BYTES, all).await;
    open.shutdown().await;
}

/// Tells the client how its connection ended. It may be gone by now.
async fn finish(port: u16, to: &Writer, ended: io::Result<()>) {
    if let Err(problem) = ended {
        let words = format!("error forwarding port {port} to the pod: {problem}");
        let _ = to.send(words.as_bytes()).await;
    }
    let _ = to.end().await;
}

/// One connection to the pod, for as long as either side has something to say.
async fn connect(target: &Target, data: Stream, port: u16) -> io::Result<()> {
    let (mut reader, mut writer) = match target.connect(port).await {
        Ok(stream) => TcpStream::into_split(stream),
        Err(error) => {
            let _ = data.writer.reset().await;
            return Err(error);
        }
    };
    let Stream {
        data: mut sent,
        writer: back,
        ..
    } = data;
    // It takes along what it reads from: a stream that nobody reads must not hold up the others of its client.
    let forth = async move {
        while let Some(bytes) = sent.recv().await {
            if writer.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // The pod hears the end of what the client sends, and may still answer.
        let _ = writer.shutdown().await;
    };
    tokio::join!(forth, copy_back(&mut reader, &back));
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

/// Serves the channels of some ports until the client is gone, and then ends what it has opened.
async fn channels(room: &Room, socket: Socket, target: &Target, ports: &[u16]) {
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
    let mut open = JoinSet::new();
    for (index, port) in ports.iter().enumerate() {
        let channel = u8::try_from(index * 2).unwrap_or(0);
        let [low, high] = port.to_le_bytes();
        for channel in [channel, channel + 1] {
            if sender.send(vec![channel, low, high]).await.is_err() {
                return;
            }
        }
        let connected = match room.take() {
            Ok(permit) => target.connect(*port).await.map(|stream| (stream, permit)),
            Err(full) => Err(full),
        };
        match connected {
            Ok((stream, permit)) => {
                let (mut reader, writer) = stream.into_split();
                let sender = sender.clone();
                open.spawn(async move {
                    let _permit = permit;
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
        let slot = writers.get_mut(usize::from(*channel) / 2).filter(|_| channel % 2 == 0);
        if let Some(slot) = slot
            && let Some(writer) = slot
            && writer.write_all(data).await.is_err()
        {
            // This port's program hears no more; it may still talk, and others' do both.
            *slot = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::spdy::opened;
    use super::*;
    use crate::node::network::{Loopback, range::Range};
    use std::net::Ipv4Addr;
    use tokio::net::TcpListener;

    fn target() -> Target {
        let pod = SandboxRecord {
            uid: "u".to_owned(),
            namespace: "n".to_owned(),
            name: "p".to_owned(),
            addresses: vec![Ipv4Addr::LOCALHOST.into()],
            holder: None,
            detached: false,
            node: None,
        };
        Target {
            network: Arc::new(Loopback::new(Range::Own)),
            pod: Arc::new(pod),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_connection_too_many_is_refused_and_those_of_a_client_that_is_gone_make_room() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let stream = |id, kind, request| {
            let headers = [("port", port.as_str()), ("streamtype", kind), ("requestid", request)];
            opened(id, &headers)
        };
        let room = Arc::new(Room(Arc::new(Semaphore::new(1))));
        let (sender, streams) = mpsc::channel(8);
        let serving = tokio::spawn({
            let room = room.clone();
            async move { pairs(&room, streams, target()).await }
        });
        let (first, sent, _frames) = stream(1, "data", "0");
        let (first_error, ..) = stream(3, "error", "0");
        sender.send(first).await.unwrap();
        sender.send(first_error).await.unwrap();
        let (mut pod, _) = listener.accept().await.unwrap();
        sent.send("last words".into()).await.unwrap();

        let (second, ..) = stream(5, "data", "1");
        let (second_error, _, mut told) = stream(7, "error", "1");
        sender.send(second).await.unwrap();
        sender.send(second_error).await.unwrap();
        let words = String::from_utf8_lossy(&told.recv().await.unwrap()).into_owned();
        assert!(words.contains("forwards 1024 connections already"), "{words}");

        // The client is gone. The pod hears what it sent, and says nothing.
        drop((sender, sent));
        let mut heard = Vec::new();
        pod.read_to_end(&mut heard).await.unwrap();
        assert_eq!(heard, b"last words");
        serving.await.unwrap();
        assert!(room.take().is_ok(), "there is room again");
    }

    #[tokio::test]
    async fn streams_without_their_other_half_are_not_kept_in_any_number() {
        let (sender, streams) = mpsc::channel(8);
        let serving = tokio::spawn(async move { pairs(&Room::default(), streams, target()).await });
        let mut last = None;
        for number in 0..=MOST_WAITING {
            let id = u32::try_from(number * 2 + 1).unwrap();
            let (stream, _, frames) = opened(id, &[("port", "80"), ("streamtype", "error")]);
            sender.send(stream).await.unwrap();
            last = Some(frames);
        }
        let reset = last.unwrap().recv().await;
        assert_eq!(
            reset,
            Some(super::super::spdy::frame::reset(
                u32::try_from(MOST_WAITING * 2 + 1).unwrap()
            ))
        );
        drop(sender);
        serving.await.unwrap();
    }
}
