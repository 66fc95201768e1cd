//! Deadlines by subject: at most one each, the earliest first.
//!
//! A pod that asks to be looked at again moves its own deadline instead of adding another, so that a crash loop
//! cannot fill memory with timers.

use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Deadlines, each for one subject.
pub struct Timers<T> {
    by_time: BTreeSet<(Timestamp, T)>,
    by_subject: BTreeMap<T, Timestamp>,
}

impl<T> Default for Timers<T> {
    fn default() -> Self {
        Timers {
            by_time: BTreeSet::new(),
            by_subject: BTreeMap::new(),
        }
    }
}

impl<T: Ord + Clone> Timers<T> {
    /// Sets the subject's deadline, unless an earlier one is set.
    pub fn set(&mut self, subject: T, time: Timestamp) {
        if let Some(before) = self.by_subject.get(&subject) {
            if *before <= time {
                return;
            }
            self.by_time.remove(&(*before, subject.clone()));
        }
        self.by_subject.insert(subject.clone(), time);
        self.by_time.insert((time, subject));
    }

    /// The earliest deadline.
    pub fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|(time, _)| *time)
    }

    /// Takes the subjects whose deadline has come.
    pub fn due(&mut self, now: Timestamp) -> Vec<T> {
        let mut due = Vec::new();
        while let Some((time, subject)) = self.by_time.pop_first() {
            if time > now {
                self.by_time.insert((time, subject));
                break;
            }
            self.by_subject.remove(&subject);
            due.push(subject);
        }
        due
    }
}
