//! A bounded memory of parsed objects.
//!
//! Many watchers and readers look into the same object at about the same time, and should parse it once.
//! Keeping every parsed form would cost many times the encoded bytes, so a record only points to its form
//! weakly, and this keeps the most recent ones alive.

use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// How many bytes of JSON may be kept parsed; in parsed form they take about ten times as much.
const KEPT_BYTES: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Parsed {
    recent: Mutex<Recent>,
}

#[derive(Debug, Default)]
struct Recent {
    values: VecDeque<(Arc<Value>, usize)>,
    bytes: usize,
}

impl Parsed {
    /// Keeps a value alive until enough newer ones have come.
    pub(super) fn keep(&self, value: &Arc<Value>, bytes: usize) {
        let mut dropped = Vec::new();
        let mut recent = self.recent.lock();
        recent.bytes += bytes;
        recent.values.push_back((value.clone(), bytes));
        while recent.bytes > KEPT_BYTES
            && let Some((value, bytes)) = recent.values.pop_front()
        {
            recent.bytes -= bytes;
            dropped.push(value);
        }
        // Freeing a large value takes a while; the others need not wait for it.
        drop(recent);
    }
}
