//! `netexec`: a server that says who it is, does what it is told, and dials others on request.

use super::{Flags, answer_datagrams, duration, hostname};
use crate::node::process::web::{self, Answer, Request};
use nix::sys::signal::{SigSet, Signal};
use serde_json::json;
use std::io::{self, Write};
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long another server may take to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Set by the first SIGTERM: readiness fails from then on.
static ENDING: AtomicBool = AtomicBool::new(false);

pub fn main(flags: &Flags) -> ExitCode {
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    // Blocked before any thread starts, so that the wait below is the one that hears it.
    let _ = set.thread_block();
    let port = flags.number("http-port", 8080);
    let instead = flags.text("http-override").map(str::to_owned);
    let handler = move |request: &Request| match &instead {
        Some(target) => {
            let (path, query) = target.split_once('?').unwrap_or((target, ""));
            let other = Request {
                path: path.to_owned(),
                query: crate::node::server::Parameters::parse(query),
                method: request.method.clone(),
                headers: request.headers.clone(),
                from: request.from,
                body: request.body.clone(),
            };
            answer(&other, port)
        }
        None => answer(request, port),
    };
    let datagrams: i32 = flags.number("udp-port", 8081);
    let started = web::serve(port, Arc::new(handler)).and_then(|()| match u16::try_from(datagrams) {
        Ok(port) => answer_datagrams(port, datagram),
        Err(_) => Ok(()),
    });
    if let Err(error) = started {
        let _ = writeln!(io::stderr(), "cannot listen: {error}");
        return ExitCode::FAILURE;
    }
    let _ = writeln!(io::stderr(), "Started HTTP server on port {port}");
    let _ = set.wait();
    ENDING.store(true, Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs(flags.number("delay-shutdown", 0)));
    ExitCode::SUCCESS
}

fn datagram(asked: &str, from: SocketAddr) -> String {
    match asked.split_once(' ').unwrap_or((asked, "")) {
        ("hostname" | "hostName", _) => hostname(),
        ("echo", rest) => rest.to_owned(),
        ("clientip", _) => from.to_string(),
        ("", _) => String::new(),
        (other, _) => format!("unknown command: {other}"),
    }
}

fn answer(request: &Request, port: u16) -> Answer {
    let _ = writeln!(io::stderr(), "{} {}", request.method, request.path);
    let asked = |name: &str| request.query.text(name).unwrap_or_default().to_owned();
    match request.path.as_str() {
        "/" => Answer::text(200, "NOW"),
        "/clientip" => Answer::text(200, request.from.map(|from| from.to_string()).unwrap_or_default()),
        "/serverport" => Answer::text(200, port.to_string()),
        "/hostname" | "/hostName" => Answer::text(200, hostname()),
        "/healthz" => Answer::text(200, ""),
        "/readyz" if ENDING.load(Ordering::Relaxed) => Answer::text(503, "shutting down"),
        "/readyz" => Answer::text(200, "ok"),
        "/echo" => Answer::text(asked("code").parse().unwrap_or(200), asked("msg")),
        "/header" => {
            let key = asked("key").to_ascii_lowercase();
            let found = request.headers.iter().find(|(name, _)| *name == key);
            Answer::text(200, found.map(|(_, value)| value.clone()).unwrap_or_default())
        }
        "/redirect" => Answer {
            code: asked("code").parse().unwrap_or(302),
            headers: vec![("Location", asked("location"))],
            body: String::new(),
        },
        "/exit" => {
            std::thread::sleep(duration(&asked("wait")).unwrap_or_default());
            std::process::exit(asked("code").parse().unwrap_or(0));
        }
        "/shutdown" => std::process::exit(0),
        "/shell" | "/shell.php" => shell(&asked("shellCommand"), &asked("cmd")),
        "/dial" => dial(request),
        _ => Answer::text(404, "404 page not found\n"),
    }
}

fn shell(named: &str, other: &str) -> Answer {
    let command = if named.is_empty() { other } else { named };
    let run = std::process::Command::new("sh").args(["-c", command]).output();
    let value = match run {
        Ok(output) => {
            let text = [output.stdout, output.stderr].concat();
            let mut value = json!({"output": String::from_utf8_lossy(&text)});
            if !output.status.success() {
                value["error"] = format!("exit status {}", output.status.code().unwrap_or(-1)).into();
            }
            value
        }
        Err(error) => json!({"output": "", "error": error.to_string()}),
    };
    Answer::text(200, value.to_string())
}

/// Asks another server, as often as wanted, and tells what it said.
fn dial(request: &Request) -> Answer {
    let asked = |name: &str| request.query.text(name).unwrap_or_default();
    let (host, question) = (asked("host"), asked("request"));
    if question.is_empty() {
        return Answer::text(400, "request parameter not specified.");
    }
    let place = match host.contains(':') && !host.starts_with('[') {
        true => format!("[{host}]:{}", asked("port")),
        false => format!("{host}:{}", asked("port")),
    };
    let Some(address) = place.to_socket_addrs().ok().and_then(|mut all| all.next()) else {
        return Answer::text(400, "host and/or port param are invalid.");
    };
    let tries: u32 = asked("tries").parse().unwrap_or(1);
    let (mut responses, mut errors) = (Vec::new(), Vec::new());
    for _ in 0..tries.min(100) {
        let said = match asked("protocol").to_ascii_lowercase().as_str() {
            "udp" => ask_by_datagram(address, question),
            _ => web::get(address, &format!("/{question}"), PATIENCE),
        };
        match said {
            Ok(text) => responses.push(text),
            Err(error) => errors.push(error.to_string()),
        }
    }
    let mut value = json!({});
    if !responses.is_empty() {
        value["responses"] = json!(responses);
    }
    if !errors.is_empty() {
        value["errors"] = json!(errors);
    }
    Answer::text(200, value.to_string())
}

fn ask_by_datagram(address: SocketAddr, question: &str) -> io::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.connect(address)?;
    socket.send(question.as_bytes())?;
    let mut buffer = [0; 2048];
    let count = socket.recv(&mut buffer)?;
    Ok(String::from_utf8_lossy(&buffer[..count]).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(target: &str) -> Answer {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let request = Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            query: crate::node::server::Parameters::parse(query),
            headers: vec![("x-a".to_owned(), "b".to_owned())],
            from: None,
            body: String::new(),
        };
        answer(&request, 8080)
    }

    #[test]
    fn it_echoes_runs_commands_and_dials() {
        assert_eq!(
            (ask("/echo?msg=hi&code=418").code, ask("/echo?msg=hi").body),
            (418, "hi".to_owned())
        );
        assert_eq!(ask("/header?key=X-A").body, "b");
        assert_eq!(
            ask("/shell?cmd=echo%20x;exit%203").body,
            r#"{"error":"exit status 3","output":"x\n"}"#
        );
        assert_eq!(
            ask("/dial?host=127.0.0.1&port=1&request=hostname&protocol=http").code,
            200
        );
        assert_eq!(ask("/dial?host=127.0.0.1&port=1").code, 400);
        assert_eq!(datagram("echo a b", "127.0.0.1:1".parse().unwrap()), "a b");
    }
}
