//! How many requests to a canary's pods fail, from the Prometheus metrics that the pods show themselves.
//!
//! Counters begin at nought with a pod, and the pods of a canary begin with it: their totals are the trial's own.
//! Nothing has to be remembered between two looks. That a pod shows none is told too: silence is no good sign.

use bytes::Bytes;
use futures::future::BoxFuture;
use http::Request;
use http_body_util::{BodyExt, Empty, Limited};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use stead_apis::webapp::strategy::ErrorRate;
use tokio::net::TcpStream;

/// A verdict on fewer requests than this would be chance.
const LEAST_REQUESTS: f64 = 10.0;
/// The largest page of metrics that is read.
const MOST_BYTES: usize = 4 << 20;
/// A pod that answers later says nothing this time.
const PATIENCE: Duration = Duration::from_secs(2);

/// A way to pods: the operator need not be on their network.
pub type Dial = Arc<dyn Fn(SocketAddr) -> BoxFuture<'static, io::Result<TcpStream>> + Send + Sync>;

/// How the operator reaches the pods of its applications.
#[derive(Clone)]
pub struct Reach {
    pub dial: Dial,
    /// The namespace in which the operator is a pod itself; `None` where it is none.
    pub home: Option<String>,
}

impl Reach {
    /// Over the network that the operator itself is on.
    pub fn directly(home: Option<String>) -> Self {
        Reach {
            dial: Arc::new(|to| Box::pin(TcpStream::connect(to))),
            home,
        }
    }
}

/// Requests that were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    pub all: f64,
    pub failed: f64,
}

/// What the pods of a canary told of the requests to them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Told {
    pub counted: Counted,
    /// The first pod that told nothing, and why.
    pub silent: Option<String>,
}

impl Told {
    /// The share of failed requests, in percent; `None` while there were too few.
    pub fn failed_percent(&self) -> Option<f64> {
        let Counted { all, failed } = self.counted;
        (all >= LEAST_REQUESTS).then(|| failed * 100.0 / all)
    }
}

/// Asks these pods how many requests to them failed.
pub async fn ask(dial: &Dial, pods: &[&Pod], port: u16, path: &str, rate: &ErrorRate) -> Told {
    // One that was evicted stays for people to see, and never answers again. Its address may be another pod's by now.
    let pods: Vec<&Pod> = pods.iter().copied().filter(|pod| !is_over(pod)).collect();
    // All at once: many slow pods must not keep this application's look waiting longer than one does.
    let pages = pods.iter().map(|pod| counted(dial, pod, port, path, rate));
    let mut told = Told::default();
    for (pod, counted) in pods.iter().zip(futures::future::join_all(pages).await) {
        match counted {
            Ok(counted) => {
                told.counted.all += counted.all;
                told.counted.failed += counted.failed;
            }
            // One that is on its way out owes nobody an answer.
            Err(_) if pod.metadata.deletion_timestamp.is_some() => {}
            Err(why) => {
                let name = pod.metadata.name.as_deref().unwrap_or_default();
                let silent = format!("{name}: {why}");
                // The same one each time, or the status would change with every look.
                told.silent = Some(told.silent.map_or(silent.clone(), |other| other.min(silent)));
            }
        }
    }
    told
}

/// Whether no container of a pod will ever run again.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// What one pod counted, if it says so in time.
async fn counted(dial: &Dial, pod: &Pod, port: u16, path: &str, rate: &ErrorRate) -> Result<Counted, String> {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    let address = address
        .and_then(|address| address.parse().ok())
        .ok_or("it has no address")?;
    let asked = page(dial, SocketAddr::new(address, port), path);
    match tokio::time::timeout(PATIENCE, asked).await {
        Ok(page) => Ok(count(&page?, rate)),
        Err(_) => Err(format!("no answer from port {port} within {PATIENCE:?}")),
    }
}

/// Counts the requests on a page of metrics. Codes from 500 on are failures.
pub fn count(text: &str, rate: &ErrorRate) -> Counted {
    let mut counted = Counted::default();
    for line in text.lines() {
        let Some((labels, value)) = series(line, &rate.metric) else {
            continue;
        };
        counted.all += value;
        if label(labels, &rate.code_label).is_some_and(|code| code.starts_with('5')) {
            counted.failed += value;
        }
    }
    counted
}

/// Labels and value of a line of this metric.
fn series<'a>(line: &'a str, metric: &str) -> Option<(&'a str, f64)> {
    let rest = line.trim().strip_prefix(metric)?;
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once('}')?,
        // Another metric whose name begins the same way has no space here.
        None => ("", rest.strip_prefix([' ', '\t'])?),
    };
    let value: f64 = rest.split_whitespace().next()?.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((labels, value))
}

/// The value of a label. Values are quoted; a quote inside one is escaped.
fn label<'a>(labels: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = labels;
    loop {
        let (key, after) = rest.split_once("=\"")?;
        let end = closing_quote(after)?;
        if key.trim_start_matches([',', ' ']).trim() == name {
            return Some(&after[..end]);
        }
        rest = &after[end + 1..];
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.char_indices().find_map(|(index, letter)| {
        let closes = letter == '"' && !escaped;
        escaped = letter == '\\' && !escaped;
        closes.then_some(index)
    })
}

async fn page(dial: &Dial, to: SocketAddr, path: &str) -> Result<String, String> {
    let stream = dial(to).await.map_err(|error| error.to_string())?;
    let (mut sender, driver) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| error.to_string())?;
    // It ends with the connection, which ends when the sender is dropped.
    tokio::spawn(driver);
    let request = Request::get(path)
        .header("host", to.to_string())
        .header("accept", "text/plain;version=0.0.4")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
    if !response.status().is_success() {
        return Err(format!("it answers {}", response.status()));
    }
    let body = Limited::new(response.into_body(), MOST_BYTES)
        .collect()
        .await
        .map_err(|error| error.to_string())?;
    Ok(String::from_utf8_lossy(&body.to_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::io::{Read, Write};

    fn rate() -> ErrorRate {
        serde_json::from_value(json!({"metric": "http_requests_total", "maxPercent": 5})).unwrap()
    }

    const PAGE: &str = "# HELP http_requests_total Requests.\n\
        http_requests_total{path=\"/a\\\"}\",code=\"200\"} 90\n\
        http_requests_total{code=\"503\",path=\"/\"} 6 1700000000\n\
        http_requests_total{code=\"500\"} 4\n\
        http_requests_total_created{code=\"500\"} 1000\n\
        http_requests_total{code=\"500\"} NaN\n";

    #[test]
    fn codes_from_500_on_are_failures_and_other_metrics_do_not_count() {
        assert_eq!(
            count(PAGE, &rate()),
            Counted {
                all: 100.0,
                failed: 10.0
            }
        );
        assert_eq!(count("nonsense{\n}{", &rate()), Counted::default());
    }

    #[tokio::test]
    async fn pods_are_asked_and_too_few_requests_are_no_verdict() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for page in [PAGE, "http_requests_total{code=\"500\"} 3\n"] {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]).unwrap();
                write!(
                    stream,
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{page}",
                    page.len()
                )
                .unwrap();
            }
        });
        let pod: Pod = serde_json::from_value(json!({"status": {"podIP": "127.0.0.1"}})).unwrap();
        let reach = Reach::directly(None);
        let asked = || async { ask(&reach.dial, &[&pod], port, "/metrics", &rate()).await };
        assert_eq!(asked().await.failed_percent(), Some(10.0));
        let told = asked().await;
        assert_eq!(
            (told.failed_percent(), told.silent),
            (None, None),
            "three requests are too few"
        );
    }

    #[tokio::test]
    async fn a_pod_that_tells_nothing_is_named_with_the_reason_unless_it_is_over() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let _ = stream.read(&mut [0; 1024]).unwrap();
            write!(stream, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n").unwrap();
        });
        let pod = |name: &str, status: serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
        };
        let (strict, new) = (pod("b", json!({"podIP": "127.0.0.1"})), pod("a", json!({})));
        let mut going = pod("0", json!({}));
        going.metadata.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
        let reach = Reach::directly(None);
        let told = ask(&reach.dial, &[&strict, &going], port, "/metrics", &rate()).await;
        assert_eq!(told.silent.as_deref(), Some("b: it answers 404 Not Found"));
        let evicted = pod("0", json!({"phase": "Failed", "reason": "Evicted"}));
        let told = ask(&reach.dial, &[&new, &evicted], port, "/metrics", &rate()).await;
        assert_eq!(told.silent.as_deref(), Some("a: it has no address"));
    }
}
