//! How a queue behaves: classes, delays, limits.

use std::time::Duration;

/// How urgent a key is. Each class waits at most its allowance longer than the one above it, so a low
/// class always progresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Class {
    /// A person waits: the spec changed, an object is being deleted.
    High,
    /// Ordinary events.
    Normal,
    /// Resyncs and the initial list.
    Low,
}

impl Class {
    /// All of them, most urgent first.
    pub const ALL: [Class; 3] = [Class::High, Class::Normal, Class::Low];

    /// How much later than a `High` key that arrived at the same time it is served.
    pub(super) fn allowance(self) -> Duration {
        match self {
            Class::High => Duration::ZERO,
            Class::Normal => Duration::from_secs(1),
            Class::Low => Duration::from_secs(5),
        }
    }

    /// The value of the metric label `priority`.
    pub fn label(self) -> &'static str {
        match self {
            Class::High => "high",
            Class::Normal => "normal",
            Class::Low => "low",
        }
    }

    pub(super) fn index(self) -> usize {
        self as usize
    }
}

/// Delays between attempts at one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Backoff {
    /// The delay after the first failure; each further one doubles it.
    pub first: Duration,
    /// The longest delay.
    pub most: Duration,
    /// The share of the delay that is random, so that keys that failed together do not return together.
    pub jitter: f64,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            first: Duration::from_secs(1),
            most: Duration::from_secs(300),
            jitter: 0.2,
        }
    }
}

impl Backoff {
    /// The delay after so many failures in a row; `random` is in 0..1.
    pub fn delay(&self, failures: u32, random: f64) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        let plain = self.first.saturating_mul(1 << doublings).min(self.most);
        // Jitter only shortens: the longest delay stays what was promised.
        plain.mul_f64(1.0 - self.jitter.clamp(0.0, 1.0) * random.clamp(0.0, 1.0))
    }
}

/// A limit over all keys of the queue: off by default, because backoff is per key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RateLimit {
    /// Keys a second, in the long run.
    pub per_second: f64,
    /// Keys at once, after a pause.
    pub burst: f64,
}

/// How a queue behaves.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Delays between attempts at one key.
    pub backoff: Backoff,
    /// A limit over all keys.
    pub rate: Option<RateLimit>,
    /// The seed of the jitter.
    pub seed: u64,
}
