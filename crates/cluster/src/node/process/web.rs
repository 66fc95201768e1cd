//! A web server of a few lines, for the built-in images: threads, no keep-alive, nothing to install.

use crate::node::server::Parameters;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

/// A client that says nothing for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(10);
/// Header lines that are read before a client is dropped.
const MOST_HEADERS: usize = 100;
/// The longest message that is read.
const LONGEST: u64 = 4 << 20;

/// What a client asks.
pub struct Request {
    pub method: String,
    pub path: String,
    pub query: Parameters,
    /// Names are lower-case.
    pub headers: Vec<(String, String)>,
    pub from: Option<SocketAddr>,
    /// What a message of a known length says.
    pub body: String,
}

/// What it gets.
pub struct Answer {
    pub code: u16,
    pub headers: Vec<(&'static str, String)>,
    pub body: String,
}

impl Answer {
    pub fn text(code: u16, body: impl Into<String>) -> Answer {
        Answer {
            code,
            headers: Vec::new(),
            body: body.into(),
        }
    }

    /// A document.
    pub fn json(value: &serde_json::Value) -> Answer {
        Answer {
            code: 200,
            headers: vec![("Content-Type", "application/json".to_owned())],
            body: value.to_string(),
        }
    }
}

/// Answers requests.
pub type Handler = Arc<dyn Fn(&Request) -> Answer + Send + Sync>;

/// The address that servers of this container listen on: where pods share the machine's network, each has a loopback
/// address of its own.
pub fn own_address() -> IpAddr {
    let own = std::env::var("STEAD_LISTEN").ok().and_then(|text| text.parse().ok());
    own.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED))
}

/// Listens on a port and serves it beside the caller.
pub fn serve(port: u16, handler: Handler) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(own_address(), port))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let handler = handler.clone();
            std::thread::spawn(move || {
                let from = stream.peer_addr().ok();
                let _ = stream.set_read_timeout(Some(PATIENCE));
                // A client that goes away in the middle is no business of ours.
                let _ = converse(&stream, &stream, from, &handler);
            });
        }
    });
    Ok(())
}

/// The same with TLS.
pub fn serve_tls(port: u16, tls: Arc<rustls::ServerConfig>, handler: Handler) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::new(own_address(), port))?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (handler, tls) = (handler.clone(), tls.clone());
            std::thread::spawn(move || {
                let from = stream.peer_addr().ok();
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let Ok(session) = rustls::ServerConnection::new(tls) else {
                    return;
                };
                let mut stream = rustls::StreamOwned::new(session, stream);
                let Ok(Some(request)) = read(&mut stream, from) else {
                    return;
                };
                if respond(&mut stream, &handler(&request)).is_ok() {
                    stream.conn.send_close_notify();
                    let _ = stream.flush();
                }
            });
        }
    });
    Ok(())
}

/// Reads one request and answers it.
pub fn converse(from: impl Read, mut to: impl Write, peer: Option<SocketAddr>, handler: &Handler) -> io::Result<()> {
    let Some(request) = read(from, peer)? else {
        return Ok(());
    };
    respond(&mut to, &handler(&request))
}

fn respond(to: &mut impl Write, answer: &Answer) -> io::Result<()> {
    let typed = answer.headers.iter().any(|(name, _)| *name == "Content-Type");
    let kind = if typed {
        ""
    } else {
        "Content-Type: text/plain; charset=utf-8\r\n"
    };
    write!(
        to,
        "HTTP/1.1 {} {}\r\n{kind}Content-Length: {}\r\nConnection: close\r\n",
        answer.code,
        http::StatusCode::from_u16(answer.code)
            .ok()
            .and_then(|code| code.canonical_reason())
            .unwrap_or("-"),
        answer.body.len(),
    )?;
    for (name, value) in &answer.headers {
        write!(to, "{name}: {value}\r\n")?;
    }
    write!(to, "\r\n{}", answer.body)?;
    to.flush()
}

fn read(from: impl Read, peer: Option<SocketAddr>) -> io::Result<Option<Request>> {
    let mut reader = BufReader::new(from.take(LONGEST));
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut words = first.split_whitespace();
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let mut headers = Vec::new();
    for _ in 0..MOST_HEADERS {
        let mut line = String::new();
        if reader.read_line(&mut line)? <= 2 {
            break;
        }
        if let Some((name, value)) = line.split_once(':') {
            headers.push((name.trim().to_ascii_lowercase(), value.trim().to_owned()));
        }
    }
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
    let mut body = Vec::new();
    reader.take(length).read_to_end(&mut body)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Some(Request {
        body: String::from_utf8_lossy(&body).into_owned(),
        method: method.to_owned(),
        path: path.to_owned(),
        query: Parameters::parse(query),
        headers,
        from: peer,
    }))
}

/// What another server answers to a GET.
pub fn get(address: SocketAddr, target: &str, patience: Duration) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, patience)?;
    stream.set_read_timeout(Some(patience))?;
    write!(
        stream,
        "GET {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )?;
    let mut answer = Vec::new();
    stream.take(LONGEST).read_to_end(&mut answer)?;
    let answer = String::from_utf8_lossy(&answer);
    Ok(answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned())
        .unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_read_and_answered() {
        let handler: Handler = Arc::new(|request| {
            let asked = request.query.text("a").unwrap_or_default();
            Answer::text(201, format!("{} {asked}", request.path))
        });
        let mut written = Vec::new();
        let asked = b"GET /x?a=b%20c HTTP/1.1\r\nHost: x\r\n\r\n";
        converse(&asked[..], &mut written, None, &handler).unwrap();
        let text = String::from_utf8(written).unwrap();
        assert!(text.starts_with("HTTP/1.1 201 Created\r\n"), "{text}");
        assert!(text.ends_with("\r\n\r\n/x b c"), "{text}");
        converse(&b"nonsense"[..], &mut Vec::new(), None, &handler).unwrap();
    }
}
