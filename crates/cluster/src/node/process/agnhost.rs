//! The sub-commands of the `agnhost` test image that Kubernetes' own tests use.
//!
//! Those tests run this image for nearly everything: a web server that can be asked to dial others, programs that print
//! what they see of their file system, of DNS and of their own arguments. Here they run without a container image.

mod files;
mod netexec;
mod webhook;

use super::hold;
use super::web::{self, Answer};
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs, UdpSocket};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Flags as these programs take them: `--name=value`, `--name value`, or `--name` alone, which means `true`.
struct Flags {
    named: BTreeMap<String, String>,
    others: Vec<String>,
}

impl Flags {
    fn parse(arguments: &[String]) -> Flags {
        let mut flags = Flags {
            named: BTreeMap::new(),
            others: Vec::new(),
        };
        let mut rest = arguments.iter().peekable();
        while let Some(word) = rest.next() {
            let Some(name) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
                flags.others.push(word.clone());
                continue;
            };
            let (name, value) = match name.split_once('=') {
                Some((name, value)) => (name, value.to_owned()),
                None => {
                    let next = rest.next_if(|next| !next.starts_with('-'));
                    (name, next.cloned().unwrap_or_else(|| "true".to_owned()))
                }
            };
            flags.named.insert(name.to_owned(), value);
        }
        flags
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.named
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    fn number<T: std::str::FromStr>(&self, name: &str, default: T) -> T {
        self.text(name).and_then(|value| value.parse().ok()).unwrap_or(default)
    }

    fn is_on(&self, name: &str, default: &str) -> bool {
        self.text(name).unwrap_or(default) == "true"
    }
}

/// Runs a sub-command.
pub fn main(arguments: &[String]) -> ExitCode {
    let Some((command, rest)) = arguments.split_first() else {
        return hold::pause();
    };
    let flags = Flags::parse(rest);
    match command.as_str() {
        "pause" => hold::pause(),
        "netexec" => netexec::main(&flags),
        "serve-hostname" => serve_hostname(&flags),
        "test-webserver" => {
            let page = Arc::new(|_: &web::Request| Answer::text(200, "<html><body>ok</body></html>\n"));
            until_told(web::serve(flags.number("port", 80), page))
        }
        "liveness" => liveness(),
        "porter" => porter(),
        "connect" => connect(&flags),
        "webhook" => webhook::admission(&flags),
        "crd-conversion-webhook" => webhook::conversion(&flags),
        "logs-generator" => logs_generator(&flags),
        "entrypoint-tester" => say(&format!("[/agnhost {}]", arguments.join(" "))),
        "mounttest" => files::mounttest(&flags),
        "etc-hosts" => say(&std::fs::read_to_string("/etc/hosts").unwrap_or_default()),
        "dns-suffix" => say(&resolver("search").join(",")),
        "dns-server-list" => say(&resolver("nameserver").join(",")),
        "echo" => say(&rest.join(" ")),
        "env" => {
            let all: Vec<String> = std::env::vars()
                .map(|(name, value)| format!("{name}={value}"))
                .collect();
            say(&all.join("\n"))
        }
        other => {
            let _ = writeln!(io::stderr(), "agnhost {other}: this sub-command is not built in");
            ExitCode::from(2)
        }
    }
}

fn say(text: &str) -> ExitCode {
    match writeln!(io::stdout(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Waits for a signal while servers serve, or says why they could not start.
fn until_told(started: io::Result<()>) -> ExitCode {
    match started {
        Ok(()) => hold::pause(),
        Err(error) => {
            let _ = writeln!(io::stderr(), "cannot listen: {error}");
            ExitCode::FAILURE
        }
    }
}

fn hostname() -> String {
    let name = nix::unistd::gethostname().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// The words after this one in /etc/resolv.conf.
fn resolver(key: &str) -> Vec<String> {
    let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
    let lines = text.lines().filter_map(|line| line.strip_prefix(key));
    lines.flat_map(str::split_whitespace).map(str::to_owned).collect()
}

/// Answers datagrams beside the caller.
fn answer_datagrams(port: u16, answer: impl Fn(&str, SocketAddr) -> String + Send + 'static) -> io::Result<()> {
    let socket = UdpSocket::bind(SocketAddr::new(web::own_address(), port))?;
    std::thread::spawn(move || {
        let mut buffer = [0; 2048];
        while let Ok((count, from)) = socket.recv_from(&mut buffer) {
            let asked = String::from_utf8_lossy(&buffer[..count]).trim().to_owned();
            let _ = socket.send_to(answer(&asked, from).as_bytes(), from);
        }
    });
    Ok(())
}

fn serve_hostname(flags: &Flags) -> ExitCode {
    let port = flags.number("port", 9376);
    let mut started = Ok(());
    if flags.is_on("udp", "false") {
        started = started.and_then(|()| answer_datagrams(port, |_, _| hostname()));
    }
    if flags.is_on("tcp", "false") {
        let listening = std::net::TcpListener::bind(SocketAddr::new(web::own_address(), port));
        started = started.and(listening.map(|listener| {
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let _ = stream.write_all(format!("{}\n", hostname()).as_bytes());
                }
            });
        }));
    } else if flags.is_on("http", "true") {
        started = started.and_then(|()| web::serve(port, Arc::new(|_| Answer::text(200, hostname()))));
    }
    let _ = writeln!(io::stderr(), "Serving on port {port}.");
    until_told(started)
}

/// A server that is well for ten seconds and ill ever after.
fn liveness() -> ExitCode {
    let began = Instant::now();
    let handler = move |request: &web::Request| {
        let age = began.elapsed().as_secs_f64();
        match request.path.as_str() {
            "/healthz" if age > 10.0 => Answer::text(500, format!("error: {age}")),
            "/healthz" => Answer::text(200, "ok"),
            "/started" => Answer::text(200, format!("{age}s")),
            "/redirect" => Answer {
                code: 302,
                headers: vec![("Location", request.query.text("loc").unwrap_or_default().to_owned())],
                body: String::new(),
            },
            _ => Answer::text(404, "404 page not found\n"),
        }
    };
    until_told(web::serve(8080, Arc::new(handler)))
}

/// Serves, on each port that a variable `SERVE_PORT_n` names, that variable's value.
fn porter() -> ExitCode {
    let wanted = std::env::vars().filter_map(|(name, value)| {
        let port = name.strip_prefix("SERVE_PORT_")?.parse::<u16>().ok()?;
        Some((port, value))
    });
    let started: io::Result<Vec<()>> = wanted
        .map(|(port, value)| web::serve(port, Arc::new(move |_| Answer::text(200, value.clone()))))
        .collect();
    until_told(started.map(|_| ()))
}

fn connect(flags: &Flags) -> ExitCode {
    let timeout = flags.text("timeout").and_then(duration).filter(|time| !time.is_zero());
    let patience = timeout.unwrap_or(Duration::from_secs(60));
    let target = flags.others.first().map(String::as_str).unwrap_or_default();
    let address = target.to_socket_addrs().ok().and_then(|mut all| all.next());
    let word = match address.map(|address| TcpStream::connect_timeout(&address, patience)) {
        Some(Ok(_)) => return ExitCode::SUCCESS,
        None => "DNS",
        Some(Err(error)) => match error.kind() {
            io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => "TIMEOUT",
            io::ErrorKind::ConnectionRefused => "REFUSED",
            _ => "OTHER",
        },
    };
    let _ = writeln!(io::stderr(), "{word}");
    ExitCode::FAILURE
}

/// Reads `500ms`, `5s`, `2m`, `1h`.
fn duration(text: &str) -> Option<Duration> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return None,
    };
    Duration::try_from_secs_f64(number * seconds).ok()
}

fn logs_generator(flags: &Flags) -> ExitCode {
    let total: u32 = flags.number("log-lines-total", 0);
    let run = flags
        .text("run-duration")
        .and_then(duration)
        .unwrap_or(Duration::from_secs(1));
    let pause = run / total.max(1);
    for line in 0..total {
        let method = ["GET", "PUT", "POST"][line as usize % 3];
        let (pod, status) = (line.wrapping_mul(2_654_435_761) % 9000 + 1000, 200 + line % 400);
        let text = format!("{line} {method} /api/v1/namespaces/ns/pods/p{pod} {status}");
        if writeln!(
            io::stderr(),
            "I0101 00:00:00.000000       1 logs_generator.go:76] {text}"
        )
        .is_err()
        {
            return ExitCode::FAILURE;
        }
        std::thread::sleep(pause);
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_read_in_each_of_their_spellings() {
        let words = ["--a=1", "-b", "two", "host:80", "--c"].map(str::to_owned);
        let flags = Flags::parse(&words);
        assert_eq!(
            (flags.text("a"), flags.text("b"), flags.text("c")),
            (Some("1"), Some("two"), Some("true"))
        );
        assert_eq!(flags.others, ["host:80"]);
        assert_eq!(duration("250ms"), Some(Duration::from_millis(250)));
        assert_eq!(duration("x"), None);
    }
}
