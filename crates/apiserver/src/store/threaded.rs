//! The engine for a journal that waits for a disk: one thread commits, and gathers what comes meanwhile.
//!
//! All writes that arrive while the disk is busy go into the next batch and share its one wait.

use super::engine::Engine;
use super::local::{Committer, Journal};
use super::{Record, StoreError, Write};
use async_trait::async_trait;
use std::sync::Arc;
use std::thread::JoinHandle;
use tokio::sync::{mpsc, oneshot};

/// How many writes may wait. The server bounds its requests in flight below this.
const QUEUE: usize = 4_096;

/// A batch is closed at so many bytes, so that one transaction stays within the page cache.
const BATCH_BYTES: usize = 8 << 20;

type Answer = Result<Arc<Record>, StoreError>;

pub(super) struct Threaded {
    /// `None` only while being dropped: its end ends the thread.
    queue: Option<mpsc::Sender<Request>>,
    thread: Option<JoinHandle<()>>,
}

struct Request {
    write: Write,
    answer: oneshot::Sender<Answer>,
}

impl Threaded {
    pub(super) fn start<J: Journal + 'static>(mut committer: Committer<J>) -> std::io::Result<Threaded> {
        let (queue, mut requests) = mpsc::channel(QUEUE);
        let thread = std::thread::Builder::new().name("store".into());
        let thread = thread.spawn(move || {
            while let Some((batch, answers)) = gather(&mut requests) {
                for (answer, waiting) in committer.commit(batch).into_iter().zip(answers) {
                    // Whoever asked may have gone; the write stands all the same.
                    let _ = waiting.send(answer);
                }
            }
        })?;
        Ok(Threaded {
            queue: Some(queue),
            thread: Some(thread),
        })
    }
}

/// Waits for a write, and takes with it what else is waiting. `None` when the store is closed.
fn gather(requests: &mut mpsc::Receiver<Request>) -> Option<(Vec<Write>, Vec<oneshot::Sender<Answer>>)> {
    let mut next = Some(requests.blocking_recv()?);
    let mut batch = Vec::new();
    let mut answers = Vec::new();
    let mut bytes = 0;
    while let Some(Request { write, answer }) = next {
        bytes += write.draft().json.len();
        batch.push(write);
        answers.push(answer);
        next = match bytes < BATCH_BYTES {
            true => requests.try_recv().ok(),
            false => None,
        };
    }
    Some((batch, answers))
}

#[async_trait]
impl Engine for Threaded {
    async fn write(&self, write: Write) -> Answer {
        let ended = || StoreError::unavailable("its committer has ended");
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        let request = Request { write, answer };
        queue.send(request).await.map_err(|_| ended())?;
        answered.await.map_err(|_| ended())?
    }

    async fn catch_up(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

impl Drop for Threaded {
    /// Waits for the thread, so that the data directory is free again when the last handle is gone.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the store's committer panicked");
        }
    }
}
