//! News for people: Kubernetes events about a root.
//!
//! Recording never blocks and never fails a reconcile: events go through a bounded channel to one task, which
//! folds repetitions into a series and news that are alike into one event. What does not fit is dropped and counted.

mod correlate;

use crate::clock::Clock;
use crate::metrics::Counter;
use crate::plan::Severity;
use correlate::{Correlator, Fate};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Client;
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

/// How many events may wait to be sent.
const WAITING: usize = 256;
/// Good news wait so long before they are posted: what they tell of is most often still being done, and the next steps of
/// it should not have to wait behind words for the processor and the disk.
const PATIENCE: Duration = Duration::from_millis(100);
/// A repetition within this time belongs to the same series.
const SERIES_GAP: Duration = Duration::from_secs(6 * 60);
/// How many series are remembered.
const SERIES_KEPT: usize = 1024;
/// The API server refuses longer notes.
const LONGEST_NOTE: usize = 1024;

/// A handle with which anybody tells news.
#[derive(Clone)]
pub struct Recorder {
    sender: mpsc::Sender<Told>,
    dropped: Counter,
    clock: Arc<dyn Clock>,
}

/// One piece of news.
struct News {
    about: ObjectReference,
    severity: Severity,
    reason: String,
    action: String,
    note: String,
    at: Timestamp,
}

/// What the poster is told.
enum Told {
    News(Box<News>),
    /// Everything before it is to be posted now; answered when it is.
    Flush(oneshot::Sender<()>),
}

impl Told {
    fn may_wait(&self) -> bool {
        matches!(self, Told::News(news) if news.severity == Severity::Normal)
    }
}

/// What posts the events.
pub struct Poster {
    receiver: mpsc::Receiver<Told>,
    client: Client,
    /// The name of the program, as `stead.dev/webapp`.
    controller: String,
    /// The name of this replica.
    instance: String,
    correlator: Correlator,
    series: HashMap<Identity, Series>,
    /// Events posted so far: two of the same moment have different names.
    posted: i128,
}

/// News with the same identity are repetitions.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Identity {
    about: String,
    reason: String,
    action: String,
    note: String,
    warning: bool,
}

struct Series {
    path: String,
    count: u32,
    last: Timestamp,
}

/// A recorder, and what posts for it.
pub fn channel(
    client: Client,
    clock: Arc<dyn Clock>,
    controller: &str,
    instance: &str,
    dropped: Counter,
) -> (Recorder, Poster) {
    let (sender, receiver) = mpsc::channel(WAITING);
    let poster = Poster {
        receiver,
        client,
        controller: controller.to_owned(),
        instance: instance.to_owned(),
        correlator: Correlator::default(),
        series: HashMap::new(),
        posted: 0,
    };
    (Recorder { sender, dropped, clock }, poster)
}

impl Recorder {
    /// Tells something about an object. `reason` and `action` are one CamelCase word each.
    pub fn tell(&self, about: ObjectReference, severity: Severity, reason: &str, action: &str, note: &str) {
        let news = News {
            about,
            severity,
            reason: reason.to_owned(),
            action: action.to_owned(),
            note: shorten(note),
            at: self.clock.now(),
        };
        if self.sender.try_send(Told::News(Box::new(news))).is_err() {
            self.dropped.increment();
        }
    }

    /// Returns when everything that was told before is posted.
    pub async fn flush(&self) {
        let (asked, posted) = oneshot::channel();
        if self.sender.send(Told::Flush(asked)).await.is_ok() {
            // A poster that is gone posts nothing more.
            let _ = posted.await;
        }
    }
}

impl Poster {
    /// Posts until every recorder is gone.
    pub async fn run(mut self) {
        while let Some(told) = self.gather().await {
            for told in told {
                let news = match told {
                    Told::News(news) => news,
                    // Whoever asked may have given up waiting.
                    Told::Flush(asked) => {
                        let _ = asked.send(());
                        continue;
                    }
                };
                if let Err(error) = self.post(news).await {
                    // An event is a courtesy: the log has it too, and nothing depends on it.
                    tracing::debug!(%error, "an event could not be posted");
                }
            }
        }
    }

    /// What is to be posted now: bad news at once, with the good ones before them. `None` at the end.
    async fn gather(&mut self) -> Option<Vec<Told>> {
        let mut gathered = vec![self.receiver.recv().await?];
        let due = Instant::now() + PATIENCE;
        while gathered.len() < WAITING && gathered.last().is_some_and(Told::may_wait) {
            match tokio::time::timeout_at(due, self.receiver.recv()).await {
                Ok(Some(next)) => gathered.push(next),
                Ok(None) | Err(_) => break,
            }
        }
        Some(gathered)
    }

    async fn post(&mut self, news: Box<News>) -> Result<(), kube::Error> {
        let identity = Identity {
            about: format!("{:?}/{:?}/{:?}", news.about.kind, news.about.uid, news.about.name),
            reason: news.reason.clone(),
            action: news.action.clone(),
            note: news.note.clone(),
            warning: news.severity == Severity::Warning,
        };
        let identity = match self.correlator.judge(identity, news.at) {
            Fate::Told(identity) => identity,
            Fate::TooMuch => return Ok(()),
        };
        if let Some(series) = self.series.get_mut(&identity)
            && news.at.duration_since(series.last).unsigned_abs() < SERIES_GAP
        {
            series.count += 1;
            series.last = news.at;
            let body = json!({"series": {"count": series.count, "lastObservedTime": micros(news.at)}});
            let request = request("PATCH", &series.path, &body)?;
            return match self.client.request::<serde_json::Value>(request).await {
                // It expired at the server; the next one starts a new series.
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    self.series.remove(&identity);
                    Ok(())
                }
                other => other.map(|_| ()),
            };
        }
        self.create(*news, identity).await
    }

    async fn create(&mut self, news: News, identity: Identity) -> Result<(), kube::Error> {
        let namespace = news.about.namespace.clone().unwrap_or_else(|| "default".to_owned());
        let base = news.about.name.clone().unwrap_or_default();
        // Unique without asking anybody: the time, as client-go does it, and a number.
        self.posted += 1;
        let name = format!("{}.{:x}", shorten_name(&base), news.at.as_nanosecond() + self.posted);
        let severity = match news.severity {
            Severity::Normal => "Normal",
            Severity::Warning => "Warning",
        };
        let body = json!({
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "eventTime": micros(news.at),
            "reportingController": self.controller,
            "reportingInstance": self.instance,
            "action": news.action,
            "reason": news.reason,
            "regarding": news.about,
            "note": identity.note,
            "type": severity,
        });
        let collection = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        self.client
            .request::<serde_json::Value>(request("POST", &collection, &body)?)
            .await?;
        if self.series.len() >= SERIES_KEPT {
            self.series
                .retain(|_, series| news.at.duration_since(series.last).unsigned_abs() < SERIES_GAP);
        }
        if self.series.len() < SERIES_KEPT {
            self.series.insert(
                identity,
                Series {
                    path: format!("{collection}/{name}"),
                    count: 1,
                    last: news.at,
                },
            );
        }
        Ok(())
    }
}

fn request(method: &str, path: &str, body: &serde_json::Value) -> Result<http::Request<Vec<u8>>, kube::Error> {
    let media = match method {
        "PATCH" => "application/merge-patch+json",
        _ => "application/json",
    };
    let bytes = serde_json::to_vec(body).map_err(kube::Error::SerdeError)?;
    let request = http::Request::builder()
        .method(method)
        .uri(path)
        .header(http::header::CONTENT_TYPE, media);
    request.body(bytes).map_err(kube::Error::HttpError)
}

/// MicroTime, as the API wants it.
fn micros(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

fn shorten(note: &str) -> String {
    match note.char_indices().nth(LONGEST_NOTE - 4) {
        Some((end, _)) if note.len() > LONGEST_NOTE => {
            let end = (0..=end.min(LONGEST_NOTE - 4))
                .rev()
                .find(|end| note.is_char_boundary(*end));
            format!("{}...", &note[..end.unwrap_or(0)])
        }
        _ if note.len() > LONGEST_NOTE => note.chars().take(200).collect(),
        _ => note.to_owned(),
    }
}

/// A name leaves room for the dot and the time.
fn shorten_name(name: &str) -> &str {
    let end = (0..=name.len().min(220)).rev().find(|end| name.is_char_boundary(*end));
    name.get(..end.unwrap_or(0))
        .unwrap_or_default()
        .trim_end_matches(['.', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn good_news_are_posted_with_bad_ones_or_the_end_that_come_after_them() {
        // Nobody listens there, and nobody is asked.
        let nowhere = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = Client::try_from(nowhere).unwrap();
        let metrics = Metrics::default();
        let dropped = metrics.registry().counter("dropped", "Events that were not sent.", &[]);
        let (recorder, mut poster) = channel(client, Arc::new(SystemClock), "c", "i", dropped);
        let tell = |severity| recorder.tell(ObjectReference::default(), severity, "R", "A", "note");
        let gathered = async |poster: &mut Poster| poster.gather().await.map(|told| told.len());

        tell(Severity::Normal);
        tell(Severity::Warning);
        tell(Severity::Normal);
        assert_eq!(
            gathered(&mut poster).await,
            Some(2),
            "bad news wait for nothing that comes after them"
        );
        assert_eq!(gathered(&mut poster).await, Some(1));

        tell(Severity::Normal);
        let flushing = tokio::spawn({
            let recorder = recorder.clone();
            async move { recorder.flush().await }
        });
        let told = poster.gather().await.unwrap_or_default();
        assert!(
            matches!(told.last(), Some(Told::Flush(_))),
            "the end takes along what waits"
        );
        drop(told);
        flushing.await.unwrap();
        drop(recorder);
        assert_eq!(gathered(&mut poster).await, None);
    }
}
