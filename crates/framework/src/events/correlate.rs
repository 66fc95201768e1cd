//! Which news become events of their own, which are told together, and which are too many.
//!
//! A ReplicaSet of a hundred pods has a hundred things to say, and nobody reads them. What is alike but for its words
//! is told as one event from a certain number on, and nobody speaks of one object more often than now and then: the
//! numbers are those of Kubernetes' own clients.

use super::{Identity, shorten};
use jiff::Timestamp;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// From so many different notes on, news of the same object and reason are told together.
const ALIKE: usize = 10;
/// News that are further apart than this begin anew.
const ALIKE_GAP: Duration = Duration::from_secs(10 * 60);
/// So many events of one object at once.
const BURST: u32 = 25;
/// And one more after each of these.
const REFILL: Duration = Duration::from_secs(5 * 60);
/// Of how many objects and reasons is remembered what was said.
const KEPT: usize = 4096;
/// What stands before the note of an event that tells several together.
const COMBINED: &str = "(combined from similar events): ";

/// What becomes of a piece of news.
#[derive(Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is told under this identity.
    Told(Identity),
    /// Too much was said of its object lately.
    TooMuch,
}

/// What was said lately. Names and notes are kept as hashes: each pod has something to say once, and its words would
/// be most of what is remembered.
#[derive(Default)]
pub struct Correlator {
    alike: HashMap<u64, Alike>,
    purses: HashMap<u64, Purse>,
}

/// News that differ in their notes only.
struct Alike {
    notes: Vec<u64>,
    /// Under which note those are told that are too many.
    combined: Option<Box<str>>,
    last: Timestamp,
}

/// What is left of an object's share.
struct Purse {
    left: u32,
    /// When it was last filled up by one.
    since: Timestamp,
}

impl Correlator {
    /// Decides about a piece of news.
    pub fn judge(&mut self, identity: Identity, at: Timestamp) -> Fate {
        let told = self.combine(identity, at);
        match self.spend(&told.about, at) {
            true => Fate::Told(told),
            false => Fate::TooMuch,
        }
    }

    /// The identity under which it is told: its own, or that of all that are like it.
    fn combine(&mut self, identity: Identity, at: Timestamp) -> Identity {
        let group = hash(&(&identity.about, &identity.reason, &identity.action, identity.warning));
        let own = hash(&identity.note);
        make_room(&mut self.alike, |alike| apart(alike.last, at) < ALIKE_GAP);
        let fresh = || Alike {
            notes: Vec::with_capacity(1),
            combined: None,
            last: at,
        };
        let alike = self.alike.entry(group).or_insert_with(fresh);
        if apart(alike.last, at) >= ALIKE_GAP {
            *alike = fresh();
        }
        alike.last = at;
        if alike.notes.contains(&own) {
            return identity;
        }
        if alike.notes.len() < ALIKE - 1 {
            alike.notes.push(own);
            return identity;
        }
        // With what stands before it, a note that was just short enough would be refused.
        let first = || shorten(&format!("{COMBINED}{}", identity.note)).into();
        let note = alike.combined.get_or_insert_with(first).to_string();
        Identity { note, ..identity }
    }

    /// Takes one from the object's share, if there is one left.
    fn spend(&mut self, about: &str, at: Timestamp) -> bool {
        make_room(&mut self.purses, |purse| apart(purse.since, at) < REFILL * BURST);
        let full = || Purse { left: BURST, since: at };
        let purse = self.purses.entry(hash(about)).or_insert_with(full);
        let earned = apart(purse.since, at).as_secs() / REFILL.as_secs();
        if earned > 0 {
            let earned = u32::try_from(earned).unwrap_or(BURST);
            purse.left = purse.left.saturating_add(earned).min(BURST);
            purse.since = at;
        }
        let enough = purse.left > 0;
        purse.left = purse.left.saturating_sub(1);
        enough
    }
}

fn hash(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

fn apart(earlier: Timestamp, later: Timestamp) -> Duration {
    later.duration_since(earlier).unsigned_abs()
}

/// Forgets what has no meaning any more, and where that is not enough everything: too much is said then, for once.
fn make_room<V>(kept: &mut HashMap<u64, V>, still_counts: impl Fn(&V) -> bool) {
    if kept.len() >= KEPT {
        kept.retain(|_, value| still_counts(value));
    }
    if kept.len() >= KEPT {
        kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    fn news(object: &str, note: &str) -> Identity {
        Identity {
            about: object.to_owned(),
            reason: "SuccessfulCreate".to_owned(),
            action: "Creating".to_owned(),
            note: note.to_owned(),
            warning: false,
        }
    }

    fn minute(count: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_mins(count)
    }

    fn note(fate: Fate) -> Option<String> {
        match fate {
            Fate::Told(identity) => Some(identity.note),
            Fate::TooMuch => None,
        }
    }

    #[test]
    fn what_is_alike_is_told_together_from_the_tenth_on() {
        let mut correlator = Correlator::default();
        let mut say = |count: usize| note(correlator.judge(news("web", &format!("Created pod: {count}")), minute(0)));
        for count in 1..10 {
            assert_eq!(say(count), Some(format!("Created pod: {count}")));
        }
        for count in 10..=25 {
            let combined = "(combined from similar events): Created pod: 10";
            assert_eq!(say(count).as_deref(), Some(combined), "{count}");
        }
        assert_eq!(say(26), None, "nobody wants to know that exactly");
    }

    #[test]
    fn what_is_told_together_is_no_longer_than_the_server_takes() {
        let mut correlator = Correlator::default();
        let long = "x".repeat(crate::events::LONGEST_NOTE - 2);
        let said =
            (10..30).filter_map(|count| note(correlator.judge(news("web", &format!("{count}{long}")), minute(0))));
        assert!(
            said.map(|note| note.len())
                .all(|length| length <= crate::events::LONGEST_NOTE)
        );
    }

    #[test]
    fn what_was_said_before_stays_as_it_was() {
        let mut correlator = Correlator::default();
        for count in 0..20 {
            correlator.judge(news("web", &count.to_string()), minute(0));
        }
        let again = correlator.judge(news("web", "3"), minute(0));
        assert_eq!(note(again).as_deref(), Some("3"));
    }

    #[test]
    fn each_object_has_its_own_share_and_time_gives_it_back() {
        let mut correlator = Correlator::default();
        let mut say = |object: &str, at: i64| note(correlator.judge(news(object, "x"), minute(at))).is_some();
        let said = (0..40).filter(|_| say("web", 0)).count();
        assert_eq!(said, 25);
        assert!(say("other", 0));
        assert!(!say("web", 4));
        assert!(say("web", 5));
        assert!(!say("web", 6));
        assert!(say("web", 60));
    }

    #[test]
    fn it_remembers_no_more_than_there_is_room_for() {
        let mut correlator = Correlator::default();
        for count in 0..20_000 {
            correlator.judge(news(&count.to_string(), "x"), minute(0));
        }
        assert!(correlator.alike.len() <= KEPT);
        assert!(correlator.purses.len() <= KEPT);
    }
}
