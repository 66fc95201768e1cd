//! The image `stead/hello`: a web server that says who it is.
//!
//! It is what the demonstration and most examples run, so it needs nothing but this binary and starts in a
//! millisecond. It answers any GET with its name, version and colour, `/healthz` with `ok` (or as told by
//! `/fail` and `/heal`), and ends politely on SIGTERM.

use super::web::{self, Answer, Request};
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

static HEALTHY: AtomicBool = AtomicBool::new(true);

/// Serves until SIGTERM.
pub fn main() -> ExitCode {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let port = variable("PORT", "8080").parse().unwrap_or(8080);
    let greeting = Greeting {
        text: variable("MESSAGE", "Hello from Stead"),
        host: variable("HOSTNAME", "unknown"),
        version: variable("VERSION", env!("CARGO_PKG_VERSION")),
    };
    use nix::sys::signal::{SigSet, Signal};
    let mut set = SigSet::empty();
    set.add(Signal::SIGTERM);
    set.add(Signal::SIGINT);
    // Blocked before any thread starts, so that the wait below is the one that hears it.
    let _ = set.thread_block();
    let address = web::own_address();
    if let Err(error) = web::serve(port, Arc::new(move |request| greeting.answer(request))) {
        let _ = writeln!(io::stderr(), "cannot listen on {address}:{port}: {error}");
        return ExitCode::FAILURE;
    }
    let _ = writeln!(io::stdout(), "listening on {address}:{port}");
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
    fn answer(&self, request: &Request) -> Answer {
        let answer = self.respond(&request.path);
        if !request.path.starts_with("/healthz") {
            let _ = writeln!(io::stdout(), "{} {} {}", request.method, request.path, answer.code);
        }
        answer
    }

    fn respond(&self, path: &str) -> Answer {
        match path {
            "/healthz" | "/readyz" | "/livez" if HEALTHY.load(Ordering::Relaxed) => Answer::text(200, "ok\n"),
            "/healthz" | "/readyz" | "/livez" => Answer::text(503, "told to fail\n"),
            "/fail" => {
                HEALTHY.store(false, Ordering::Relaxed);
                Answer::text(200, "failing from now on\n")
            }
            "/heal" => {
                HEALTHY.store(true, Ordering::Relaxed);
                Answer::text(200, "well again\n")
            }
            "/hostname" => Answer::text(200, format!("{}\n", self.host)),
            _ => Answer::text(
                200,
                format!("{}\nhost: {}\nversion: {}\n", self.text, self.host, self.version),
            ),
        }
    }
}
