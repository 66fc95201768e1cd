//! exec runs a command in a container, attach joins the container's own program; both as a session with a client.

use super::session::{Asked, FromClient, SPOKEN, Session, ToClient};
use super::upgrade::Agreed;
use super::{Body, Parameters, Process, StatusCode, text};
use crate::node::process::attach::{self, Piece};
use crate::node::process::terminal::Master;
use crate::node::process::{Mode, attach::Joined};
use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Incoming;
use serde_json::{Value, json};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long output may still come after a command has ended: what it left behind may hold its pipes for ever.
const LAST_OUTPUT: Duration = Duration::from_secs(2);
const PIECE: usize = 32 << 10;

/// What a client wants to run or see.
pub struct Wanted {
    pub uid: String,
    pub container: String,
    /// None: attach to what runs already.
    pub command: Option<Vec<String>>,
    pub parameters: Parameters,
}

/// Switches the request to a session and serves it.
pub fn upgrade(process: Arc<Process>, mut request: Request<Incoming>, wanted: Wanted) -> Response<Body> {
    if wanted.command.as_ref().is_some_and(Vec::is_empty) {
        return text(
            StatusCode::BAD_REQUEST,
            "you must specify at least 1 command for the container",
        );
    }
    if !process.is_running(&wanted.uid, &wanted.container) {
        let message = format!("container not found (\"{}\")", wanted.container);
        return text(StatusCode::NOT_FOUND, &message);
    }
    let parameters = &wanted.parameters;
    let terminal = parameters.is_on(["tty", "tty"]);
    let asked = Asked {
        input: parameters.is_on(["input", "stdin"]),
        output: parameters.is_on(["output", "stdout"]),
        // A terminal has one output.
        errors: parameters.is_on(["error", "stderr"]) && !terminal,
        terminal,
    };
    let agreed = match Agreed::on(&mut request, &SPOKEN) {
        Ok(agreed) => agreed,
        Err(refusal) => return *refusal,
    };
    let (answer, connection) = agreed.start();
    tokio::spawn(async move {
        let Some(connection) = connection.await else { return };
        let Some(mut session) = Session::begin(connection, asked).await else {
            return;
        };
        let status = match &wanted.command {
            Some(command) => exec(&process, &wanted, command, asked, &mut session).await,
            None => join(&process, &wanted, asked, &mut session).await,
        };
        session
            .finish(status.unwrap_or_else(|error| failure(&error.to_string())))
            .await;
    });
    answer
}

fn failure(message: &str) -> Value {
    json!({ "metadata": {}, "status": "Failure", "message": message, "reason": "InternalError", "code": 500 })
}

fn success() -> Value {
    json!({ "metadata": {}, "status": "Success" })
}

async fn exec(
    process: &Process,
    wanted: &Wanted,
    argv: &[String],
    asked: Asked,
    session: &mut Session,
) -> std::io::Result<Value> {
    if asked.terminal {
        let command = process.command(&wanted.uid, &wanted.container, argv, Mode::Terminal)?;
        return on_terminal(command, session).await;
    }
    let mut command = process.command(&wanted.uid, &wanted.container, argv, Mode::Plain)?;
    let piped = |wanted: bool| if wanted { Stdio::piped() } else { Stdio::null() };
    command.stdin(piped(asked.input));
    command.stdout(piped(asked.output));
    command.stderr(piped(asked.errors));
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().map(feed);
    let output = child.stdout.take();
    let errors = child.stderr.take();
    let pumps = [
        output.map(|from| tokio::spawn(pump(from, session.to.clone(), ToClient::Output))),
        errors.map(|from| tokio::spawn(pump(from, session.to.clone(), ToClient::Errors))),
    ];
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            message = session.from.recv() => match message {
                Some(FromClient::Input(bytes)) => {
                    if let Some(to) = &input {
                        let _ = to.send(bytes).await;
                    }
                }
                Some(FromClient::InputEnds) => input = None,
                Some(FromClient::Resize(_)) => {}
                Some(FromClient::Gone) | None => {
                    let _ = child.kill().await;
                    return Ok(failure("the connection was closed"));
                }
            }
        }
    };
    finish_pumps(pumps.into_iter().flatten()).await;
    Ok(outcome(status))
}

/// Writes what arrives, beside the loop: a command that reads nothing must not keep its end from being heard.
fn feed(mut to: impl tokio::io::AsyncWrite + Unpin + Send + 'static) -> mpsc::Sender<Bytes> {
    let (sender, mut pieces) = mpsc::channel::<Bytes>(8);
    tokio::spawn(async move {
        while let Some(bytes) = pieces.recv().await {
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
    });
    sender
}

async fn pump(mut from: impl AsyncRead + Unpin, to: mpsc::Sender<ToClient>, wrap: fn(Bytes) -> ToClient) {
    let mut buffer = vec![0; PIECE];
    while let Ok(count) = from.read(&mut buffer).await {
        if count == 0 || to.send(wrap(Bytes::copy_from_slice(&buffer[..count]))).await.is_err() {
            return;
        }
    }
}

async fn finish_pumps(pumps: impl Iterator<Item = JoinHandle<()>>) {
    for mut pump in pumps {
        if tokio::time::timeout(LAST_OUTPUT, &mut pump).await.is_err() {
            pump.abort();
        }
    }
}

async fn on_terminal(mut command: tokio::process::Command, session: &mut Session) -> std::io::Result<Value> {
    let (master, slave) = Master::open()?;
    command.stdin(slave.try_clone()?);
    command.stdout(slave.try_clone()?);
    command.stderr(slave);
    let mut child = command.spawn()?;
    // The command holds copies of the terminal's far side, which would keep it open after the child's end.
    drop(command);
    let master = Arc::new(master);
    let reading = tokio::spawn({
        let (master, to) = (master.clone(), session.to.clone());
        async move {
            let mut buffer = vec![0; PIECE];
            while let Ok(count) = master.read(&mut buffer).await {
                let bytes = Bytes::copy_from_slice(&buffer[..count]);
                if count == 0 || to.send(ToClient::Output(bytes)).await.is_err() {
                    return;
                }
            }
        }
    });
    let (typed, mut pieces) = mpsc::channel::<Bytes>(8);
    let writing = tokio::spawn({
        let master = master.clone();
        async move {
            while let Some(bytes) = pieces.recv().await {
                if master.write_all(&bytes).await.is_err() {
                    return;
                }
            }
        }
    });
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            message = session.from.recv() => match message {
                Some(FromClient::Input(bytes)) => {
                    let _ = typed.send(bytes).await;
                }
                // The end of input is typed into a terminal, not signalled beside it.
                Some(FromClient::InputEnds) => {
                    let _ = typed.send(Bytes::from_static(&[4])).await;
                }
                Some(FromClient::Resize(size)) => master.resize(size.columns, size.rows)?,
                Some(FromClient::Gone) | None => {
                    let _ = child.kill().await;
                    writing.abort();
                    reading.abort();
                    return Ok(failure("the connection was closed"));
                }
            }
        }
    };
    writing.abort();
    finish_pumps([reading].into_iter()).await;
    Ok(outcome(status))
}

fn outcome(status: ExitStatus) -> Value {
    if status.success() {
        return success();
    }
    let code = status.code().unwrap_or(137);
    json!({
        "metadata": {},
        "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit status {code}"),
        "reason": "NonZeroExitCode",
        "details": { "causes": [{ "reason": "ExitCode", "message": code.to_string() }] },
    })
}

/// Joins the container's own program, through its shim, until either side ends.
async fn join(process: &Process, wanted: &Wanted, asked: Asked, session: &mut Session) -> std::io::Result<Value> {
    let Joined { mut reader, mut writer } = process.attach(&wanted.uid, &wanted.container).await?;
    let to = session.to.clone();
    let mut reading = tokio::spawn(async move {
        while let Some((kind, bytes)) = attach::receive(&mut reader).await {
            let message = match kind {
                Piece::Output if asked.output => ToClient::Output(bytes),
                Piece::Errors if asked.errors || asked.terminal => ToClient::Errors(bytes),
                _ => continue,
            };
            if to.send(message).await.is_err() {
                return;
            }
        }
    });
    loop {
        tokio::select! {
            _ = &mut reading => return Ok(success()),
            message = session.from.recv() => {
                let (kind, bytes) = match message {
                    Some(FromClient::Input(bytes)) if asked.input => (Piece::Input, bytes),
                    Some(FromClient::InputEnds) if asked.input => (Piece::InputEnds, Bytes::new()),
                    Some(FromClient::Resize(size)) => (Piece::Resize, attach::size(size.columns, size.rows)),
                    Some(FromClient::Input(_) | FromClient::InputEnds) => continue,
                    Some(FromClient::Gone) | None => {
                        reading.abort();
                        return Ok(success());
                    }
                };
                if writer.write_all(&attach::piece(kind, &bytes)).await.is_err() {
                    let _ = (&mut reading).await;
                    return Ok(success());
                }
            }
        }
    }
}
