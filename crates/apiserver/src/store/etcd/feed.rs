//! What keeps the local state in step with etcd: one read of everything, then a watch.

use super::client::{Client, Failure, revision};
use super::layout::{Layout, decode, decode_deleted};
use super::proto::{
    DELETE, Event as Change, KeyValue, RangeRequest, WatchAction, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse,
};
use crate::environment::Clock;
use crate::store::parsed::Parsed;
use crate::store::shared::Shared;
use crate::store::state::{History, State};
use crate::store::{Draft, Event, EventKind, Key, Record, Revision};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc};
use tokio_stream::wrappers::ReceiverStream;

/// Objects that are read with one call.
const PAGE: i64 = 500;

/// Between two attempts to open the watch.
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// As often as Kubernetes compacts its etcd; a revision lives between one and two of these.
const COMPACTION: Duration = Duration::from_secs(300);

pub(super) struct Feed {
    client: Arc<Client>,
    layout: Layout,
    shared: Arc<Shared>,
    clock: Arc<dyn Clock>,
    history: History,
    progress_wanted: Notify,
}

/// Why a watch ended.
enum End {
    /// Open another one behind what was received.
    Lost(String),
    /// What was not received yet is compacted: everything has to be read again.
    Compacted,
}

impl Feed {
    pub(super) fn new(
        client: Arc<Client>,
        layout: Layout,
        shared: Arc<Shared>,
        clock: Arc<dyn Clock>,
        history: History,
    ) -> Feed {
        Feed {
            client,
            layout,
            shared,
            clock,
            history,
            progress_wanted: Notify::new(),
        }
    }

    /// Has etcd say how far it is, for revisions that change nothing of ours.
    pub(super) fn ask_for_progress(&self) {
        self.progress_wanted.notify_one();
    }

    /// Follows the changes for as long as the store lives.
    pub(super) async fn follow(self: Arc<Self>) {
        loop {
            match self.watch().await {
                End::Lost(reason) => {
                    tracing::info!(reason, "the watch of etcd ended; opening another");
                    self.client.next_member();
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                End::Compacted => {
                    if let Err(failure) = self.read_again().await {
                        tracing::warn!(%failure, "cannot read etcd again after falling behind its compaction");
                        tokio::time::sleep(RETRY_DELAY).await;
                    }
                }
            }
        }
    }

    async fn watch(&self) -> End {
        let (requests, sent) = mpsc::channel(4);
        let (key, range_end) = self.layout.everything();
        let next = self.shared.state.read().revision().0 + 1;
        let create = WatchAction::Create(WatchCreateRequest {
            key,
            range_end,
            start_revision: i64::try_from(next).unwrap_or(i64::MAX),
            progress_notify: true,
        });
        // The channel has room, and its other end is ours.
        let _ = requests.try_send(WatchRequest { action: Some(create) });
        let mut stream = match self.client.watch(ReceiverStream::new(sent)).await {
            Ok(stream) => stream,
            Err(failure) => return End::Lost(failure.to_string()),
        };
        loop {
            tokio::select! {
                response = stream.message() => match response {
                    Ok(Some(response)) if response.canceled && response.compact_revision > 0 => return End::Compacted,
                    Ok(Some(response)) if response.canceled => return End::Lost(response.cancel_reason),
                    Ok(Some(response)) => self.enter(response),
                    Ok(None) => return End::Lost("it was closed".to_string()),
                    Err(status) => return End::Lost(status.to_string()),
                },
                () = self.progress_wanted.notified() => {
                    let action = Some(WatchAction::Progress(WatchProgressRequest {}));
                    // A full channel means that questions are on their way already.
                    let _ = requests.try_send(WatchRequest { action });
                }
            }
        }
    }

    /// Shows the changes of a response to readers and watchers.
    fn enter(&self, response: WatchResponse) {
        // The first response carries etcd's newest revision, but not yet the changes up to it.
        if response.created {
            return;
        }
        // Without changes it tells of progress. With changes its header may be ahead of them, since a watch that
        // catches up gets them in parts; but up to the last one all are here.
        let reached = match response.events.last().and_then(|change| change.kv.as_ref()) {
            Some(kv) => at(kv.mod_revision),
            None => revision(response.header),
        };
        let mut ahead: HashMap<Arc<Key>, Option<Arc<Record>>> = HashMap::new();
        let mut events = Vec::new();
        let mut last: Option<(Revision, Vec<u8>, Draft)> = None;
        for Change { kind, kv } in response.events {
            let Some(kv) = kv else { continue };
            if kv.key == self.layout.deleted() {
                last = decode_deleted(&kv.value).map(|(path, draft)| (at(kv.mod_revision), path.to_vec(), draft));
                continue;
            }
            let Some(key) = self.layout.key(&kv.key) else { continue };
            let previous = match ahead.get(&key) {
                Some(previous) => previous.clone(),
                None => self.shared.state.read().latest(&key).cloned(),
            };
            let event = if kind == DELETE {
                let last = last.take().filter(|(at_revision, path, _)| {
                    *at_revision == at(kv.mod_revision) && path.as_slice() == kv.key.as_ref()
                });
                self.deleted(&kv, previous, last.map(|(_, _, draft)| draft))
            } else {
                changed(key, &kv, previous, &self.shared.parsed)
            };
            let Some(event) = event else { continue };
            let now = (event.kind != EventKind::Deleted).then(|| event.record.clone());
            ahead.insert(event.record.key.clone(), now);
            events.push(Arc::new(event));
        }
        self.shared.publish(events, &self.history, self.clock.now());
        self.shared.advance(reached);
    }

    /// A delete; with the final state that came with it, or the last one known where somebody else deleted.
    fn deleted(&self, kv: &KeyValue, previous: Option<Arc<Record>>, last: Option<Draft>) -> Option<Event> {
        let previous = previous?;
        let last = last.unwrap_or_else(|| Draft::of(&previous.value()));
        Some(deletion(previous, at(kv.mod_revision), &last, &self.shared.parsed))
    }

    /// Takes over the state as it is now. Nobody knows what happened in between, so every watcher whom it
    /// concerns is ended by the new floor.
    async fn read_again(&self) -> Result<(), Failure> {
        let (objects, revision) = read(&self.client, &self.layout).await?;
        let parsed = &self.shared.parsed;
        let mut events = Vec::new();
        let mut present = HashSet::new();
        {
            let state = self.shared.state.read();
            for (key, kv) in objects {
                let previous = state.latest(&key).cloned();
                if previous
                    .as_ref()
                    .is_none_or(|record| record.revision != at(kv.mod_revision))
                {
                    events.extend(changed(key.clone(), &kv, previous, parsed));
                }
                present.insert(key);
            }
            for gone in state.all().filter(|record| !present.contains(&*record.key)) {
                let last = Draft::of(&gone.value());
                events.push(deletion(gone.clone(), revision, &last, parsed));
            }
        }
        events.sort_by_key(|event| event.record.revision);
        let events = events.into_iter().map(Arc::new).collect();
        self.shared.publish(events, &self.history, self.clock.now());
        self.shared.advance(revision);
        self.shared.state.write().forget_through(revision);
        Ok(())
    }

    /// Has etcd forget what nobody needs any more.
    pub(super) async fn compact(self: Arc<Self>) {
        let mut interval = tokio::time::interval(COMPACTION);
        interval.tick().await;
        let mut due = self.shared.state.read().revision();
        loop {
            interval.tick().await;
            if let Err(failure) = self.client.compact(due).await {
                // Another server of the same cluster has been first, or the next time will do.
                tracing::debug!(%failure, "etcd was not compacted");
            }
            due = self.shared.state.read().revision();
        }
    }
}

/// Reads everything into a new state.
pub(super) async fn load(client: &Client, layout: &Layout, parsed: &Arc<Parsed>) -> Result<State, Failure> {
    let (objects, revision) = read(client, layout).await?;
    let mut state = State::restored(revision);
    for (key, kv) in objects {
        if let Some(event) = changed(key, &kv, None, parsed) {
            state.restore(event.record);
        }
    }
    Ok(state)
}

/// All objects at one revision.
async fn read(client: &Client, layout: &Layout) -> Result<(Vec<(Key, KeyValue)>, Revision), Failure> {
    let (mut key, range_end) = layout.objects();
    let mut pinned = Revision(0);
    let mut objects = Vec::new();
    loop {
        let request = RangeRequest {
            key,
            range_end: range_end.clone(),
            limit: PAGE,
            revision: i64::try_from(pinned.0).unwrap_or(i64::MAX),
            count_only: false,
        };
        let page = client.range(request).await?;
        if pinned == Revision(0) {
            pinned = revision(page.header);
        }
        let last = page.kvs.last().map(|kv| kv.key.to_vec());
        objects.extend(page.kvs.into_iter().filter_map(|kv| Some((layout.key(&kv.key)?, kv))));
        match last {
            Some(mut last) if page.more => {
                // The smallest key behind the last one.
                last.push(0);
                key = last.into();
            }
            _ => return Ok((objects, pinned)),
        }
    }
}

fn changed(key: Key, kv: &KeyValue, previous: Option<Arc<Record>>, parsed: &Arc<Parsed>) -> Option<Event> {
    let Some(draft) = decode(&kv.value) else {
        tracing::warn!(?key, "etcd holds something here that is not ours; it is passed over");
        return None;
    };
    let kind = match previous {
        Some(_) => EventKind::Modified,
        None => EventKind::Added,
    };
    let key = previous
        .as_ref()
        .map_or_else(|| Arc::new(key), |previous| previous.key.clone());
    let (revision, created) = (at(kv.mod_revision), at(kv.create_revision));
    let record = Record::new(key, revision, created, draft.at(revision), parsed.clone());
    Some(Event {
        kind,
        record: Arc::new(record),
        previous,
    })
}

fn deletion(previous: Arc<Record>, revision: Revision, last: &Draft, parsed: &Arc<Parsed>) -> Event {
    let key = previous.key.clone();
    let record = Record::new(key, revision, previous.created, last.at(revision), parsed.clone());
    Event {
        kind: EventKind::Deleted,
        record: Arc::new(record),
        previous: Some(previous),
    }
}

fn at(revision: i64) -> Revision {
    Revision(u64::try_from(revision).unwrap_or(0))
}
