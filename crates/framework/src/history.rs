//! What happened to each key: the answer to "why did it do that?".
//!
//! Kept in memory, bounded, and shown by `/debug/reconciles`. Runs that changed nothing are counted and not
//! kept, so that a quiet hour does not push the interesting run out.

use crate::key::Key;
use crate::queue::Wake;
use crate::writer::Written;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How many runs of a key are kept.
const RUNS_KEPT: usize = 10;
/// How many keys are remembered; beyond it the one that was quiet for longest is forgotten.
const KEYS_KEPT: usize = 2_000;
/// How many writes of a run are kept: one that creates a hundred children is told by its first ones.
const WRITES_KEPT: usize = 10;
/// Bodies of writes beyond this size are not kept.
const LONGEST_BODY: usize = 16 << 10;

/// One run of a key.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Run {
    /// The reconcile id, as in logs and traces.
    pub id: String,
    /// When it started.
    pub at: Timestamp,
    /// How long it took.
    #[serde(serialize_with = "milliseconds", rename = "tookMilliseconds")]
    pub took: Duration,
    /// Why it ran.
    pub reasons: Vec<Wake>,
    /// How it ended, in words.
    pub outcome: String,
    /// The class, if it failed.
    pub failed: Option<crate::Class>,
    /// What it wrote, each with what it changed.
    pub writes: Vec<Written>,
    /// Writes beyond those that are kept.
    #[serde(skip_serializing_if = "is_zero")]
    pub further_writes: usize,
    /// The plan, for reconcilers that make one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
}

/// Everything that is remembered of a key.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Story {
    /// Runs, ever.
    pub runs: u64,
    /// Runs that changed nothing, ever.
    pub unchanged: u64,
    /// The latest run.
    pub last: Option<Arc<Run>>,
    /// The latest runs that wrote or failed, oldest first.
    pub notable: VecDeque<Arc<Run>>,
}

/// What a manager remembers of the runs of its controllers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Memory {
    /// The latest ones of each key, with what they wrote.
    #[default]
    Runs,
    /// Nothing: for controllers of many keys that nobody will ask.
    Nothing,
}

/// The memory of one controller.
#[derive(Default)]
pub struct History {
    memory: Memory,
    stories: Mutex<Stories>,
}

#[derive(Default)]
struct Stories {
    by_key: HashMap<Key, Story>,
    order: VecDeque<Key>,
}

impl History {
    /// An empty memory.
    pub fn new(memory: Memory) -> Self {
        History {
            memory,
            ..History::default()
        }
    }

    /// Remembers a run.
    pub fn record(&self, key: &Key, mut run: Run) {
        if self.memory == Memory::Nothing {
            return;
        }
        let further = run.writes.len().saturating_sub(WRITES_KEPT);
        run.further_writes += further;
        run.writes.truncate(WRITES_KEPT);
        run.writes.shrink_to_fit();
        for write in &mut run.writes {
            if write.body.to_string().len() > LONGEST_BODY {
                write.body = serde_json::json!("(too long to keep)");
            }
        }
        let run = Arc::new(run);
        let mut stories = self.stories.lock();
        if !stories.by_key.contains_key(key) {
            stories.order.push_back(key.clone());
            if stories.order.len() > KEYS_KEPT
                && let Some(oldest) = stories.order.pop_front()
            {
                stories.by_key.remove(&oldest);
            }
        }
        let story = stories.by_key.entry(key.clone()).or_default();
        story.runs += 1;
        match run.writes.is_empty() && run.failed.is_none() {
            true => story.unchanged += 1,
            false => {
                if story.notable.len() == RUNS_KEPT {
                    story.notable.pop_front();
                }
                story.notable.push_back(run.clone());
            }
        }
        story.last = Some(run);
    }

    /// What is remembered of a key.
    pub fn of(&self, key: &Key) -> Option<Story> {
        self.stories.lock().by_key.get(key).cloned()
    }

    /// Every key that is remembered.
    pub fn keys(&self) -> Vec<Key> {
        self.stories.lock().order.iter().cloned().collect()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn milliseconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64() * 1000.0)
}
