//! The rules of the queue, without locks, waiting or a clock.
//!
//! Every operation costs O(1), or O(log n) where a delay is involved, whatever the number of keys: nothing
//! here walks all keys. Positions in the lines and in the heap of delays are never searched for and taken
//! out; a ticket that is not the key's current one is stale and skipped when it is reached.

use super::Wake;
use super::settings::{Class, Settings};
use crate::key::Key;
use hashbrown::HashMap;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// How many different reasons are kept for a key. More than these say nothing new.
const REASONS_KEPT: usize = 8;

/// A key that is handed out, and why.
#[derive(Clone, Debug)]
pub struct Job {
    /// The key.
    pub key: Key,
    /// How urgent it was.
    pub class: Class,
    /// Why it was woken.
    pub reasons: Vec<Wake>,
    /// Reasons beyond those that are kept.
    pub further_reasons: u32,
    /// Failures in a row before this run.
    pub failures: u32,
    /// How long it waited in line.
    pub waited: Duration,
}

/// What [`Ledger::next`] found.
#[derive(Debug)]
pub enum Next {
    /// This key, now.
    Ready(Job),
    /// Nothing yet; ask again then.
    At(Instant),
    /// Nothing until something is added.
    Nothing,
}

/// How the work on a key ended, as far as the queue cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Done; failures are forgotten.
    Settled,
    /// Done; look again after this long.
    After(Duration),
    /// Failed: back off. A server that says when to come back is obeyed if that is later.
    Failed {
        /// How long the server asked us to wait.
        not_before: Option<Duration>,
    },
    /// Somebody was faster: try again soon, and back off only when it keeps happening.
    Conflicted,
}

/// How often a key may run into conflicts in a row before it backs off like any failure.
const CONFLICTS_FORGIVEN: u32 = 5;
/// The pause after a conflict: long enough for the cache to hear of the other's write.
const CONFLICT_PAUSE: Duration = Duration::from_millis(20);

#[derive(Default)]
struct Entry {
    place: Place,
    reasons: Vec<Wake>,
    further_reasons: u32,
    failures: u32,
    conflicts: u32,
    /// Set while the key backs off; events do not shorten it, a changed spec does.
    backing_off_until: Option<Instant>,
    /// The earliest time somebody asked for.
    wanted_at: Option<Instant>,
}

/// Where a key is. It is never in two lines at once, and never in a line while it runs.
#[derive(Clone, Copy, Default)]
enum Place {
    /// Known, because it has failed or is delayed, but in no line.
    #[default]
    Aside,
    InLine {
        class: Class,
        ticket: u64,
    },
    Running {
        /// Something happened meanwhile; run again when done.
        again: Option<Class>,
    },
}

/// The state of a queue.
pub struct Ledger {
    settings: Settings,
    entries: HashMap<Key, Entry>,
    lines: [VecDeque<(Key, u64, Instant)>; 3],
    depth: [usize; 3],
    delayed: BinaryHeap<Reverse<(Instant, u64, Key)>>,
    tickets: u64,
    /// What runs, since when.
    running: HashMap<Key, Instant>,
    tokens: f64,
    refilled: Option<Instant>,
    random: u64,
    /// Keys put in line, ever.
    pub adds: u64,
    /// Failed runs, ever.
    pub retries: u64,
}

impl Ledger {
    /// An empty ledger.
    pub fn new(settings: Settings) -> Self {
        Ledger {
            tokens: settings.rate.map_or(0.0, |rate| rate.burst),
            random: settings.seed | 1,
            settings,
            entries: HashMap::new(),
            lines: Default::default(),
            depth: [0; 3],
            delayed: BinaryHeap::new(),
            tickets: 0,
            running: HashMap::new(),
            refilled: None,
            adds: 0,
            retries: 0,
        }
    }

    /// Something happened that concerns the key. During backoff only a changed spec puts it in line; other
    /// events are remembered, and neither shorten nor lengthen the wait.
    pub fn add(&mut self, key: Key, class: Class, wake: Wake, now: Instant) {
        let spec_changed = matches!(wake, Wake::SpecChanged { .. });
        let entry = self.entries.entry(key.clone()).or_default();
        remember(entry, wake);
        if spec_changed {
            entry.backing_off_until = None;
        }
        match &mut entry.place {
            Place::Running { again, .. } => {
                *again = Some(again.map_or(class, |before| before.min(class)));
            }
            Place::InLine { class: before, .. } if *before <= class => {}
            _ if entry.backing_off_until.is_some_and(|until| until > now) => {}
            Place::InLine { .. } | Place::Aside => self.put_in_line(key, class, now),
        }
    }

    /// Look at the key after a while. The earliest wish wins; a running backoff is not shortened.
    pub fn add_after(&mut self, key: Key, delay: Duration, wake: Wake, now: Instant) {
        if delay.is_zero() {
            return self.add(key, Class::Normal, wake, now);
        }
        let entry = self.entries.entry(key.clone()).or_default();
        remember(entry, wake);
        self.delay(key, later(now, delay));
    }

    /// The next key, if any may run now.
    pub fn next(&mut self, now: Instant) -> Next {
        self.release_delayed(now);
        let Some(class) = self.most_urgent() else {
            return match self.delayed.peek() {
                Some(Reverse((at, _, _))) => Next::At(*at),
                None => Next::Nothing,
            };
        };
        if let Some(at) = self.wait_for_token(now) {
            return Next::At(at);
        }
        let Some((key, _, since)) = self.lines[class.index()].pop_front() else {
            return Next::Nothing;
        };
        self.depth[class.index()] -= 1;
        self.running.insert(key.clone(), now);
        let entry = self.entries.entry(key.clone()).or_default();
        entry.place = Place::Running { again: None };
        // Whatever was asked for is being done now.
        entry.wanted_at = None;
        entry.backing_off_until = None;
        Next::Ready(Job {
            reasons: std::mem::take(&mut entry.reasons),
            further_reasons: std::mem::take(&mut entry.further_reasons),
            failures: entry.failures,
            waited: now.saturating_duration_since(since),
            key,
            class,
        })
    }

    /// The work on a key that [`Ledger::next`] handed out has ended.
    pub fn done(&mut self, key: &Key, verdict: Verdict, now: Instant) {
        let random = self.random();
        let backoff = self.settings.backoff;
        let Some(entry) = self.entries.get_mut(key) else { return };
        let Place::Running { again, .. } = entry.place else {
            return;
        };
        self.running.remove(key);
        entry.place = Place::Aside;
        let mut wish = None;
        match verdict {
            Verdict::Settled => {
                entry.failures = 0;
                entry.conflicts = 0;
            }
            Verdict::After(delay) => {
                entry.failures = 0;
                entry.conflicts = 0;
                wish = Some((delay, Wake::Requested));
            }
            Verdict::Conflicted if entry.conflicts < CONFLICTS_FORGIVEN => {
                entry.conflicts += 1;
                entry.backing_off_until = Some(now + CONFLICT_PAUSE);
                wish = Some((
                    CONFLICT_PAUSE,
                    Wake::Retry {
                        failures: entry.conflicts,
                    },
                ));
                self.retries += 1;
            }
            Verdict::Conflicted | Verdict::Failed { .. } => {
                entry.failures = entry.failures.saturating_add(1);
                let mut delay = backoff.delay(entry.failures, random);
                if let Verdict::Failed {
                    not_before: Some(asked),
                } = verdict
                {
                    delay = delay.max(asked);
                }
                entry.backing_off_until = Some(later(now, delay));
                wish = Some((
                    delay,
                    Wake::Retry {
                        failures: entry.failures,
                    },
                ));
                self.retries += 1;
            }
        }
        // A spec that changed while the key ran is a new question: it does not wait for the old answer's
        // backoff.
        if entry
            .reasons
            .iter()
            .any(|wake| matches!(wake, Wake::SpecChanged { .. }))
        {
            entry.backing_off_until = None;
        }
        // Whoever asked for an earlier look while the key ran waits for the backoff as well.
        if let Some(until) = entry.backing_off_until {
            entry.wanted_at = entry.wanted_at.filter(|wanted| *wanted >= until);
        }
        let backs_off = entry.backing_off_until.is_some();
        if let Some((delay, wake)) = wish {
            remember(entry, wake);
            self.delay(key.clone(), later(now, delay));
        }
        match again {
            Some(class) if !backs_off => self.put_in_line(key.clone(), class, now),
            _ => self.forget_if_idle(key),
        }
    }

    /// A key that was handed out is not run after all: it is looked at again after a while, or as soon as
    /// something happens, with the reasons that it had.
    pub fn defer(&mut self, job: Job, delay: Duration, now: Instant) {
        let Some(entry) = self.entries.get_mut(&job.key) else {
            return;
        };
        let Place::Running { again, .. } = entry.place else {
            return;
        };
        self.running.remove(&job.key);
        entry.place = Place::Aside;
        for wake in job.reasons {
            remember(entry, wake);
        }
        entry.further_reasons += job.further_reasons;
        match again {
            Some(class) => self.put_in_line(job.key, class, now),
            None => self.delay(job.key, later(now, delay)),
        }
    }

    /// How many keys wait in line, by class.
    pub fn depth(&self, class: Class) -> usize {
        self.depth[class.index()]
    }

    /// How many keys wait in line.
    pub fn len(&self) -> usize {
        self.depth.iter().sum()
    }

    /// Whether no key waits in line.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys are being worked on.
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Failures in a row of a key.
    pub fn failures(&self, key: &Key) -> u32 {
        self.entries.get(key).map_or(0, |entry| entry.failures)
    }

    /// When a key runs next, if that is known: now, if it is in line.
    pub fn due(&self, key: &Key, now: Instant) -> Option<Instant> {
        let entry = self.entries.get(key)?;
        match entry.place {
            Place::InLine { .. } => Some(now),
            Place::Running { .. } | Place::Aside => entry.wanted_at,
        }
    }

    /// Why a key will run, as far as that is known already.
    pub fn pending_reasons(&self, key: &Key) -> Vec<Wake> {
        self.entries
            .get(key)
            .map(|entry| entry.reasons.clone())
            .unwrap_or_default()
    }

    fn put_in_line(&mut self, key: Key, class: Class, now: Instant) {
        self.tickets += 1;
        let ticket = self.tickets;
        let entry = self.entries.entry(key.clone()).or_default();
        if let Place::InLine { class: before, .. } = entry.place {
            self.depth[before.index()] -= 1;
        }
        entry.place = Place::InLine { class, ticket };
        self.depth[class.index()] += 1;
        self.lines[class.index()].push_back((key, ticket, now));
        self.adds += 1;
    }

    /// Remembers the earliest wish for a key that is not in line, and nothing later.
    fn delay(&mut self, key: Key, at: Instant) {
        let Some(entry) = self.entries.get_mut(&key) else {
            return;
        };
        let at = entry.backing_off_until.map_or(at, |until| until.max(at));
        if entry.wanted_at.is_some_and(|wanted| wanted <= at) {
            return;
        }
        entry.wanted_at = Some(at);
        self.tickets += 1;
        self.delayed.push(Reverse((at, self.tickets, key)));
    }

    fn release_delayed(&mut self, now: Instant) {
        while let Some(Reverse((at, _, _))) = self.delayed.peek() {
            if *at > now {
                return;
            }
            let Some(Reverse((at, _, key))) = self.delayed.pop() else {
                return;
            };
            let Some(entry) = self.entries.get_mut(&key) else {
                continue;
            };
            if entry.wanted_at != Some(at) {
                continue;
            }
            entry.wanted_at = None;
            match &mut entry.place {
                Place::Aside => {
                    entry.backing_off_until = None;
                    self.put_in_line(key, Class::Normal, now);
                }
                Place::InLine { .. } => {}
                Place::Running { again, .. } => *again = Some(again.unwrap_or(Class::Normal)),
            }
        }
    }

    /// The class whose first key has waited longest, allowances counted.
    fn most_urgent(&mut self) -> Option<Class> {
        let mut best: Option<(Instant, Class)> = None;
        for class in Class::ALL {
            while let Some((key, ticket, since)) = self.lines[class.index()].front() {
                let current = matches!(
                    self.entries.get(key).map(|entry| entry.place),
                    Some(Place::InLine { ticket: current, .. }) if current == *ticket
                );
                if !current {
                    self.lines[class.index()].pop_front();
                    continue;
                }
                let deadline = *since + class.allowance();
                if best.is_none_or(|(earliest, _)| deadline < earliest) {
                    best = Some((deadline, class));
                }
                break;
            }
        }
        best.map(|(_, class)| class)
    }

    /// Takes a token, or says when there will be one.
    fn wait_for_token(&mut self, now: Instant) -> Option<Instant> {
        let rate = self.settings.rate?;
        let elapsed = self
            .refilled
            .map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        self.refilled = Some(now);
        self.tokens = (self.tokens + elapsed.as_secs_f64() * rate.per_second).min(rate.burst.max(1.0));
        if self.tokens >= 1.0 {
            self.tokens -= 1.0;
            return None;
        }
        let missing = (1.0 - self.tokens) / rate.per_second.max(f64::MIN_POSITIVE);
        Some(now + Duration::from_secs_f64(missing.clamp(0.000_001, 3600.0)))
    }

    /// Keys that are settled cost nothing: only failing, delayed, waiting and running ones are kept.
    fn forget_if_idle(&mut self, key: &Key) {
        let idle = self.entries.get(key).is_some_and(|entry| {
            matches!(entry.place, Place::Aside)
                && entry.failures == 0
                && entry.conflicts == 0
                && entry.wanted_at.is_none()
        });
        if idle {
            self.entries.remove(key);
        }
    }

    /// How long what runs has been running: the sum and the longest.
    pub fn unfinished(&self, now: Instant) -> (Duration, Duration) {
        let mut sum = Duration::ZERO;
        let mut longest = Duration::ZERO;
        for since in self.running.values() {
            let ran = now.saturating_duration_since(*since);
            sum += ran;
            longest = longest.max(ran);
        }
        (sum, longest)
    }

    /// How many keys cost memory.
    pub fn entries_known(&self) -> usize {
        self.entries.len()
    }

    /// A number in 0..1 from a small generator: jitter needs no better one, and a seed repeats it.
    fn random(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn remember(entry: &mut Entry, wake: Wake) {
    if entry.reasons.contains(&wake) {
        return;
    }
    match entry.reasons.len() < REASONS_KEPT {
        true => entry.reasons.push(wake),
        false => entry.further_reasons += 1,
    }
}

/// No delay is longer: a wish for "never" must not overflow the clock.
const LONGEST_DELAY: Duration = Duration::from_secs(365 * 24 * 3600);

fn later(now: Instant, delay: Duration) -> Instant {
    now + delay.min(LONGEST_DELAY)
}
