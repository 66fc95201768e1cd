//! Keeps a watch on which much happens from costing a packet for every event.
//!
//! The first pieces go out at once. A watch that goes on to send more than its rate gathers what comes meanwhile and
//! sends it together: a few milliseconds later, for a fraction of the work. Where many watch the same, more is gathered
//! the longer a storm lasts; where few do, nobody is made to wait for what would save little.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Pieces that go out at once.
const BURST: u32 = 32;
/// One more piece is due after this, at first.
const SHORTEST: Duration = Duration::from_millis(5);
/// And after this in a storm that a crowd watches: a hundred watches then cost a quarter.
const LONGEST: Duration = Duration::from_millis(20);
/// So many watches of one kind are a crowd. The controllers of a cluster are fewer, and wait for their own writes.
const CROWD: usize = 32;
/// A watch that was silent for so long starts afresh.
const REST: Duration = Duration::from_millis(100);

/// How often one watch may send.
pub struct Pace {
    credit: u32,
    since: Instant,
    interval: Duration,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Pace {
            credit: BURST,
            since: now,
            interval: SHORTEST,
        }
    }

    /// Returns when the next piece may go out, where so many watch the same.
    pub async fn turn(&mut self, watches: usize) {
        let longest = match watches > CROWD {
            true => LONGEST,
            false => SHORTEST,
        };
        if let Some(until) = self.take(Instant::now(), longest) {
            sleep_until(until).await;
        }
    }

    /// Takes a turn; the time for which it has to be waited, if there is none at once.
    fn take(&mut self, now: Instant, longest: Duration) -> Option<Instant> {
        let passed = now.saturating_duration_since(self.since);
        if passed >= REST {
            self.interval = SHORTEST;
        }
        let earned = passed.as_micros() / self.interval.as_micros();
        let earned = u32::try_from(earned).unwrap_or(u32::MAX).min(BURST);
        if earned > 0 {
            self.credit = (self.credit + earned).min(BURST);
            self.since = now;
        }
        match self.credit.checked_sub(1) {
            Some(left) => {
                self.credit = left;
                None
            }
            None => {
                self.since += self.interval;
                self.interval = (self.interval + SHORTEST).min(longest);
                Some(self.since)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn turns(pace: &mut Pace, many: u32, watches: usize) -> Duration {
        let start = Instant::now();
        for _ in 0..many {
            pace.turn(watches).await;
        }
        Instant::now() - start
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_out_at_once_and_a_storm_at_its_rate() {
        let mut pace = Pace::new(Instant::now());
        assert_eq!(
            turns(&mut pace, BURST, 1).await,
            Duration::ZERO,
            "nothing was held back"
        );
        assert_eq!(turns(&mut pace, 100, 1).await, SHORTEST * 100);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let again = turns(&mut pace, BURST, 1).await;
        assert_eq!(again, Duration::ZERO, "rest earns a burst again, and no more");
        assert_eq!(turns(&mut pace, 1, 1).await, SHORTEST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_waits_longer_the_longer_a_storm_lasts() {
        let mut pace = Pace::new(Instant::now());
        assert_eq!(turns(&mut pace, BURST, CROWD + 1).await, Duration::ZERO);
        let growing = Duration::from_millis(5 + 10 + 15);
        assert_eq!(turns(&mut pace, 100, CROWD + 1).await, growing + LONGEST * 97);
    }
}
