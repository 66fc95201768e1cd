//! Where time and randomness come from.
//!
//! Plans, leases and events are stamped with wall-clock time; a test gives its own. Waiting is done with
//! tokio's clock, which a test can pause.

use jiff::Timestamp;
use std::sync::Arc;

/// The wall clock. Nothing in the framework reads the machine's clock by itself.
pub trait Clock: Send + Sync + 'static {
    /// The time.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }
}

/// A clock that a function answers for.
impl<F: Fn() -> Timestamp + Send + Sync + 'static> Clock for F {
    fn now(&self) -> Timestamp {
        self()
    }
}

/// The machine's clock, ready to be passed on.
pub fn system() -> Arc<dyn Clock> {
    Arc::new(SystemClock)
}
