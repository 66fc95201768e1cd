//! The image `stead/hello`: a web server that says who it is.
//!
//! It is what the demonstration and most examples run, so it needs nothing but this binary and starts in a
//! millisecond. It answers any GET with its name, version and colour, `/healthz` with `ok` (or as told by
//! `/fail` and `/heal`), and ends politely on SIGTERM.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A client that says nothing for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(10);
/// Header lines that are read before a client is dropped.
const MOST_HEADERS: usize = 100;

static HEALTHY: AtomicBool = AtomicBool::new(true);

/// Serves until SIGTERM.
pub fn main() -> ExitCode {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let port = variable("PORT", "8080").parse().unwrap_or(8080);
    // Where pods share the machine's network, each has a loopback address of its own to listen on.
    let address: IpAddr = variable("STEAD_LISTEN", "0.0.0.0")
        .parse()
        .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let greeting = Greeting {
        text: variable("MESSAGE", "Hello from Stead"),
        host: variable("HOSTNAME", "unknown"),
        version: variable("VERSION", env!("CARGO_PKG_VERSION")),
    };
    let listener = match TcpListener::bind(SocketAddr::new(address, port)) {
        Ok(listener) => listener,
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot listen on {address}:{port}: {error}");
            return ExitCode::FAILURE;
        }
    };
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    // Blocked before any thread starts, so that the wait below is the one that hears it.
    let _ = set.thread_block();
    let _ = writeln!(io::stdout(), "listening on {address}:{port}");
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let greeting = greeting.clone();
            std::thread::spawn(move || {
                // A client that goes away in the middle is no business of ours.
                let _ = greeting.answer(&stream);
            });
        }
    });
    let _ = set.wait();
    let _ = writeln!(io::stdout(), "asked to end");
    ExitCode::SUCCESS
}

#[derive(Clone)]
struct Greeting {
    text: String,
    host: String,
    version: String,
}

impl Greeting {
    fn answer(&self, mut stream: &TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut reader = BufReader::new(io::Read::take(stream, 64 << 10));
        let mut first = String::new();
        reader.read_line(&mut first)?;
        for _ in 0..MOST_HEADERS {
            let mut line = String::new();
            if reader.read_line(&mut line)? <= 2 {
                break;
            }
        }
        let path = first.split_whitespace().nth(1).unwrap_or("/");
        let (status, body) = self.respond(path);
        if !path.starts_with("/healthz") {
            let _ = writeln!(io::stdout(), "{} {status}", first.trim());
        }
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
            body.len(),
        )?;
        stream.flush()
    }

    fn respond(&self, path: &str) -> (&'static str, String) {
        match path {
            "/healthz" | "/readyz" | "/livez" if HEALTHY.load(Ordering::Relaxed) => ("200 OK", "ok\n".to_owned()),
            "/healthz" | "/readyz" | "/livez" => ("503 Service Unavailable", "told to fail\n".to_owned()),
            "/fail" => {
                HEALTHY.store(false, Ordering::Relaxed);
                ("200 OK", "failing from now on\n".to_owned())
            }
            "/heal" => {
                HEALTHY.store(true, Ordering::Relaxed);
                ("200 OK", "well again\n".to_owned())
            }
            "/hostname" => ("200 OK", format!("{}\n", self.host)),
            _ => (
                "200 OK",
                format!("{}\nhost: {}\nversion: {}\n", self.text, self.host, self.version),
            ),
        }
    }
}
