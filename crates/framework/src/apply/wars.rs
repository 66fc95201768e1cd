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
/// Beyond so many objects those are forgotten with which nothing happens...
const KEPT: usize = 10_000;
/// ...and beyond so many all of them: there is no memory for so many fights.
const MOST: usize = 10 * KEPT;

/// What is known of fights.
#[derive(Default)]
pub(crate) struct Wars {
    objects: Mutex<Objects>,
}

#[derive(Default)]
struct Objects {
    fronts: HashMap<(Kind, Key), Front>,
    /// How many there may be before the idle ones are looked for again.
    room: usize,
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
        self.with(kind, key, now, |front| {
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
        let Some(front) = objects.fronts.get(&(kind.clone(), key.clone())) else {
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

    /// Whether a write was made so often that making it again would be a loop.
    pub fn is_loop(&self, kind: &Kind, key: &Key, write: u64, now: Instant) -> bool {
        self.with(kind, key, now, |front| {
            while front
                .writes
                .front()
                .is_some_and(|(_, then)| now.saturating_duration_since(*then) > LOOP_WINDOW)
            {
                front.writes.pop_front();
            }
            front.writes.iter().filter(|(before, _)| *before == write).count() >= SAME_WRITE
        })
    }

    /// A write was made. One that was refused changed nothing, and trying it again is no loop.
    pub fn wrote(&self, kind: &Kind, key: &Key, write: u64, now: Instant) {
        self.with(kind, key, now, |front| {
            // More than this are a loop of any kind; the oldest tell nothing new.
            if front.writes.len() >= 4 * SAME_WRITE {
                front.writes.pop_front();
            }
            front.writes.push_back((write, now));
        });
    }

    fn with<T>(&self, kind: &Kind, key: &Key, now: Instant, act: impl FnOnce(&mut Front) -> T) -> T {
        let mut objects = self.objects.lock();
        objects.make_room(now);
        act(objects.fronts.entry((kind.clone(), key.clone())).or_default())
    }
}

impl Objects {
    fn make_room(&mut self, now: Instant) {
        if self.fronts.len() < self.room.max(KEPT) {
            return;
        }
        self.fronts.retain(|_, front| !front.is_idle(now));
        if self.fronts.len() >= MOST {
            self.fronts.clear();
        }
        // Going through all of them pays only when as many again have come.
        self.room = self.fronts.len() * 2;
    }
}

impl Front {
    /// Whether forgetting it changes nothing: no fight is on or was lost, and no write counts any more.
    fn is_idle(&self, now: Instant) -> bool {
        let recent = |then: &Instant, window: Duration| now.saturating_duration_since(*then) <= window;
        let fights = self
            .fields
            .values()
            .any(|times| times.len() >= TAKEN_BACK || times.back().is_some_and(|then| recent(then, WAR_WINDOW)));
        let writes = self.writes.back().is_some_and(|(_, then)| recent(then, LOOP_WINDOW));
        !fights && !writes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book() -> (Kind, Key) {
        (
            Kind::of::<k8s_openapi::api::core::v1::ConfigMap>(),
            Key::namespaced("a", "b"),
        )
    }

    #[test]
    fn f44_five_times_in_ten_minutes_and_a_field_is_left_alone_until_the_wish_changes() {
        let (wars, (kind, key), start) = (Wars::default(), book(), Instant::now());
        let field = [("/data/of".to_owned(), 7)];
        let at = |minutes: u64| start + Duration::from_secs(60 * minutes);
        for minute in 0..4 {
            assert!(wars.taken_back(&kind, &key, &field, at(minute)).is_empty());
        }
        assert_eq!(wars.taken_back(&kind, &key, &field, at(4)), ["/data/of"]);
        assert_eq!(wars.conceded(&kind, &key, |_| 7), ["/data/of"]);
        assert!(
            wars.conceded(&kind, &key, |_| 8).is_empty(),
            "a new wish is a new question"
        );
    }

    #[test]
    fn a_lost_fight_is_remembered_however_many_other_objects_are_written() {
        let (wars, (kind, key), now) = (Wars::default(), book(), Instant::now());
        for _ in 0..TAKEN_BACK {
            wars.taken_back(&kind, &key, &[("/data/of".to_owned(), 7)], now);
        }
        let later = now + Duration::from_secs(3600);
        for number in 0..3 * KEPT {
            let other = Key::namespaced("a", &number.to_string());
            wars.wrote(&kind, &other, 1, now + Duration::from_millis(number as u64 * 100));
        }
        assert_eq!(wars.conceded(&kind, &key, |_| 7), ["/data/of"]);
        wars.wrote(&kind, &key, 1, later);
        let kept = wars.objects.lock().fronts.len();
        assert!(kept < 2 * KEPT, "{kept} are kept");
    }

    #[test]
    fn five_times_in_an_hour_is_no_war() {
        let (wars, (kind, key), start) = (Wars::default(), book(), Instant::now());
        for round in 0..20u64 {
            let now = start + Duration::from_secs(720 * round);
            assert!(wars.taken_back(&kind, &key, &[("/x".to_owned(), 1)], now).is_empty());
        }
    }

    #[test]
    fn the_same_write_again_and_again_is_a_loop_and_refused_attempts_are_not() {
        let (wars, (kind, key), now) = (Wars::default(), book(), Instant::now());
        for _ in 0..10 {
            assert!(!wars.is_loop(&kind, &key, 1, now));
            wars.wrote(&kind, &key, 1, now);
        }
        assert!(wars.is_loop(&kind, &key, 1, now));
        assert!(!wars.is_loop(&kind, &key, 2, now));
        assert!(!wars.is_loop(&kind, &key, 1, now + Duration::from_secs(61)));
    }
}
