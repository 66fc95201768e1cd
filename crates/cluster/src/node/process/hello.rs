//! The image `stead/hello`: a web server that says who it is.
//!
//! It is what the demonstration and most examples run, so it needs nothing but this binary and starts in a
//! millisecond. It answers any GET with its name and version, `/healthz` with `ok` (or as told by `/fail` and
//! `/heal`), `/metrics` with how many requests it answered with which code, and ends politely on SIGTERM. With
//! `FAIL_PERCENT` so many of its answers are errors: a bad version to try things on.

use super::web::{self, Answer, Request};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

static HEALTHY: AtomicBool = AtomicBool::new(true);

/// Serves until SIGTERM.
pub fn main() -> ExitCode {
    let variable = |name: &str, default: &str| std::env::var(name).unwrap_or_else(|_| default.to_owned());
    let port = variable("PORT", "8080").parse().unwrap_or(8080);
    let greeting = Greeting {
        text: variable("MESSAGE", "Hello from Stead"),
        host: variable("HOSTNAME", "unknown"),
        version: variable("VERSION", env!("CARGO_PKG_VERSION")),
        fail_percent: variable("FAIL_PERCENT", "0").parse().unwrap_or(0).min(100),
        answered: Mutex::default(),
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

struct Greeting {
    text: String,
    host: String,
    version: String,
    /// How many of a hundred answers are errors.
    fail_percent: u64,
    /// Answers to people, by code: what asks for health or metrics is not counted.
    answered: Mutex<BTreeMap<u16, u64>>,
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
            "/metrics" => Answer::text(200, self.metrics()),
            "/hostname" => Answer::text(200, format!("{}\n", self.host)),
            _ => self.greet(),
        }
    }

    /// The greeting, or an error where it is this request's turn.
    fn greet(&self) -> Answer {
        let mut answered = self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        let number = answered.values().sum::<u64>() + 1;
        // Spread evenly, and the same each time: of the first hundred requests exactly so many fail.
        let failures = |requests: u64| requests * self.fail_percent / 100;
        let answer = match failures(number) > failures(number - 1) {
            true => Answer::text(500, "told to fail\n"),
            false => Answer::text(
                200,
                format!("{}\nhost: {}\nversion: {}\n", self.text, self.host, self.version),
            ),
        };
        *answered.entry(answer.code).or_default() += 1;
        answer
    }

    /// A page of metrics as Prometheus reads it.
    fn metrics(&self) -> String {
        let mut page = "# HELP http_requests_total Requests that were answered.\n\
            # TYPE http_requests_total counter\n"
            .to_owned();
        for (code, count) in &*self.answered.lock().unwrap_or_else(PoisonError::into_inner) {
            let _ = writeln!(page, "http_requests_total{{code=\"{code}\"}} {count}");
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(fail_percent: u64) -> Greeting {
        Greeting {
            text: "Hello".to_owned(),
            host: "here".to_owned(),
            version: "1".to_owned(),
            fail_percent,
            answered: Mutex::default(),
        }
    }

    #[test]
    fn so_many_answers_fail_as_it_is_told_and_the_metrics_say_so() {
        let bad = greeting(30);
        let codes: Vec<u16> = (0..10).map(|_| bad.respond("/").code).collect();
        assert_eq!(codes.iter().filter(|&&code| code == 500).count(), 3, "{codes:?}");
        bad.respond("/healthz");
        let page = bad.respond("/metrics").body;
        assert!(
            page.ends_with("{code=\"200\"} 7\nhttp_requests_total{code=\"500\"} 3\n"),
            "{page}"
        );
        let good = greeting(0);
        assert!((0..100).all(|_| good.respond("/").code == 200));
    }
}
