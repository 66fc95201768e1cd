//! Keeps a watch on which much happens from costing a packet for every event.
//!
//! The first pieces go out at once. A watch that goes on to send more than its rate gathers what comes meanwhile and
//! sends it together: a few milliseconds later, for a fraction of the work.

use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Pieces that go out at once.
const BURST: u32 = 32;
/// One more piece is due after this.
const INTERVAL: Duration = Duration::from_millis(5);

/// How often one watch may send.
pub struct Pace {
    credit: u32,
    since: Instant,
}

impl Pace {
    pub fn new(now: Instant) -> Self {
        Pace {
            credit: BURST,
            since: now,
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
        let elapsed = now.saturating_duration_since(self.since).as_millis() / INTERVAL.as_millis();
        let earned = u32::try_from(elapsed).unwrap_or(u32::MAX).min(BURST);
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
                self.since += INTERVAL;
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
        assert_eq!(Instant::now() - start, INTERVAL * 100);
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
