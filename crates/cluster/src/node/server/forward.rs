//! Port-forward over WebSocket channels.
//!
//! For the n-th port, channel 2n carries data and 2n+1 an error; the first message of each names the port in two
//! bytes. Every port is one connection to the pod.

use super::{Body, Parameters, Process, StatusCode, switch, text};
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::Role;

const PROTOCOLS: &[&str] = &["v4.channel.k8s.io", "portforward.k8s.io"];
/// Ports of one request; channel numbers are one byte.
const MOST_PORTS: usize = 64;

/// Switches the request to a WebSocket and serves it.
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
    if ports.is_empty() || ports.len() > MOST_PORTS {
        return text(StatusCode::BAD_REQUEST, "query parameter \"ports\" is required");
    }
    let Some(address) = process.address(uid) else {
        return text(StatusCode::BAD_REQUEST, "the pod has no address");
    };
    let response = match switch(&request, PROTOCOLS) {
        Ok(switched) => switched,
        Err(refusal) => return text(StatusCode::BAD_REQUEST, &refusal),
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        run(&process, socket, address, &ports).await;
    });
    response
}

async fn run(
    process: &Arc<Process>,
    socket: WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>,
    address: IpAddr,
    ports: &[u16],
) {
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
        match process.network.connect(SocketAddr::new(address, *port)).await {
            Ok(stream) => {
                let (mut reader, writer) = stream.into_split();
                let sender = sender.clone();
                tokio::spawn(async move {
                    let mut buffer = vec![0; 32 << 10];
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
