//! Keeps a watch on which much happens from costing a packet for every event.
//!
//! The first pieces go out at once. A watch that goes on to send more than its rate gathers what comes meanwhile and
//! sends it together: a few milliseconds later, for a fraction of the work. The longer a storm lasts, the more is
//! gathered.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Pieces that go out at once.
const BURST: u32 = 32;
/// One more piece is due after this, at first.
const SHORTEST: Duration = Duration::from_millis(5);
/// And after this in a storm: a controller does not notice it, and a hundred watches cost a quarter.
const LONGEST: Duration = Duration::from_millis(20);
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

    /// Returns when the next piece may go out.
    pub async fn turn(&mut self) {
        if let Some(until) = self.take(Instant::now()) {
            sleep_until(until).await;
        }
    }

    /// Takes a turn; the time for which it has to be waited, if there is none at once.
    fn take(&mut self, now: Instant) -> Option<Instant> {
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
                self.interval = (self.interval + SHORTEST).min(LONGEST);
                Some(self.since)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_out_at_once_and_a_storm_at_its_rate() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            pace.turn().await;
        }
        assert_eq!(Instant::now(), start, "nothing was held back");
        for _ in 0..100 {
            pace.turn().await;
        }
        let growing: Duration = (1..4).map(|step| SHORTEST * step).sum();
        assert_eq!(Instant::now() - start, growing + LONGEST * 97);
        tokio::time::sleep(Duration::from_secs(10)).await;
        let later = Instant::now();
        for _ in 0..BURST {
            pace.turn().await;
        }
        assert_eq!(Instant::now(), later, "rest earns a burst again, and no more");
        pace.turn().await;
        assert!(Instant::now() > later);
    }
}
