//! Waiting for something to become true, with a deadline and the last reason why it was not.

use std::fmt::Display;
use std::future::Future;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// How often a condition is looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// Something did not become true in time.
#[derive(Debug, thiserror::Error)]
#[error("{what}: not within {limit:?}; last seen: {last}")]
pub struct TimedOut {
    what: String,
    limit: Duration,
    last: String,
}

/// Looks again and again until `check` gives a value, and fails with its last complaint.
pub async fn until<T, E, F>(what: &str, limit: Duration, mut check: impl FnMut() -> F) -> Result<T, TimedOut>
where
    F: Future<Output = Result<T, E>>,
    E: Display,
{
    let deadline = Instant::now() + limit;
    loop {
        match check().await {
            Ok(value) => return Ok(value),
            Err(last) if Instant::now() >= deadline => {
                return Err(TimedOut {
                    what: what.to_string(),
                    limit,
                    last: last.to_string(),
                });
            }
            Err(_) => sleep(PAUSE).await,
        }
    }
}
