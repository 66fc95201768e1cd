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
use std::collections::{BTreeMap, HashMap, VecDeque};
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
    /// Each with the turn in which something last happened to it.
    by_key: HashMap<Key, (u64, Story)>,
    /// The same, the one that was quiet for longest first.
    by_turn: BTreeMap<u64, Key>,
    turns: u64,
}

impl Stories {
    /// The story of a key to which something happened, which makes room for it if need be.
    fn moved(&mut self, key: &Key) -> &mut Story {
        self.turns += 1;
        let turn = self.turns;
        match self.by_key.get(key) {
            Some((before, _)) => {
                self.by_turn.remove(before);
            }
            None if self.by_key.len() >= KEYS_KEPT => {
                if let Some((_, quietest)) = self.by_turn.pop_first() {
                    self.by_key.remove(&quietest);
                }
            }
            None => {}
        }
        self.by_turn.insert(turn, key.clone());
        let (known, story) = self.by_key.entry(key.clone()).or_default();
        *known = turn;
        story
    }

    /// The story of a key to which nothing happened. It takes nobody's place.
    fn unmoved(&mut self, key: &Key) -> Option<&mut Story> {
        match self.by_key.contains_key(key) {
            true => self.by_key.get_mut(key).map(|(_, story)| story),
            false if self.by_key.len() < KEYS_KEPT => Some(self.moved(key)),
            false => None,
        }
    }
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
        let unchanged = run.writes.is_empty() && run.failed.is_none();
        let story = match unchanged {
            true => stories.unmoved(key),
            false => Some(stories.moved(key)),
        };
        let Some(story) = story else { return };
        story.runs += 1;
        match unchanged {
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
        self.stories.lock().by_key.get(key).map(|(_, story)| story.clone())
    }

    /// Every key that is remembered, the one that was quiet for longest first.
    pub fn keys(&self) -> Vec<Key> {
        self.stories.lock().by_turn.values().cloned().collect()
    }
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

fn milliseconds<S: serde::Serializer>(took: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(took.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(failed: Option<crate::Class>) -> Run {
        Run {
            id: String::new(),
            at: Timestamp::UNIX_EPOCH,
            took: Duration::ZERO,
            reasons: Vec::new(),
            outcome: String::new(),
            failed,
            writes: Vec::new(),
            further_writes: 0,
            plan: None,
        }
    }

    #[test]
    fn the_key_that_was_quiet_for_longest_is_forgotten_and_runs_that_changed_nothing_push_nobody_out() {
        let history = History::default();
        let key = |number: usize| Key::namespaced("a", &number.to_string());
        let failed = || run(Some(crate::Class::Transient));
        for number in 0..KEYS_KEPT {
            history.record(&key(number), failed());
        }
        // The first one is busy, and the second only looked at.
        history.record(&key(0), failed());
        history.record(&key(1), run(None));
        history.record(&key(KEYS_KEPT), run(None));
        assert!(history.of(&key(KEYS_KEPT)).is_none(), "nothing happened to it");
        history.record(&key(KEYS_KEPT + 1), failed());
        assert!(history.of(&key(1)).is_none(), "the quietest makes way");
        let busy = history.of(&key(0)).unwrap();
        assert_eq!((busy.runs, busy.notable.len()), (2, 2));
        assert_eq!(history.keys().len(), KEYS_KEPT);
    }
}
