//! exec and attach over WebSocket channels.
//!
//! Each message starts with a channel number: 0 input, 1 output, 2 error output, 3 the final status, 4 the
//! terminal's size, and in version 5 of the protocol 255 to close another channel.

use super::{Body, Parameters, Process, StatusCode, switch, text};
use futures::{SinkExt, StreamExt};
use http::{Request, Response};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::json;
use std::process::Stdio;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

const PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io"];
const INPUT: u8 = 0;
const OUTPUT: u8 = 1;
const ERRORS: u8 = 2;
const STATUS: u8 = 3;
const CLOSE: u8 = 255;

/// What a client wants to run or see.
pub struct Wanted {
    pub uid: String,
    pub container: String,
    /// None: attach to what runs already.
    pub command: Option<Vec<String>>,
    pub parameters: Parameters,
}

/// Switches the request to a WebSocket and serves it.
pub fn upgrade(process: Arc<Process>, mut request: Request<Incoming>, wanted: Wanted) -> Response<Body> {
    if wanted.command.as_ref().is_some_and(Vec::is_empty) {
        return text(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 command for the container",
        );
    }
    let response = match switch(&request, PROTOCOLS) {
        Ok(switched) => switched,
        Err(refusal) => return text(StatusCode::BAD_REQUEST, &refusal),
    };
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        run(&process, socket, wanted).await;
    });
    response
}

type Socket = WebSocketStream<TokioIo<hyper::upgrade::Upgraded>>;

async fn run(process: &Process, socket: Socket, wanted: Wanted) {
    let (mut sink, mut source) = socket.split();
    let (sender, mut outgoing) = mpsc::channel::<Vec<u8>>(32);
    let writer = tokio::spawn(async move {
        while let Some(message) = outgoing.recv().await {
            if sink.send(Message::binary(message)).await.is_err() {
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
    let status = match &wanted.command {
        Some(command) => match process.command(&wanted.uid, &wanted.container, command) {
            Ok(command) => exec(command, &wanted.parameters, &mut source, &sender).await,
            Err(error) => failure(&error.to_string()),
        },
        None => failure("attach: the container's input and output are kept by its log; use `kubectl logs -f`"),
    };
    let mut message = vec![STATUS];
    message.extend_from_slice(status.to_string().as_bytes());
    let _ = sender.send(message).await;
    drop(sender);
    let _ = writer.await;
}

fn failure(message: &str) -> serde_json::Value {
    json!({ "metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500 })
}

async fn exec(
    mut command: tokio::process::Command,
    parameters: &Parameters,
    source: &mut futures::stream::SplitStream<Socket>,
    sender: &mpsc::Sender<Vec<u8>>,
) -> serde_json::Value {
    let piped = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
    command.stdin(piped(parameters.is_on(["input", "stdin"])));
    command.stdout(piped(parameters.is_on(["output", "stdout"])));
    command.stderr(piped(parameters.is_on(["error", "stderr"])));
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return failure(&error.to_string()),
    };
    let mut input = child.stdin.take();
    let out = child
        .stdout
        .take()
        .map(|out| tokio::spawn(pump(OUTPUT, out, sender.clone())));
    let err = child
        .stderr
        .take()
        .map(|err| tokio::spawn(pump(ERRORS, err, sender.clone())));
    let status = loop {
        tokio::select! {
            status = child.wait() => break status,
            message = source.next() => match message {
                Some(Ok(Message::Binary(data))) => match (data.first(), data.get(1)) {
                    (Some(&INPUT), Some(_)) => {
                        if let Some(to) = &mut input
                            && to.write_all(&data[1..]).await.is_err()
                        {
                            input = None;
                        }
                    }
                    (Some(&CLOSE), Some(&INPUT)) => input = None,
                    _ => {}
                },
                Some(Ok(Message::Close(_)) | Err(_)) | None => {
                    // The client is gone: nobody waits for the command.
                    let _ = child.kill().await;
                    return failure("the connection was closed");
                }
                Some(Ok(_)) => {}
            }
        }
    };
    for pump in [out, err].into_iter().flatten() {
        let _ = pump.await;
    }
    match status {
        Ok(status) if status.success() => json!({ "metadata": {}, "status": "Success" }),
        Ok(status) => {
            let code = status.code().unwrap_or(137);
            json!({
                "metadata": {},
                "status": "Failure",
                "message": format!("command terminated with non-zero exit code: exit status {code}"),
                "reason": "NonZeroExitCode",
                "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
            })
        }
        Err(error) => failure(&error.to_string()),
    }
}

async fn pump(channel: u8, mut from: impl AsyncRead + Unpin, to: mpsc::Sender<Vec<u8>>) {
    let mut buffer = vec![0; 32 << 10];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 {
            return;
        }
        let mut message = vec![channel];
        message.extend_from_slice(&buffer[..count]);
        if to.send(message).await.is_err() {
            return;
        }
    }
}
