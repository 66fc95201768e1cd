//! Time and randomness that a test owns.
//!
//! The clock follows tokio's: in a runtime that was started with its time paused, an hour of backoff passes in the
//! moment in which everybody sleeps. What stands still in neither is the wall clock: [`VirtualClock::jump`] moves
//! it alone, as a bad time server does.

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use stead_apiserver::environment::Entropy;
use tokio::time::Instant;

/// When the time of every test begins: 2026-01-01 00:00:00 UTC.
const BEGINNING: i64 = 1_767_225_600;

/// A wall clock for a cluster and the operators on it.
///
/// ```
/// use jiff::SignedDuration;
/// use stead::Clock;
/// let clock = stead_test::VirtualClock::new();
/// let before = clock.now();
/// clock.jump(SignedDuration::from_hours(1));
/// assert!(clock.now().duration_since(before) >= SignedDuration::from_hours(1));
/// ```
pub struct VirtualClock {
    started: Instant,
    jumped: Mutex<SignedDuration>,
}

impl VirtualClock {
    /// A clock that starts now, at the same time in every test.
    pub fn new() -> Self {
        VirtualClock {
            started: Instant::now(),
            jumped: Mutex::new(SignedDuration::ZERO),
        }
    }

    /// Moves the wall clock, forwards or backwards. Nobody's patience is affected: waiting is done with
    /// tokio's clock.
    pub fn jump(&self, by: SignedDuration) {
        *self.jumped.lock() += by;
    }

    fn time(&self) -> Timestamp {
        // A test that runs for longer than jiff's nine thousand years is not worth an error.
        let passed = SignedDuration::try_from(self.started.elapsed()).unwrap_or_default();
        let since = SignedDuration::from_secs(BEGINNING) + passed + *self.jumped.lock();
        Timestamp::from_duration(since).unwrap_or(Timestamp::UNIX_EPOCH)
    }
}

impl Default for VirtualClock {
    fn default() -> Self {
        VirtualClock::new()
    }
}

impl stead::Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}

impl stead_apiserver::environment::Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.time()
    }
}

impl stead_cluster::clock::Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        self.time()
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()> {
        let left = std::time::Duration::try_from(deadline.duration_since(self.time())).unwrap_or_default();
        Box::pin(tokio::time::sleep(left))
    }
}

/// Bytes that look random and are the same for the same seed: UIDs repeat from run to run.
pub(crate) struct Seeded {
    state: Mutex<u64>,
}

impl Seeded {
    pub(crate) fn new(seed: u64) -> Self {
        Seeded {
            state: Mutex::new(seed),
        }
    }
}

impl Entropy for Seeded {
    fn fill(&self, bytes: &mut [u8]) {
        let mut state = self.state.lock();
        for chunk in bytes.chunks_mut(8) {
            // SplitMix64: small, and its outputs never repeat within a test.
            *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = *state;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            chunk.copy_from_slice(&mixed.to_le_bytes()[..chunk.len()]);
        }
    }
}
