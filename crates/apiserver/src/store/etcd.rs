//! The engine on a real etcd: its quorum decides on writes, and a watch of it feeds the local state.
//!
//! A write is a transaction on the key's revision. It is answered when the local state has it too, so that one
//! who got an answer also reads his own write here. Reads that must be the newest ask the quorum for its revision
//! first and wait until the local state has reached it.

mod address;
mod client;
mod feed;
mod layout;
mod proto;
#[cfg(test)]
mod tests;

pub use address::{BadAddress, EtcdAddress};

use super::engine::Engine;
use super::local::check;
use super::shared::Shared;
use super::state::History;
use super::{OpenError, Record, Revision, StoreError, Write};
use crate::environment::Clock;
use async_trait::async_trait;
use client::{Client, Failure};
use feed::Feed;
use layout::Layout;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;
use tokio::time::{Instant, timeout, timeout_at};

/// How long a request may take before its client is told that the store is unavailable. An election among the
/// members that are left takes one to two seconds, and a write that comes meanwhile should outlast it.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long to wait for the feed to come by itself before etcd is asked how far it is.
const FEED_DELAY: Duration = Duration::from_millis(10);

/// Between two attempts.
const RETRY_DELAY: Duration = Duration::from_millis(50);

pub(super) struct Etcd {
    client: Arc<Client>,
    layout: Layout,
    shared: Arc<Shared>,
    feed: Arc<Feed>,
    tasks: [AbortHandle; 2],
}

impl Etcd {
    /// Reads what is there, and follows it from then on.
    pub(super) async fn connect(
        address: &EtcdAddress,
        clock: Arc<dyn Clock>,
        history: History,
    ) -> Result<(Arc<Shared>, Etcd), OpenError> {
        let unreachable = |reason: String| OpenError::Unreachable {
            address: address.to_string(),
            reason,
        };
        let client = Client::new(&address.members).map_err(|failure| unreachable(failure.to_string()))?;
        let client = Arc::new(client);
        let layout = Layout::under(&address.root);
        let deadline = Instant::now() + PATIENCE;
        let parsed = Arc::default();
        let state = loop {
            match timeout_at(deadline, feed::load(&client, &layout, &parsed)).await {
                Ok(Ok(state)) => break state,
                Ok(Err(failure)) if failure.is_final() => return Err(unreachable(failure.to_string())),
                Ok(Err(failure)) if Instant::now() + RETRY_DELAY > deadline => {
                    return Err(unreachable(failure.to_string()));
                }
                Ok(Err(_)) => tokio::time::sleep(RETRY_DELAY).await,
                Err(_) => return Err(unreachable("no member answered in time".to_string())),
            }
        };
        let shared = Arc::new(Shared::new(state, parsed));
        let feed = Arc::new(Feed::new(
            client.clone(),
            layout.clone(),
            shared.clone(),
            clock,
            history,
        ));
        let tasks = [
            tokio::spawn(feed.clone().follow()).abort_handle(),
            tokio::spawn(feed.clone().compact()).abort_handle(),
        ];
        let engine = Etcd {
            client,
            layout,
            shared: shared.clone(),
            feed,
            tasks,
        };
        Ok((shared, engine))
    }

    /// Waits until the local state has a revision, and asks for progress where no change of ours brings it there.
    async fn reach(&self, revision: Revision) {
        while timeout(FEED_DELAY, self.shared.reached(revision)).await.is_err() {
            self.feed.ask_for_progress();
        }
    }

    /// Tries until the quorum has decided.
    async fn commit(&self, write: &Write) -> Result<Arc<Record>, StoreError> {
        let transaction = self.layout.transaction(write);
        // Set when an attempt ended without an answer: it may have been carried out all the same.
        let mut in_doubt = false;
        loop {
            match self.client.transact(&transaction).await {
                Ok(outcome) => {
                    self.reach(outcome.revision).await;
                    if outcome.succeeded {
                        return Ok(self.committed(write, outcome.revision));
                    }
                    if in_doubt && let Some(record) = self.carried_out(write) {
                        return Ok(record);
                    }
                    let refused = {
                        let state = self.shared.state.read();
                        check(write, state.latest(write.key()))
                    };
                    // Where it was refused for a state that has passed since, it is tried again.
                    refused?;
                }
                Err(failure) if failure.is_final() => return Err(failure.into()),
                Err(failure) => {
                    tracing::debug!(%failure, "trying the next member of etcd");
                    in_doubt = true;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
            }
        }
    }

    /// The record of a write that was committed at a revision.
    fn committed(&self, write: &Write, revision: Revision) -> Arc<Record> {
        let state = self.shared.state.read();
        let table = state.table(&write.key().resource);
        let mut changes = table.into_iter().flat_map(|table| table.changes_from(revision));
        if let Some(event) = changes.find(|event| *event.record.key == *write.key()) {
            return event.record.clone();
        }
        // A history that is very short may have forgotten the change already.
        let created = match write {
            Write::Create { .. } => revision,
            Write::Update { key, expect, .. } | Write::Delete { key, expect, .. } => {
                state.latest(key).map_or(*expect, |record| record.created)
            }
        };
        let key = Arc::new(write.key().clone());
        let json = write.draft().at(revision);
        Arc::new(Record::new(key, revision, created, json, self.shared.parsed.clone()))
    }

    /// Looks in the log for a change that can only be this write.
    fn carried_out(&self, write: &Write) -> Option<Arc<Record>> {
        let expect = match write {
            Write::Create { .. } => None,
            Write::Update { expect, .. } | Write::Delete { expect, .. } => Some(*expect),
        };
        let state = self.shared.state.read();
        let from = expect.unwrap_or(state.floor());
        let mut changes = state.table(&write.key().resource)?.changes_from(from);
        let own = changes.find(|event| {
            *event.record.key == *write.key()
                && event.previous.as_ref().map(|previous| previous.revision) == expect
                && event.record.json == write.draft().at(event.record.revision)
        });
        own.map(|event| event.record.clone())
    }
}

#[async_trait]
impl Engine for Etcd {
    async fn write(&self, write: Write) -> Result<Arc<Record>, StoreError> {
        let decided = timeout(PATIENCE, self.commit(&write)).await;
        decided.unwrap_or_else(|_| Err(StoreError::unavailable("etcd did not decide in time")))
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        let caught_up = timeout(PATIENCE, async {
            let revision = loop {
                match self.client.revision(&self.layout).await {
                    Ok(revision) => break revision,
                    Err(failure) if failure.is_final() => return Err(failure.into()),
                    Err(_) => tokio::time::sleep(RETRY_DELAY).await,
                }
            };
            self.reach(revision).await;
            Ok(())
        });
        let late = |_| Err(StoreError::unavailable("etcd did not answer in time"));
        caught_up.await.unwrap_or_else(late)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        let reason = failure.to_string().into();
        match failure {
            Failure::NoSpace(_) => StoreError::Full { reason },
            Failure::Refused(_) | Failure::Unreachable(_) | Failure::Compacted(_) => StoreError::Unavailable { reason },
        }
    }
}
