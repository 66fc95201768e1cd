//! The audit log: who did what, one `audit.k8s.io/v1` Event a line.
//!
//! Requests never wait for it: they hand a finished [`Entry`] to a bounded queue, and a thread of its own
//! makes JSON of it and writes. When the disk cannot keep up, entries are dropped and their number is
//! written as soon as there is room again, so that a gap is never silent.

mod entry;

pub use entry::{Annotations, Entry, ObjectReference, RequestBody};

use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Entries that may wait for the writer.
const QUEUE: usize = 16 * 1024;

/// Bytes of request bodies that may wait for the writer; beyond that, entries wait without theirs.
const WAITING_BYTES: usize = 64 << 20;

/// What a write holds back at most, so that a reader of the file sees requests soon.
const FLUSH_EVERY: Duration = Duration::from_millis(100);

/// How much an event tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Who, what, when, and the outcome.
    Metadata,
    /// The request's body too, except where it holds secrets.
    Request,
}

/// A handle to the log; clones share it. The last one closes it.
#[derive(Clone)]
pub struct AuditLog {
    level: Level,
    shared: Arc<Shared>,
}

struct Shared {
    /// `None` once the log is closing.
    queue: Option<SyncSender<Entry>>,
    /// Bytes of bodies that wait.
    waiting: Arc<AtomicUsize>,
    dropped: Arc<AtomicU64>,
    writer: Option<JoinHandle<()>>,
}

impl AuditLog {
    /// Appends to a file that only its owner can read.
    pub fn open(path: &Path, level: Level) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
        Self::to(file, level)
    }

    /// Writes to anything.
    pub fn to(sink: impl Write + Send + 'static, level: Level) -> io::Result<Self> {
        let (queue, entries) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = dropped.clone();
        let waiting = Arc::new(AtomicUsize::new(0));
        let bytes = waiting.clone();
        let writer = std::thread::Builder::new()
            .name("audit".to_string())
            .spawn(move || write(&entries, BufWriter::new(sink), level, &counter, &bytes))?;
        Ok(AuditLog {
            level,
            shared: Arc::new(Shared {
                queue: Some(queue),
                waiting,
                dropped,
                writer: Some(writer),
            }),
        })
    }

    pub fn level(&self) -> Level {
        self.level
    }

    /// Hands an entry to the writer, without ever waiting.
    pub fn record(&self, entry: Entry) {
        let Some(queue) = &self.shared.queue else { return };
        let mut entry = entry;
        if self.shared.waiting.load(Ordering::Relaxed) + entry.body.len() > WAITING_BYTES {
            entry.body = RequestBody::None;
        }
        self.shared.waiting.fetch_add(entry.body.len(), Ordering::Relaxed);
        if let Err(TrySendError::Full(entry) | TrySendError::Disconnected(entry)) = queue.try_send(entry) {
            self.shared.waiting.fetch_sub(entry.body.len(), Ordering::Relaxed);
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Shared {
    /// Waits until everything that was recorded is written.
    fn drop(&mut self) {
        self.queue = None;
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}

fn write(
    entries: &Receiver<Entry>,
    mut sink: BufWriter<impl Write>,
    level: Level,
    dropped: &AtomicU64,
    waiting: &AtomicUsize,
) {
    let mut failing = false;
    loop {
        let outcome = match entries.recv_timeout(FLUSH_EVERY) {
            Ok(entry) => {
                waiting.fetch_sub(entry.body.len(), Ordering::Relaxed);
                line(&mut sink, &entry, level, dropped)
            }
            Err(RecvTimeoutError::Timeout) => sink.flush(),
            Err(RecvTimeoutError::Disconnected) => {
                let _ = sink.flush();
                return;
            }
        };
        match outcome {
            Ok(()) => failing = false,
            // A full disk is told once, not for every request.
            Err(error) if !failing => {
                failing = true;
                tracing::error!(%error, "cannot write the audit log");
            }
            Err(_) => {}
        }
    }
}

fn line(sink: &mut BufWriter<impl Write>, entry: &Entry, level: Level, dropped: &AtomicU64) -> io::Result<()> {
    let lost = dropped.swap(0, Ordering::Relaxed);
    if lost > 0 {
        tracing::warn!(lost, "the audit log could not keep up");
    }
    serde_json::to_writer(&mut *sink, &entry.event(level, lost))?;
    sink.write_all(b"\n")
}

#[cfg(test)]
mod tests;
