//! How many requests to a canary's pods fail, from the Prometheus metrics that the pods show themselves.
//!
//! Counters begin at nought with a pod, and the pods of a canary begin with it: their totals are the trial's own.
//! Nothing has to be remembered between two looks.

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

/// Over the network that the operator itself is on, as in a pod of its own.
pub fn directly() -> Dial {
    Arc::new(|to| Box::pin(TcpStream::connect(to)))
}

/// Requests that were counted.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Counted {
    pub all: f64,
    pub failed: f64,
}

/// The share of failed requests to these pods, in percent; `None` while there were too few.
pub async fn failed_percent(dial: &Dial, pods: &[&Pod], port: u16, path: &str, rate: &ErrorRate) -> Option<f64> {
    // All at once: many slow pods must not keep this application's look waiting longer than one does.
    let pages = pods.iter().map(|pod| counted(dial, pod, port, path, rate));
    let mut sum = Counted::default();
    for counted in futures::future::join_all(pages).await.into_iter().flatten() {
        sum.all += counted.all;
        sum.failed += counted.failed;
    }
    (sum.all >= LEAST_REQUESTS).then(|| sum.failed * 100.0 / sum.all)
}

/// What one pod counted, if it says so in time.
async fn counted(dial: &Dial, pod: &Pod, port: u16, path: &str, rate: &ErrorRate) -> Option<Counted> {
    let address = pod.status.as_ref()?.pod_ip.as_deref()?.parse().ok()?;
    let page = tokio::time::timeout(PATIENCE, page(dial, SocketAddr::new(address, port), path)).await;
    match page {
        Ok(Ok(text)) => return Some(count(&text, rate)),
        Ok(Err(error)) => tracing::debug!(%address, error, "a canary pod shows no metrics"),
        Err(_) => tracing::debug!(%address, "a canary pod shows its metrics too slowly"),
    }
    None
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
        let asked = || async { failed_percent(&directly(), &[&pod], port, "/metrics", &rate()).await };
        assert_eq!(asked().await, Some(10.0));
        assert_eq!(asked().await, None, "three requests are too few");
    }
}
