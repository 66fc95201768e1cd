//! Where the cluster's parts take their time from.
//!
//! Nothing in this crate reads the wall clock by itself: a test hands in a clock that it moves by hand, and
//! a minute of back-off passes in no time at all.

use futures::future::BoxFuture;
use jiff::{Timestamp, TimestampArithmetic};
use std::time::Duration;

/// A clock that can be read and waited on.
pub trait Clock: Send + Sync + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// Ends when `deadline` is reached; at once if it has passed.
    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()>;
}

/// The machine's own clock.
#[derive(Clone, Copy, Default)]
pub struct MachineClock;

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn sleep_until(&self, deadline: Timestamp) -> BoxFuture<'static, ()> {
        let left = Duration::try_from(deadline.duration_since(Timestamp::now())).unwrap_or_default();
        Box::pin(tokio::time::sleep(left))
    }
}

/// `time` plus `delay`, or the end of time where that overflows: callers ask for "later", never for a wrap.
pub fn after(time: Timestamp, delay: impl Into<TimestampArithmetic>) -> Timestamp {
    time.checked_add(delay).unwrap_or(Timestamp::MAX)
}
