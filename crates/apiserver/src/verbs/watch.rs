//! Watches: what is there, then every change, as a stream of frames.
//!
//! A watcher reads the store's shared log at the pace of its client: nothing is buffered for it but the
//! piece that is being sent, and one that falls too far behind is ended with an ERROR event.

mod frames;
mod pace;
pub mod websocket;

use super::Call;
use super::list_options::{ListOptions, Version, Watching};
use super::selection::Selection;
use crate::error::{ApiError, Result};
use crate::server::body::{self, Body};
use crate::server::respond;
use crate::store::{Event, EventKind, ListAt, Prefix, Record, Revision, StoreError, Window};
use bytes::Bytes;
use frames::Frames;
use http::Response;
use pace::Pace;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes after which a piece is sent even if more events are waiting.
const PIECE: usize = 64 * 1024;
/// How long before its end a watch sends a last bookmark.
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);

/// An open watch.
pub struct Stream {
    call: Arc<Call>,
    selection: Selection,
    frames: Frames,
    /// What was there at the beginning and is still to be sent.
    initial: VecDeque<Arc<Record>>,
    /// The bookmark that ends the initial part, until it is sent.
    end_of_initial: Option<Revision>,
    changes: crate::store::Watch,
    bookmarks: Option<Bookmarks>,
    deadline: Instant,
    pace: Pace,
    /// The size of the last piece: the next one is likely to be of that size.
    last_size: usize,
    state: State,
    guard: crate::server::WatchGuard,
}

/// How far a watch has come.
#[derive(PartialEq)]
enum State {
    Running,
    /// An ERROR event is still to be sent; after it the stream ends.
    Failing(ApiError),
    Ended,
}

struct Bookmarks {
    every: Duration,
    next: Instant,
    last_sent: Option<Revision>,
    before_end: bool,
}

pub async fn watch(call: Arc<Call>) -> Result<Response<Body>> {
    let stream = open(call.clone()).await?;
    let media = stream.frames.media_type();
    if websocket::is_requested(&call.headers) {
        return websocket::answer(&call, stream);
    }
    let mut response = respond::finish(200, media, Bytes::new(), false);
    response.headers_mut().remove("content-length");
    let pieces = futures::stream::unfold(stream, |mut stream| async move {
        let piece = stream.next_piece().await?;
        Some((Bytes::from(piece), stream))
    });
    *response.body_mut() = body::stream(pieces);
    Ok(response)
}

/// Opens the watch that a request asks for.
pub async fn open(call: Arc<Call>) -> Result<Stream> {
    let mut options = ListOptions::parse(&call.resource, &call.query, Watching::Yes)?;
    if !call.path.name.is_empty() {
        options.selection = options.selection.with_name(&call.path.name)?;
    }
    let limits = call.shared.limits;
    let now = Instant::now();
    let timeout = options.timeout.unwrap_or_else(|| {
        let mut byte = [0];
        call.shared.environment.entropy.fill(&mut byte);
        limits.watch_timeout + limits.watch_timeout.mul_f64(f64::from(byte[0]) / 256.0)
    });
    let bookmarks = options.bookmarks.then(|| Bookmarks {
        every: limits.bookmark_every,
        next: now + limits.bookmark_every,
        last_sent: None,
        before_end: false,
    });
    let prefix = match options.selection.name() {
        Some(name) if !call.resource.namespaced || !call.namespace().is_empty() => Prefix::object(&call.key(name)),
        _ => call.prefix(),
    };
    let initial = initial(&options);
    let started = start(&call, &options, &prefix, initial).await?;
    let guard = call
        .shared
        .metrics
        .watch(&call.resource.group, &call.resource.version, &call.resource.plural);
    Ok(Stream {
        frames: Frames::new(call.accepted),
        end_of_initial: (options.bookmarks && started.initial_events).then_some(started.revision),
        initial: started.records.into(),
        selection: options.selection,
        changes: started.changes,
        bookmarks,
        deadline: now + timeout,
        pace: Pace::new(now),
        last_size: 0,
        state: started.state,
        guard,
        call,
    })
}

/// Whether a watch begins with what is there.
fn initial(options: &ListOptions) -> bool {
    match options.send_initial_events {
        Some(wanted) => wanted,
        None => matches!(options.version, Version::Unset | Version::Any),
    }
}

struct Started {
    records: Vec<Arc<Record>>,
    revision: Revision,
    changes: crate::store::Watch,
    initial_events: bool,
    state: State,
}

async fn start(call: &Call, options: &ListOptions, prefix: &Prefix, initial: bool) -> Result<Started> {
    let store = &call.shared.store;
    if !initial {
        let from = match options.version {
            Version::Unset | Version::Any => None,
            Version::Exact(revision) | Version::NotOlderThan(revision) => Some(revision),
        };
        if let Some(revision) = from {
            super::list::wait_for(call, revision).await?;
        }
        return match store.watch(prefix, from) {
            Ok(changes) => Ok(Started {
                records: Vec::new(),
                revision: from.unwrap_or_else(|| store.revision()),
                changes,
                initial_events: false,
                state: State::Running,
            }),
            // The answer has begun well by then: a client learns of it as an event, not as a status code.
            Err(StoreError::Compacted { floor }) => Ok(Started {
                records: Vec::new(),
                revision: floor,
                changes: store.watch(prefix, None).map_err(|error| call.store_error(error, ""))?,
                initial_events: false,
                state: State::Failing(too_old(from.unwrap_or_default(), floor)),
            }),
            Err(error) => Err(call.store_error(error, "")),
        };
    }
    let at = match options.version {
        Version::Exact(revision) | Version::NotOlderThan(revision) => {
            super::list::wait_for(call, revision).await?;
            ListAt::NotOlderThan(revision)
        }
        Version::Any => ListAt::Any,
        Version::Unset => ListAt::Latest,
    };
    let page = store
        .list(prefix, at, Window::default())
        .await
        .map_err(|error| call.store_error(error, ""))?;
    let changes = store
        .watch(prefix, Some(page.revision))
        .map_err(|error| call.store_error(error, ""))?;
    let records = page
        .records
        .into_iter()
        .filter(|record| options.selection.is_everything() || options.selection.matches(&call.resource, record))
        .collect();
    Ok(Started {
        records,
        revision: page.revision,
        changes,
        initial_events: true,
        state: State::Running,
    })
}

fn too_old(wanted: Revision, floor: Revision) -> ApiError {
    ApiError::expired(format!("too old resource version: {} ({})", wanted.0, floor.0))
}

impl Stream {
    /// The next piece of the stream: all events that are at hand, up to a size. `None` at the end.
    pub async fn next_piece(&mut self) -> Option<Vec<u8>> {
        let piece = self.gather().await?;
        self.last_size = piece.len();
        Some(piece)
    }

    async fn gather(&mut self) -> Option<Vec<u8>> {
        // What was there already is sent as fast as the client takes it.
        if self.initial.is_empty() {
            self.pace.turn().await;
        }
        let mut piece = Vec::new();
        loop {
            match std::mem::replace(&mut self.state, State::Running) {
                State::Running => {}
                State::Failing(error) => {
                    self.state = State::Ended;
                    self.frames.error(&self.call, &error, &mut piece);
                    return Some(piece);
                }
                State::Ended => {
                    self.state = State::Ended;
                    return None;
                }
            }
            if self.initial.len() > 1 || self.changes.is_behind() {
                piece.reserve(self.last_size);
            }
            self.collect(&mut piece).await;
            if !piece.is_empty() {
                return Some(piece);
            }
            if self.state != State::Running {
                continue;
            }
            self.wait(&mut piece).await;
            if !piece.is_empty() {
                return Some(piece);
            }
        }
    }

    /// Takes what is at hand.
    async fn collect(&mut self, piece: &mut Vec<u8>) {
        let mut sent = 0;
        while piece.len() < PIECE {
            let Some(record) = self.initial.pop_front() else { break };
            if let Err(error) = self.frames.event(&self.call, EventKind::Added, &record, piece).await {
                self.state = State::Failing(error);
                return;
            }
            sent += 1;
        }
        if self.initial.is_empty()
            && let Some(revision) = self.end_of_initial.take()
        {
            self.frames
                .bookmark(&self.call, revision, frames::InitialEnd::Yes, piece);
            if let Some(bookmarks) = &mut self.bookmarks {
                bookmarks.last_sent = Some(revision);
            }
        }
        while self.initial.is_empty() && piece.len() < PIECE {
            match self.changes.try_next() {
                Ok(Some(event)) => sent += u64::from(self.change(&event, piece).await),
                Ok(None) => break,
                Err(error) => {
                    self.fail(error);
                    break;
                }
            }
        }
        self.guard.sent(sent);
    }

    /// Waits for a change, a bookmark or the end.
    async fn wait(&mut self, piece: &mut Vec<u8>) {
        let bookmark_at = self.next_bookmark();
        tokio::select! {
            event = self.changes.next() => match event {
                Ok(event) => {
                    let sent = self.change(&event, piece).await;
                    self.guard.sent(u64::from(sent));
                }
                Err(error) => self.fail(error),
            },
            () = tokio::time::sleep_until(bookmark_at.unwrap_or(self.deadline)) => {
                match bookmark_at {
                    Some(at) => self.bookmark(at, piece),
                    None => self.state = State::Ended,
                }
            }
        }
    }

    /// When the next bookmark is due, if that is before the end.
    fn next_bookmark(&self) -> Option<Instant> {
        let bookmarks = self.bookmarks.as_ref()?;
        let last = self.deadline.checked_sub(BOOKMARK_BEFORE_END);
        let next = match last {
            Some(last) if !bookmarks.before_end => bookmarks.next.min(last),
            _ => bookmarks.next,
        };
        (next < self.deadline).then_some(next)
    }

    fn bookmark(&mut self, at: Instant, piece: &mut Vec<u8>) {
        let progress = self.changes.progress();
        let Some(bookmarks) = &mut self.bookmarks else { return };
        if at < bookmarks.next {
            bookmarks.before_end = true;
        }
        bookmarks.next = at + bookmarks.every;
        bookmarks.last_sent = Some(progress);
        self.frames
            .bookmark(&self.call, progress, frames::InitialEnd::No, piece);
    }

    /// One change as this client's selectors see it; tells whether it was sent.
    async fn change(&mut self, event: &Event, piece: &mut Vec<u8>) -> bool {
        let matches =
            |record: &Record| self.selection.is_everything() || self.selection.matches(&self.call.resource, record);
        let now = event.kind != EventKind::Deleted && matches(&event.record);
        let before = event.previous.as_deref().is_some_and(matches);
        let (frames, call) = (&mut self.frames, &self.call);
        let written = match (before, now) {
            (false, false) => return false,
            (false, true) => frames.event(call, EventKind::Added, &event.record, piece).await,
            (true, true) => frames.event(call, EventKind::Modified, &event.record, piece).await,
            (true, false) => match (&event.previous, event.kind) {
                // An object that stops matching goes with the last state that matched, at the new revision.
                (Some(previous), EventKind::Added | EventKind::Modified) => {
                    frames.left(call, previous, event.record.revision, piece).await
                }
                _ => frames.event(call, EventKind::Deleted, &event.record, piece).await,
            },
        };
        match written {
            Ok(()) => true,
            // A change that cannot be shown ends the watch: a client that misses it would never know.
            Err(error) => {
                self.state = State::Failing(error);
                false
            }
        }
    }

    fn fail(&mut self, error: StoreError) {
        let progress = self.changes.progress();
        self.state = State::Failing(match error {
            StoreError::Compacted { floor } => too_old(progress, floor),
            other => self.call.store_error(other, ""),
        });
    }
}
