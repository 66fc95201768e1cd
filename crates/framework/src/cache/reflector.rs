//! The loop that keeps a store equal to the API server: list, watch, and what can go wrong between.
//!
//! kube's `watcher()` hides the revision of the list, bookmarks and the bytes, decodes a list as a whole, and
//! resumes at a revision that a restored server has not reached; see docs/decisions/0070. This loop is small
//! enough to own. It does not know the type of what it carries, so that it is compiled once and not for each kind.

use super::decode::{self, Line, Page};
use super::outage::Outage;
use super::progress::{Progress, Served};
use super::sink::Sink;
use super::upheaval::Upheavals;
use super::{CacheSettings, Need, Revision};
use crate::error::status_of;
use bytes::{Bytes, BytesMut};
use http::Request;
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use std::sync::Arc;
use std::time::Duration;
use tracing::{debug, info, warn};

/// A line of a watch that is longer than this is not an object of any API server.
const LONGEST_LINE: usize = 64 << 20;
/// A watch that ends sooner, without a word, did not serve.
const SHORTEST_WATCH: Duration = Duration::from_secs(1);
/// A list that is not answered after so long is asked for again.
const LIST_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) struct Reflector {
    pub client: Client,
    pub sink: Arc<dyn Sink>,
    pub namespace: Option<String>,
    pub labels: Option<String>,
    pub fields: Option<String>,
    pub need: Need,
    pub settings: CacheSettings,
    /// What the watches of one cache tell each other, and which of them this is.
    pub upheavals: Upheavals,
    pub part: usize,
    pub outage: Outage,
}

/// Where the loop stands. Each failure says which state it leads to.
enum State {
    /// Nothing is known, or what is known is of no use: list everything.
    /// A failure stays here; the store keeps serving what it has.
    Unlisted,
    /// The store is complete up to a revision: watch from there.
    /// The end of a watch stays here. 410 and a history that went back lead to `Unlisted`.
    Listed { from: String },
    /// The connection broke. The server may have been restored from a backup meanwhile, so its revision is
    /// asked for first: if it is older than ours, to `Unlisted`, else to `Listed`.
    Doubtful { from: String },
}

/// Why a step did not succeed.
#[derive(Debug)]
enum Trouble {
    Request(kube::Error),
    /// The server does not know the revision any more, or does not know it yet.
    Expired(String),
    /// The server's revision is older than ours.
    WentBack {
        ours: Revision,
        theirs: Revision,
    },
    Silent(Duration),
    /// The connection ended in the middle.
    Broken(String),
    Nonsense(String),
}

impl Trouble {
    /// Whether the server does not know the kind.
    fn is_unserved(&self) -> bool {
        matches!(self, Trouble::Request(error) if status_of(error).is_some_and(|status| status.code == 404))
    }
}

impl Reflector {
    fn progress(&self) -> &Progress {
        self.sink.progress()
    }

    /// Runs until it is dropped.
    pub async fn run(self) {
        let mut state = State::Unlisted;
        let mut failures = 0u32;
        let mut synced = false;
        loop {
            let result = match &state {
                State::Unlisted => self.list().await.map(|from| {
                    if !std::mem::replace(&mut synced, true) {
                        self.progress().part_synced();
                    }
                    State::Listed { from }
                }),
                State::Listed { from } => self.watch(from).await.map(|from| State::Listed { from }),
                State::Doubtful { from } => self.confirm(from).await,
            };
            match result {
                Ok(next) => {
                    self.progress().set_problem(None);
                    self.progress().set_served(Served::Yes);
                    self.outage.ends();
                    failures = 0;
                    state = next;
                }
                Err((trouble, _)) if self.need == Need::Optional && trouble.is_unserved() => {
                    state = self.without_kind(&mut synced).await;
                    failures = 0;
                }
                Err((trouble, from)) => {
                    state = self.after(trouble, from, &mut failures).await;
                }
            }
        }
    }

    /// An optional kind that is not there has no objects, which is all that there is to know; it may come later.
    async fn without_kind(&self, synced: &mut bool) -> State {
        self.progress().set_problem(None);
        self.progress().set_served(Served::No);
        self.sink.listing().finish(self.namespace.as_deref());
        self.upheavals.confirmed(self.part, self.upheavals.count());
        if !std::mem::replace(synced, true) {
            self.progress().part_synced();
        }
        let pause = self.settings.longest_retry;
        tokio::time::sleep(pause.mul_f64(rand::random_range(0.5..1.0))).await;
        State::Unlisted
    }

    /// Decides where a failure leads, and waits so that failures do not become a flood.
    async fn after(&self, trouble: Trouble, from: Option<String>, failures: &mut u32) -> State {
        let kind = self.progress().kind();
        let what = kind.resource();
        let resume = |from: Option<String>| from.map_or(State::Unlisted, |from| State::Doubtful { from });
        let next = match trouble {
            Trouble::Expired(message) => {
                info!(%what, message, "the server does not have our revision; listing again");
                State::Unlisted
            }
            Trouble::WentBack { ours, theirs } => {
                warn!(%what, %ours, %theirs, "the server's history went back, as after a restored backup; listing again");
                State::Unlisted
            }
            Trouble::Silent(silence) => {
                // Nothing was lost, and the connection may be fine: no pause.
                debug!(%what, ?silence, "the watch was silent; opening it anew");
                return resume(from);
            }
            Trouble::Broken(message) => {
                debug!(%what, message, "the watch broke off");
                resume(from)
            }
            Trouble::Nonsense(message) => {
                warn!(%what, message, "the server's answer cannot be read");
                State::Unlisted
            }
            Trouble::Request(error) => {
                let status = status_of(&error).map(|status| status.code);
                let problem = match status {
                    Some(404) => format!("{what} is not served: is its CustomResourceDefinition installed?"),
                    Some(403) => format!("no permission to list and watch {what}: {error}"),
                    Some(_) => format!("cannot list or watch {what}: {error}"),
                    None => format!("cannot list or watch {what}: {}", causes(&error)),
                };
                // The first failure may be a server that restarts; it is worth a line only when it lasts.
                match status {
                    Some(_) if *failures == 1 => warn!("{problem}"),
                    None if *failures == 1 && self.outage.begins() => {
                        warn!("the API server does not answer; trying again: {problem}");
                    }
                    _ => debug!("{problem}"),
                }
                self.progress().set_problem(Some(problem));
                if status == Some(404) && kind.may_go() {
                    // The definition is gone, and its objects with it.
                    self.sink.listing().finish(self.namespace.as_deref());
                    State::Unlisted
                } else {
                    resume(from)
                }
            }
        };
        *failures = failures.saturating_add(1);
        tokio::time::sleep(self.pause(*failures)).await;
        next
    }

    fn pause(&self, failures: u32) -> Duration {
        let plain = Duration::from_millis(50).saturating_mul(1 << failures.min(12).saturating_sub(1));
        plain
            .min(self.settings.longest_retry)
            .mul_f64(rand::random_range(0.5..1.0))
    }

    async fn list(&self) -> Result<String, (Trouble, Option<String>)> {
        let failed = |trouble| (trouble, None);
        let upheavals = self.upheavals.count();
        let mut listing = self.sink.listing();
        let mut token: Option<String> = None;
        loop {
            let bytes = self.page(token.as_deref(), self.settings.page).await.map_err(failed)?;
            let page = read(&bytes).map_err(failed)?;
            listing.add(&page.items);
            match page.next {
                Some(next) => token = Some(next),
                None => {
                    let ours = self.progress().revision();
                    let namespace = self.namespace.as_deref();
                    // The others hear of it before anybody hears of what is in the list.
                    match ours > page.revision {
                        true => self.upheavals.went_back(self.part),
                        false => self.upheavals.confirmed(self.part, upheavals),
                    }
                    listing.finish(namespace);
                    match ours > page.revision {
                        true => self.progress().rewind(namespace, page.revision),
                        false => self.progress().advance(namespace, page.revision),
                    }
                    return Ok(page.resource_version);
                }
            }
        }
    }

    async fn page(&self, token: Option<&str>, limit: u32) -> Result<Bytes, Trouble> {
        let limit = limit.to_string();
        let request = match token {
            None => self.request(&[("limit", &limit)]),
            Some(token) => self.request(&[("limit", &limit), ("continue", token)]),
        };
        let answer = tokio::time::timeout(LIST_TIMEOUT, async {
            let body = self.send(request).await?;
            body.collect().await.map_err(|error| Trouble::Broken(error.to_string()))
        });
        Ok(answer.await.map_err(|_| Trouble::Silent(LIST_TIMEOUT))??.to_bytes())
    }

    /// Asks how far the server is, after a broken connection.
    async fn confirm(&self, from: &str) -> Result<State, (Trouble, Option<String>)> {
        let back = |trouble| (trouble, Some(from.to_owned()));
        let upheavals = self.upheavals.count();
        let bytes = self.page(None, 1).await.map_err(back)?;
        let page = read(&bytes).map_err(back)?;
        let ours = Revision::parse(from);
        if page.revision < ours {
            let theirs = page.revision;
            return Err((Trouble::WentBack { ours, theirs }, None));
        }
        self.upheavals.confirmed(self.part, upheavals);
        Ok(State::Listed { from: from.to_owned() })
    }

    /// Watches until the server ends it, and says from where to go on.
    async fn watch(&self, from: &str) -> Result<String, (Trouble, Option<String>)> {
        let mut last = from.to_owned();
        match self.follow(&mut last).await {
            Ok(()) => Ok(last),
            Err(trouble) => Err((trouble, Some(last))),
        }
    }

    async fn follow(&self, last: &mut String) -> Result<(), Trouble> {
        // Watches that were opened together must not end together.
        let timeout = self.settings.watch_timeout.mul_f64(rand::random_range(0.8..1.0));
        let request = self.request(&[
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", last),
            ("timeoutSeconds", &timeout.as_secs().max(1).to_string()),
        ]);
        let silence = self.settings.silence;
        let silent = |_| Trouble::Silent(silence);
        let mut body = tokio::time::timeout(silence, self.send(request))
            .await
            .map_err(silent)??;
        let (mut buffer, opened, mut told) = (BytesMut::new(), tokio::time::Instant::now(), false);
        loop {
            let frame = tokio::select! {
                frame = tokio::time::timeout(silence, body.frame()) => frame.map_err(silent)?,
                () = self.upheavals.concerns(self.part) => {
                    return Err(Trouble::Broken("another watch found the server restored".to_owned()));
                }
            };
            let data = match frame {
                // Opened again at once, a watch that something on the way always closes would be asked for without end.
                None if !told && opened.elapsed() < SHORTEST_WATCH => {
                    return Err(Trouble::Broken("the watch ended as soon as it was opened".to_owned()));
                }
                None => return Ok(()),
                Some(Err(error)) => return Err(Trouble::Broken(error.to_string())),
                Some(Ok(frame)) => frame.into_data().unwrap_or_default(),
            };
            told |= !data.is_empty();
            self.take_lines(&mut buffer, data, last)?;
        }
    }

    /// A line may come in several frames, and a frame may hold several lines.
    fn take_lines(&self, buffer: &mut BytesMut, data: Bytes, last: &mut String) -> Result<(), Trouble> {
        let mut searched = buffer.len();
        buffer.extend_from_slice(&data);
        while let Some(end) = buffer[searched..].iter().position(|byte| *byte == b'\n') {
            let line = buffer.split_to(searched + end + 1);
            searched = 0;
            let line = line.trim_ascii();
            if !line.is_empty() {
                self.event(line, last)?;
            }
        }
        match buffer.len() > LONGEST_LINE {
            true => Err(Trouble::Nonsense("a watch event without end".to_owned())),
            false => Ok(()),
        }
    }

    fn event(&self, line: &[u8], last: &mut String) -> Result<(), Trouble> {
        let line = decode::line(line).map_err(|error| Trouble::Nonsense(error.to_string()))?;
        let revision = match line {
            Line::Put(raw) => self.sink.put(raw),
            Line::Deleted(raw) => self.sink.delete(raw),
            Line::Bookmark(version) => {
                let ours = Revision::parse(last);
                let theirs = Revision::parse(&version);
                if theirs < ours {
                    return Err(Trouble::WentBack { ours, theirs });
                }
                Some(theirs)
            }
            Line::Error(status) if status.code == 410 || too_large(&status) => {
                return Err(Trouble::Expired(status.message));
            }
            Line::Error(status) => return Err(Trouble::Request(kube::Error::Api(status))),
            Line::Unknown => None,
        };
        let Some(revision) = revision else { return Ok(()) };
        if revision > Revision::parse(last) {
            *last = revision.to_string();
        }
        self.progress().advance(self.namespace.as_deref(), revision);
        Ok(())
    }

    fn request(&self, parameters: &[(&str, &str)]) -> Result<Request<Body>, Trouble> {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(parameters);
        if let Some(labels) = &self.labels {
            query.append_pair("labelSelector", labels);
        }
        if let Some(fields) = &self.fields {
            query.append_pair("fieldSelector", fields);
        }
        let query = query.finish();
        let path = self.progress().kind().path(self.namespace.as_deref());
        // The server sends only the metadata of a kind that is only looked at that way.
        let accept = match self.sink.only_metadata() {
            true => "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
            false => "application/json",
        };
        let accept = match self.sink.only_metadata() && query.contains("watch=true") {
            true => "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
            false => accept,
        };
        Request::get(format!("{path}?{query}"))
            .header(http::header::ACCEPT, accept)
            // A compressed watch is flushed late.
            .header(http::header::ACCEPT_ENCODING, "identity")
            .body(Body::empty())
            .map_err(|error| Trouble::Nonsense(error.to_string()))
    }

    async fn send(&self, request: Result<Request<Body>, Trouble>) -> Result<Body, Trouble> {
        let response = self.client.send(request?).await.map_err(Trouble::Request)?;
        let code = response.status();
        if code.is_success() {
            return Ok(response.into_body());
        }
        let bytes = response
            .into_body()
            .collect()
            .await
            .map(|body| body.to_bytes())
            .unwrap_or_default();
        let status = serde_json::from_slice(&bytes).unwrap_or_else(|_| {
            let text = String::from_utf8_lossy(&bytes[..bytes.len().min(500)]);
            kube::core::Status::failure(&text, "Unreadable").with_code(code.as_u16())
        });
        match status.code == 410 || too_large(&status) {
            true => Err(Trouble::Expired(status.message)),
            false => Err(Trouble::Request(kube::Error::Api(status.boxed()))),
        }
    }
}

/// An error and what caused it, each once.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let words = next.to_string();
        if !text.contains(&words) {
            text = format!("{text}: {words}");
        }
        cause = next.source();
    }
    text
}

fn read(bytes: &[u8]) -> Result<Page<'_>, Trouble> {
    decode::page(bytes).map_err(|error| Trouble::Nonsense(error.to_string()))
}

/// The server has not reached our revision, although we have seen it: it is a restored or a lagging one.
fn too_large(status: &kube::core::Status) -> bool {
    let by_cause = status.details.as_ref().is_some_and(|details| {
        details
            .causes
            .iter()
            .any(|cause| cause.reason == "ResourceVersionTooLarge")
    });
    by_cause || status.message.contains("Too large resource version")
}
