//! Fights over fields, and writes that never end.
//!
//! Two controllers that both insist on a field would write for ever. A field that somebody takes back five times
//! in ten minutes is left to them and reported. A controller whose own plan goes round in circles writes the same
//! thing again and again; that is reported too and slowed down.

use crate::key::Key;
use crate::kind::Kind;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// A field is left alone when it was taken back so often...
const TAKEN_BACK: usize = 5;
/// ...within this time.
const WAR_WINDOW: Duration = Duration::from_secs(600);
/// The same write so often...
const SAME_WRITE: usize = 10;
/// ...within this time is a loop.
const LOOP_WINDOW: Duration = Duration::from_secs(60);
/// Objects that are remembered.
const KEPT: usize = 10_000;

/// What is known of fights.
#[derive(Default)]
pub(crate) struct Wars {
    objects: Mutex<HashMap<(Kind, Key), Front>>,
}

#[derive(Default)]
struct Front {
    /// By field and the value we want there: a new wish is a new question.
    fields: HashMap<(String, u64), VecDeque<Instant>>,
    writes: VecDeque<(u64, Instant)>,
}

impl Wars {
    /// Somebody changed fields that we had set. The answer: which of them we leave alone from now on.
    pub fn taken_back(&self, kind: &Kind, key: &Key, fields: &[(String, u64)], now: Instant) -> Vec<String> {
        self.with(kind, key, |front| {
            let mut lost = Vec::new();
            for field in fields {
                let times = front.fields.entry(field.clone()).or_default();
                while times
                    .front()
                    .is_some_and(|then| now.saturating_duration_since(*then) > WAR_WINDOW)
                {
                    times.pop_front();
                }
                if times.len() < TAKEN_BACK {
                    times.push_back(now);
                }
                if times.len() >= TAKEN_BACK {
                    lost.push(field.0.clone());
                }
            }
            lost
        })
    }

    /// Fields of an object that were left alone for this wish.
    pub fn conceded(&self, kind: &Kind, key: &Key, wish_at: impl Fn(&str) -> u64) -> Vec<String> {
        let objects = self.objects.lock();
        let Some(front) = objects.get(&(kind.clone(), key.clone())) else {
            return Vec::new();
        };
        let lost = front
            .fields
            .iter()
            .filter(|((field, wish), times)| times.len() >= TAKEN_BACK && wish_at(field) == *wish);
        let mut fields: Vec<_> = lost.map(|((field, _), _)| field.clone()).collect();
        fields.sort();
        fields
    }

    /// A write is about to be made. Whether the same one was made so often that it must be a loop.
    pub fn is_loop(&self, kind: &Kind, key: &Key, write: u64, now: Instant) -> bool {
        self.with(kind, key, |front| {
            while front
                .writes
                .front()
                .is_some_and(|(_, then)| now.saturating_duration_since(*then) > LOOP_WINDOW)
            {
                front.writes.pop_front();
            }
            let same = front.writes.iter().filter(|(before, _)| *before == write).count();
            if same < SAME_WRITE {
                front.writes.push_back((write, now));
            }
            same >= SAME_WRITE
        })
    }

    fn with<T>(&self, kind: &Kind, key: &Key, act: impl FnOnce(&mut Front) -> T) -> T {
        let mut objects = self.objects.lock();
        if objects.len() >= KEPT {
            objects.clear();
        }
        act(objects.entry((kind.clone(), key.clone())).or_default())
    }
}
