//! Sends spans to a collector, in batches.

use super::{Finished, Settings, encode};
use http::{Request, header};
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::mpsc::Receiver;
use tokio::time::Instant;

/// Spans in one request.
const BATCH: usize = 256;
/// How long the first span of a batch waits for others.
const LINGER: Duration = Duration::from_secs(2);
/// A collector that has not answered by then is down.
const PATIENCE: Duration = Duration::from_secs(5);

/// What sends the spans of a [`Layer`](super::Layer).
pub struct Exporter {
    receiver: Receiver<Finished>,
    dropped: Arc<AtomicU64>,
    settings: Settings,
    address: (String, u16),
    path: String,
    reachable: Reachable,
}

/// Whether the collector took the last batch: only a change is worth a line in the log.
#[derive(Clone, Copy, PartialEq)]
enum Reachable {
    Yes,
    No,
}

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("no connection: {0}")]
    Connection(#[from] std::io::Error),
    #[error("the exchange failed: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] http::Error),
    #[error("it answered {0}")]
    Answer(http::StatusCode),
    #[error("no answer within {PATIENCE:?}")]
    Silent,
}

impl Exporter {
    pub(super) fn new(
        receiver: Receiver<Finished>,
        dropped: Arc<AtomicU64>,
        settings: Settings,
        address: (String, u16),
        path: String,
    ) -> Self {
        Exporter {
            receiver,
            dropped,
            settings,
            address,
            path,
            reachable: Reachable::Yes,
        }
    }

    /// Sends until `stop` is ready or the layer is gone, and then once more what is left.
    pub async fn run(mut self, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        let mut batch = Vec::new();
        loop {
            let stopped = tokio::select! {
                () = &mut stop => true,
                more = collect(&mut self.receiver, &mut batch) => !more,
            };
            if stopped {
                while let Ok(span) = self.receiver.try_recv() {
                    batch.push(span);
                }
            }
            for part in batch.chunks(BATCH) {
                let sent = tokio::time::timeout(PATIENCE, self.send(part));
                let sent = sent.await.unwrap_or(Err(Refused::Silent));
                self.report(sent, part.len());
            }
            batch.clear();
            if stopped {
                return;
            }
        }
    }

    async fn send(&self, spans: &[Finished]) -> Result<(), Refused> {
        let lost = self.dropped.swap(0, Ordering::Relaxed);
        let body = encode::batch(&self.settings, spans, lost).to_string();
        let (host, port) = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::post(&self.path)
            .header(header::HOST, format!("{host}:{port}"))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::CONNECTION, "close")
            .body(Full::new(bytes::Bytes::from(body)))?;
        let exchange = async {
            let response = sender.send_request(request).await?;
            let status = response.status();
            // The answer may name spans that it did not take; there is nothing to do about them.
            response.into_body().collect().await?;
            Ok::<_, hyper::Error>(status)
        };
        let (status, _) = tokio::join!(exchange, connection);
        match status? {
            status if status.is_success() => Ok(()),
            status => Err(Refused::Answer(status)),
        }
    }

    fn report(&mut self, sent: Result<(), Refused>, spans: usize) {
        match (sent, self.reachable) {
            (Ok(()), Reachable::Yes) => {}
            (Ok(()), Reachable::No) => {
                self.reachable = Reachable::Yes;
                tracing::info!("traces are taken again");
            }
            (Err(error), was) => {
                self.dropped
                    .fetch_add(u64::try_from(spans).unwrap_or_default(), Ordering::Relaxed);
                self.reachable = Reachable::No;
                if was == Reachable::Yes {
                    tracing::warn!(%error, endpoint = self.settings.endpoint, "traces are not taken; they are dropped");
                }
            }
        }
    }
}

/// Waits for a first span and a moment longer for others. False when no more can come.
async fn collect(receiver: &mut Receiver<Finished>, batch: &mut Vec<Finished>) -> bool {
    let Some(first) = receiver.recv().await else {
        return false;
    };
    batch.push(first);
    let until = Instant::now() + LINGER;
    while batch.len() < BATCH {
        match tokio::time::timeout_at(until, receiver.recv()).await {
            Ok(Some(span)) => batch.push(span),
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
    true
}
